"""Random keys that depend only on (seed, step, prompt, sample index): never on batch layout or device count."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

TRAINING, EVALUATION = 0, 1


def sample_keys(
    seed: int, step: int, group_id: Int[Array, "B"], sample_index: Int[Array, "B"], *, stream: int = TRAINING
) -> Key[Array, "B"]:
    """One key a completion. ``stream`` keeps training and evaluation apart."""
    step_key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), step)

    def one(group: Int[Array, ""], sample: Int[Array, ""]) -> Key[Array, ""]:
        return jax.random.fold_in(jax.random.fold_in(step_key, group), sample)

    return jax.vmap(one)(jnp.asarray(group_id), jnp.asarray(sample_index))


def token_uniforms(keys: Key[Array, "B"], position: Int[Array, ""]) -> Float[Array, "B"]:
    """One uniform number a completion for its token at ``position``."""
    return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, position)))(keys)
