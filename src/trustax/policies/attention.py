"""Grouped-query attention over the cached slots and the new tokens.

``L`` new tokens, ``S`` cached slots, ``N`` key/value heads of ``R`` query heads each, ``Hd`` channels per head.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.parallel.constrain import count_parts
from trustax.types import pytree_dataclass

QUERY_BLOCK = 512


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

    Long sequences go block by block of queries, recomputed in the backward pass: scores of ``[L, S]`` never exist.
    """
    batch, length, heads, channels = queries.shape
    if length < 2 * QUERY_BLOCK or count_parts("tokens") > 1:
        return _attend(queries, parts, scale=scale, soft_cap=soft_cap)
    padding = -length % QUERY_BLOCK
    blocks = (length + padding) // QUERY_BLOCK

    def split(x: Array) -> Array:
        x = jnp.pad(x, [(0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(x.reshape(batch, blocks, QUERY_BLOCK, *x.shape[2:]), 1, 0)

    @jax.checkpoint
    def block(inputs: tuple[Array, list[Array]]) -> Array:
        queries, masks = inputs
        seen = [KeyValues(part.keys, part.values, mask) for part, mask in zip(parts, masks, strict=True)]
        return _attend(queries, seen, scale=scale, soft_cap=soft_cap)

    out = jax.lax.map(block, (split(queries), [split(part.mask) for part in parts]))
    return jnp.moveaxis(out, 0, 1).reshape(batch, length + padding, heads, channels)[:, :length]


def _attend(
    queries: Float[Array, "B L H Hd"], parts: list[KeyValues], *, scale: float, soft_cap: float | None
) -> Float[Array, "B L H Hd"]:
    """One block of queries.

    The cache and the new tokens stay separate operands, so that a decode step never copies the cache. Query heads
    ``n * R .. n * R + R - 1`` share key/value head ``n``. Scores and softmax are float32.
    """
    batch, length, heads, channels = queries.shape
    kv_heads = parts[0].keys.shape[2]
    grouped = queries.reshape(batch, length, kv_heads, heads // kv_heads, channels)
    scores = jnp.concatenate(
        [jnp.einsum("blnrd,bsnd->bnlrs", grouped, part.keys, preferred_element_type=jnp.float32) for part in parts],
        axis=-1,
    ) * jnp.float32(scale)
    if soft_cap is not None:
        scores = jnp.float32(soft_cap) * jnp.tanh(scores / jnp.float32(soft_cap))
    mask = jnp.concatenate([part.mask for part in parts], axis=-1)[:, None, :, None, :]
    weights = masked_softmax(scores, mask).astype(queries.dtype)
    ends = list(itertools.accumulate(part.keys.shape[1] for part in parts))
    pieces = [
        jnp.einsum("bnlrs,bsnd->blnrd", share, part.values)
        for share, part in zip(jnp.split(weights, ends[:-1], axis=-1), parts, strict=True)
    ]
    return functools.reduce(jnp.add, pieces).reshape(batch, length, heads, channels)


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
