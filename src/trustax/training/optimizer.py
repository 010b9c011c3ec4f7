"""AdamW behind a global-norm clip, with the learning rate as an argument so that sweeping it never recompiles."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from trustax.training.config import OptimizerConfig


class Update(NamedTuple):
    """New parameters and optimizer state, and the gradient's norm before clipping."""

    params: Any
    opt_state: Any
    grad_norm: Float[Array, ""]


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Adam moments and decoupled weight decay; the learning rate and the clip are applied by ``apply_update``."""
    return optax.chain(
        optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps),
        optax.add_decayed_weights(config.weight_decay),
    )


def learning_rate(config: OptimizerConfig, update: Int[Array, ""]) -> Float[Array, ""]:
    """Linear warm-up to the peak over ``warmup_steps`` updates, constant afterwards."""
    progress = (update.astype(jnp.float32) + 1.0) / max(config.warmup_steps, 1)
    return jnp.float32(config.learning_rate) * jnp.minimum(progress, 1.0)


def init_optimizer(optimizer: optax.GradientTransformation, params: Any) -> Any:
    """The optimizer's state for ``params``; optax is not written for strict dtype promotion."""
    with jax.numpy_dtype_promotion("standard"):
        return optimizer.init(params)


def apply_update(
    optimizer: optax.GradientTransformation,
    grads: Any,
    opt_state: Any,
    params: Any,
    *,
    rate: Float[Array, ""],
    clip_norm: Float[Array, ""],
) -> Update:
    """Clip the gradient once by its global norm, step the optimizer, move the parameters."""
    norm = optax.tree.norm(grads)
    scale = jnp.minimum(1.0, clip_norm / jnp.maximum(norm, jnp.finfo(jnp.float32).tiny))
    grads = jax.tree.map(lambda g: g * scale.astype(g.dtype), grads)
    with jax.numpy_dtype_promotion("standard"):
        steps, opt_state = optimizer.update(grads, opt_state, params)
    params = jax.tree.map(lambda p, s: p - (rate * s).astype(p.dtype), params, steps)
    return Update(params, opt_state, norm)
