"""Grouped-query attention over the cached slots and the new tokens.

``L`` new tokens, ``S`` cached slots, ``N`` key/value heads of ``R`` query heads each, ``Hd`` channels per head.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.types import pytree_dataclass


@pytree_dataclass
class KeyValues:
    """Keys and values that queries may look at: ``mask`` says which query sees which slot."""

    keys: Float[Array, "B S N Hd"]
    values: Float[Array, "B S N Hd"]
    mask: Bool[Array, "B L S"]


def attend(
    queries: Float[Array, "B L H Hd"], parts: list[KeyValues], *, scale: float, soft_cap: float | None
) -> Float[Array, "B L H Hd"]:
    """Softmax attention over the union of ``parts``; a query that sees nothing gets zeros.

    The cache and the new tokens stay separate operands, so that a decode step never copies the cache. Query heads
    ``n * R .. n * R + R - 1`` share key/value head ``n``. Scores and softmax are float32.
    """
    batch, length, heads, channels = queries.shape
    kv_heads = parts[0].keys.shape[2]
    grouped = queries.reshape(batch, length, kv_heads, heads // kv_heads, channels)
    scores = jnp.concatenate(
        [
            jnp.einsum("blnrd,bsnd->bnlrs", grouped, part.keys, preferred_element_type=jnp.float32)
            for part in parts
        ],
        axis=-1,
    ) * jnp.float32(scale)
    if soft_cap is not None:
        scores = jnp.float32(soft_cap) * jnp.tanh(scores / jnp.float32(soft_cap))
    mask = jnp.concatenate([part.mask for part in parts], axis=-1)[:, None, :, None, :]
    weights = masked_softmax(scores, mask).astype(queries.dtype)
    out, start = None, 0
    for part in parts:
        stop = start + part.keys.shape[1]
        piece = jnp.einsum("bnlrs,bsnd->blnrd", weights[..., start:stop], part.values)
        out, start = piece if out is None else out + piece, stop
    return out.reshape(batch, length, heads, channels)


def masked_softmax(scores: Float[Array, "... S"], mask: Bool[Array, "... S"]) -> Float[Array, "... S"]:
    """Softmax over the slots of ``mask``; all zeros, with zero gradient, where there is none.

    Selects before ``exp`` and divides by a safe denominator, because the gradient of an unselected branch would
    otherwise turn into NaN (0 · inf).
    """
    lowest = jnp.finfo(scores.dtype).min
    selected = jnp.where(mask, scores, lowest)
    exponentials = jnp.where(mask, jnp.exp(selected - jnp.max(selected, axis=-1, keepdims=True)), 0.0)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / jnp.where(total > 0, total, 1.0)
