"""Reductions over the entries where a mask is true: by selection, never by multiplication, and defined when empty.

``B`` sequences, ``T`` tokens. A value outside the mask may be anything (NaN, ±inf): it is replaced *before* any
arithmetic, so that it reaches neither a result nor a gradient.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

Axis = int | tuple[int, ...] | None
Mask = Shaped[Array, "..."]
"""Booleans; anything else is refused in words by ``select``."""


def select(values: Array, mask: Mask, fill: float = 0.0) -> Array:
    """Replace what lies outside the mask.

    ``y = mask ? x : fill``. ``0·inf`` and ``0·NaN`` are NaN, so a product with a 0/1 mask lets padding through.

    Args:
        values: any floating dtype.
        mask: booleans of the same shape.
        fill: the neutral value of what follows (0 for a sum, −inf for a maximum).

    Gradient: identity inside the mask, exactly 0 outside.

    Raises: ValueError for a mask that is not boolean, such as advantages in its place.

    >>> select(jnp.array([1.0, jnp.nan]), jnp.array([True, False])).tolist()
    [1.0, 0.0]
    """
    if mask.dtype != jnp.bool_:
        raise ValueError(f"the mask is {mask.dtype}, expected bool: is another array in its place?")
    return jnp.where(mask, values, jnp.asarray(fill, values.dtype))


def masked_sum(values: Array, mask: Mask, axis: Axis = None) -> Array:
    """Sum the entries inside the mask.

    ``Σ_{mask} x``; 0 where nothing is inside.

    Gradient: 1 inside the mask, exactly 0 outside.

    >>> float(masked_sum(jnp.array([1.0, 2.0, jnp.inf]), jnp.array([True, True, False])))
    3.0
    """
    return jnp.sum(select(values, mask), axis=axis)


def masked_mean(values: Array, mask: Mask, axis: Axis = None) -> Array:
    """Average the entries inside the mask.

    ``Σ_{mask} x / |mask|``; 0 where nothing is inside (and gradient 0), never 0/0.

    >>> float(masked_mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])))
    2.0
    >>> float(masked_mean(jnp.array([jnp.nan]), jnp.array([False])))
    0.0
    """
    total = masked_sum(values, mask, axis)
    count = jnp.sum(mask.astype(values.dtype), axis=axis)
    return total / jnp.maximum(count, jnp.ones_like(count))


def masked_max(values: Array, mask: Mask, axis: Axis = None, empty: float = 0.0) -> Array:
    """Take the largest entry inside the mask, ``empty`` where nothing is inside.

    >>> float(masked_max(jnp.array([-1.0, -3.0, 9.0]), jnp.array([True, True, False])))
    -1.0
    """
    largest = jnp.max(select(values, mask, -jnp.inf), axis=axis, initial=-jnp.inf)
    return select(largest, jnp.any(mask, axis=axis), empty)


def masked_quantile(values: Array, mask: Mask, q: Float[Array, ""] | float, axis: int = -1) -> Array:
    """Take the q-quantile of the entries inside the mask, along one axis.

    Linear interpolation between order statistics, as ``numpy.quantile`` does on the compressed array; 0 where nothing
    is inside. To be called on detached values: a sort has no useful gradient.

    Args:
        values: floats, finite inside the mask.
        mask: booleans of the same shape.
        q: in [0, 1].
        axis: the axis that is reduced.

    >>> float(masked_quantile(jnp.array([3.0, 1.0, 2.0, jnp.nan]), jnp.array([True, True, True, False]), 0.75))
    2.5
    """
    if values.shape[axis] == 0:
        return jnp.zeros_like(jnp.sum(values, axis=axis))
    ordered = jnp.sort(select(values, mask, jnp.inf), axis=axis)
    count = jnp.sum(mask, axis=axis, keepdims=True)
    rank = jnp.asarray(q, values.dtype) * jnp.maximum(count - 1, 0).astype(values.dtype)
    low = jnp.floor(rank)
    at_low = jnp.take_along_axis(ordered, low.astype(jnp.int32), axis=axis)
    at_high = jnp.take_along_axis(ordered, jnp.ceil(rank).astype(jnp.int32), axis=axis)
    step = jnp.where(rank > low, (at_high - at_low) * (rank - low), jnp.zeros_like(rank))
    return jnp.squeeze(select(at_low + step, count > 0), axis=axis)


def masked_whiten(values: Array, mask: Mask, *, eps: float = 1e-6) -> Array:
    """Shift and scale to mean 0 and standard deviation 1 over all entries inside the mask.

    ``(x − mean) / (std + ε)`` with the population std (ddof = 0); 0 outside the mask. One global mean: under ``jit``
    over a mesh it is the mean of all shards, not one mean per shard.

    Gradient: as written; callers whiten detached advantages.

    >>> masked_whiten(jnp.array([1.0, 3.0, 0.0, 0.0]), jnp.array([True, True, False, False]), eps=0.0).tolist()
    [-1.0, 1.0, 0.0, 0.0]
    """
    centered = select(values - jnp.broadcast_to(masked_mean(values, mask), values.shape), mask)
    std = jnp.sqrt(masked_mean(centered**2, mask))
    scale = jnp.where(std > 0, std + jnp.asarray(eps, values.dtype), jnp.ones_like(std))
    return centered / jnp.broadcast_to(scale, values.shape)
