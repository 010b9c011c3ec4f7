"""The update-aware direction: how each token's divergence changes along the optimizer update that is about to happen.

Predictive directions look at a token's own softmax step. This one takes the update of the whole minibatch, through the
network, the optimizer's moments and the clip, so that the interaction of all tokens is in it: exact to first order. It
costs one more gradient and one forward-mode pass.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from trustax.objectives import Objective
from trustax.policies import Policy, join
from trustax.scoring.score import FROM_LOGITS
from trustax.training.config import CriticConfig
from trustax.training.gradients import Batch, batch_stats, loss_gradients
from trustax.training.optimizer import apply_update


def divergence_rate(
    policy: Policy,
    optimizer: optax.GradientTransformation,
    params: Any,
    opt_state: Any,
    objective: Objective,
    batch: Batch,
    *,
    version: Int[Array, ""],
    rate: Float[Array, ""],
    clip_norm: Float[Array, ""],
    micro_batches: int = 1,
    critic: CriticConfig | None = None,
) -> Float[Array, "B T"]:
    """The derivative of each token's divergence along the update of the *unmasked* objective; > 0 is outward.

    The divergence is the one that the objective's mask compares with its threshold. The unit is nats (or total
    variation) for this whole update: a first-order prediction of ``D_after − D_before``.
    """
    free = objective.unmasked()
    found = loss_gradients(policy, params, free, batch, version, micro_batches=micro_batches, critic=critic)
    _, grads = found.mean()
    trained, _ = policy.split(params)
    new = apply_update(optimizer, grads, opt_state, trained, rate=rate, clip_norm=clip_norm)
    tangent = jax.tree.map(jnp.subtract, new.params, trained)
    return jvp_of_divergence(policy, params, tangent, objective, batch, version)


def jvp_of_divergence(
    policy: Policy, params: Any, tangent: Any, objective: Objective, batch: Batch, version: Int[Array, ""]
) -> Float[Array, "B T"]:
    """The derivative of each token's divergence along a direction in the space of what is trained."""
    trained, frozen = policy.split(params)

    def divergence(trained: Any) -> Float[Array, "B T"]:
        stats = batch_stats(
            policy, join(trained, frozen), batch, version, needs=objective.needs, differentiable=FROM_LOGITS
        )
        return objective.divergence(stats)

    _, rates = jax.jvp(divergence, (trained,), (tangent,))
    return rates
