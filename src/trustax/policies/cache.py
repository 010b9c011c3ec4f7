"""A prompt computed once and continued many times: prefill, and the fork of its cache into rows."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from trustax.parallel.constrain import constrain, count_parts
from trustax.policies.policy import Policy


def prefill(
    policy: Policy,
    params: Any,
    prompt_tokens: Int[Array, "P Tp"],
    prompt_valid: Bool[Array, "P Tp"],
    *,
    routes: Int[Array, "P Tp layers K"] | None = None,
) -> tuple[Float[Array, "P D"], Any, dict[str, Array]]:
    """Run prompts padded on the left: the hidden state that predicts the first completion token, the cache, ``aux``."""
    count, length = prompt_tokens.shape
    positions = jnp.maximum(jnp.cumsum(prompt_valid, axis=-1, dtype=jnp.int32) - 1, 0)
    cache = policy.init_cache(count, length)
    hidden, cache, aux = policy.apply(params, prompt_tokens, positions, prompt_valid, cache, routes=routes)
    return hidden[:, -1], cache, aux


def fork_cache(cache: Any, rows: Int[Array, "B"], *, extra: int) -> Any:
    """Give each of ``rows`` its own copy of a prompt's cache with ``extra`` free slots behind it.

    Differentiable: the gradients of all rows add up in the prompt's keys and values. Where a mesh splits the rows,
    those of one prompt must stand together, as many for each (``place_batch`` sees to it): its cache is then repeated
    where it lies. By index the compiler would gather the caches of all prompts on every device.
    """
    in_place = count_parts("rows") > 1

    def fork(leaf: Array) -> Array:
        if leaf.ndim == 0:  # the write index stays where the prompt ended
            return leaf
        free = [(0, 0)] * leaf.ndim
        free[2] = (0, extra)
        group_size = rows.shape[0] // leaf.shape[1]
        forked = jnp.repeat(leaf, group_size, axis=1) if in_place else leaf[:, rows]
        return constrain(jnp.pad(forked, free), None, "rows", None, "heads")

    return jax.tree.map(fork, cache)
