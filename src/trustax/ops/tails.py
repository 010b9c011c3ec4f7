"""The pass over the logits: log-probs on a support, and what lies outside it, without one subtraction of masses.

``*B`` is any leading shape, ``V`` the vocabulary, ``S`` the slots of a support. For late-training policies 1 − Σ_S π
and Σπ² − Σ_S π² are rounding noise in float32, and a mask decided by noise is wrong. Here the support's logits are
gathered, then hidden from the vocabulary, and the tail is summed directly.

``Moments`` of disjoint parts merge exactly, so that the vocabulary may come in chunks or live on several devices.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trustax.ops._arguments import IdsLike, LogProbsLike, MaskLike, as_floats, raise_problems, shape_problems


class Moments(NamedTuple):
    """Sums over a set of logits z, relative to its largest one m; ``largest`` is −inf for the empty set.

    The largest logit's own term, 1, is left out of the sums: 1 + rest would lose a rest below 1e-7 of it, and with it
    log π of a token that holds nearly all of the mass.
    """

    largest: Float[Array, "*B"]
    rest: Float[Array, "*B"]  # Σ e^(z−m) − 1
    rest_sq: Float[Array, "*B"]  # Σ e^2(z−m) − 1
    rest_cube: Float[Array, "*B"]  # Σ e^3(z−m) − 1
    gap: Float[Array, "*B"]  # Σ e^(z−m) (m − z)


class TailState(NamedTuple):
    """What has been seen of a vocabulary: the moments of its tail, and the support's logits (−inf if not yet seen)."""

    tail: Moments
    support_logits: Float[Array, "*B S"]


class TailStatistics(NamedTuple):
    """Statistics of softmax(logits), all ``[...]`` but ``log_probs [..., S]``; T is the complement of the support."""

    log_probs: Float[Array, "*B S"]  # log π on the slots; NaN on slots that are not valid
    lse: Float[Array, "*B"]  # log Σ e^z
    tail_log_mass: Float[Array, "*B"]  # log π_T, −inf if T is empty
    tail_log_sum_sq: Float[Array, "*B"]  # log Σ_T π², likewise
    tail_log_sum_cube: Float[Array, "*B"]  # log Σ_T π³, likewise
    tail_log_max: Float[Array, "*B"]  # log max_T π, likewise
    log_sum_sq: Float[Array, "*B"]  # log Σ π²
    entropy: Float[Array, "*B"]  # −Σ π log π in nats

    @property
    def sum_sq(self) -> Float[Array, "*B"]:
        """Σ π²."""
        return jnp.exp(self.log_sum_sq)


def tail_statistics(logits: LogProbsLike, ids: IdsLike, mask: MaskLike | None = None) -> TailStatistics:
    """Compute log-probs on a support and the log-masses outside it, in one pass over the logits.

        log π_T = lse_T(z) − lse(z)      log Σ_T π² = lse_T(2z) − 2 lse(z)      H = lse(z) − Σ π z

    with lse_T over the tokens outside the support. Under ``jit`` what is not used is not computed.

    Args:
      logits: unnormalised log-probs of the *sampled* distribution (temperature applied), [..., V]; −inf is allowed.
      ids: token ids of the slots, [..., S], each valid id once.
      mask: which slots are valid; all of them if left out. Ids on the others are never read.

    Returns:
      ``TailStatistics`` in float32, or float64 for float64 logits.

    Gradient: through every result, exact at ties; finite where a logit is −inf or the tail is empty.

    Edge cases: an empty tail (S covers V) has log-masses −inf. A row of −inf only gives NaN log-probs.

    Raises:
      ValueError: shapes that do not agree, wrong dtypes, in one message.

    References: derived here, from the safe form of the predictive direction.

    Example:
      >>> stats = tail_statistics(jnp.log(jnp.array([4.0, 3.0, 2.0, 1.0])), jnp.array([0, 1]))
      >>> [round(x, 6) for x in jnp.exp(stats.log_probs).tolist()]
      [0.4, 0.3]
      >>> round(float(jnp.exp(stats.tail_log_mass)), 6), round(float(jnp.exp(stats.tail_log_sum_sq)), 6)
      (0.3, 0.05)
      >>> round(float(stats.sum_sq), 6)  # .16 + .09 + .04 + .01
      0.3
    """
    mask = jnp.ones(jnp.shape(ids), bool) if mask is None else mask
    return finish(tail_state(logits, ids, mask), mask)


def tail_state(
    logits: LogProbsLike,
    ids: IdsLike,
    mask: MaskLike,
    *,
    offset: Int[Array, ""] | int = 0,
) -> TailState:
    """Look at one part of the vocabulary: tokens ``offset`` to ``offset + V − 1``.

    Example:
      >>> z, ids, mask = jnp.log(jnp.array([4.0, 3.0, 2.0, 1.0])), jnp.array([0, 1]), jnp.array([True, True])
      >>> left, right = tail_state(z[:2], ids, mask), tail_state(z[2:], ids, mask, offset=2)
      >>> round(float(jnp.exp(finish(merge_tail_states(left, right), mask).tail_log_mass)), 6)
      0.3
    """
    (logits,) = as_floats(logits=logits)
    ids, mask = jnp.asarray(ids), jnp.asarray(mask)
    _check(logits, ids, mask)
    size = logits.shape[-1]
    if size == 0:
        return TailState(moments(logits), jnp.full(ids.shape, -jnp.inf, logits.dtype))
    local = ids - jnp.asarray(offset, ids.dtype)
    here = mask & (local >= 0) & (local < size)
    safe = jnp.where(here, local, jnp.zeros_like(local))
    gathered = jnp.take_along_axis(logits, safe, axis=-1)
    hidden = _hide(logits, jnp.where(here, local, jnp.full_like(local, size)))
    return TailState(moments(hidden), jnp.where(here, gathered, -jnp.inf))


def merge_tail_states(a: TailState, b: TailState) -> TailState:
    """Merge what was seen of two disjoint parts of the vocabulary; the order does not matter."""
    return TailState(merge_moments(a.tail, b.tail), jnp.maximum(a.support_logits, b.support_logits))


def merge_tail_states_over(state: TailState, axis_name: str) -> TailState:
    """Merge the states of all shards of a mesh axis (inside ``shard_map``): every shard gets the whole.

    Only the states travel, S + 5 numbers a token, never logits.
    """
    parts = jax.lax.all_gather(state, axis_name)
    count = parts.support_logits.shape[0]
    return functools.reduce(merge_tail_states, [jax.tree.map(lambda x, i=i: x[i], parts) for i in range(count)])


def finish(state: TailState, mask: MaskLike) -> TailStatistics:
    """Turn the state of the whole vocabulary into statistics."""
    tail = state.tail
    whole = merge_moments(tail, moments(state.support_logits))
    log_rest = jnp.log1p(whole.rest)
    tail_gap = tail.largest - whole.largest
    nothing = tail.largest == -jnp.inf
    shift = jnp.where(nothing, jnp.zeros_like(tail_gap), tail_gap)

    def unless_empty(value: Array) -> Array:
        return jnp.where(nothing, -jnp.inf, value)

    log_probs = (state.support_logits - whole.largest[..., None]) - log_rest[..., None]
    return TailStatistics(
        log_probs=jnp.where(mask, log_probs, jnp.nan),
        lse=whole.largest + log_rest,
        tail_log_mass=unless_empty(shift + jnp.log1p(tail.rest) - log_rest),
        tail_log_sum_sq=unless_empty(2 * shift + jnp.log1p(tail.rest_sq) - 2 * log_rest),
        tail_log_sum_cube=unless_empty(3 * shift + jnp.log1p(tail.rest_cube) - 3 * log_rest),
        tail_log_max=unless_empty(shift - log_rest),
        log_sum_sq=jnp.log1p(whole.rest_sq) - 2 * log_rest,
        entropy=log_rest + whole.gap / (1 + whole.rest),
    )


def moments(logits: Float[Array, "*B n"]) -> Moments:
    """Compute the moments of a set of logits; −inf is an absent token.

    Example:
      >>> m = moments(jnp.log(jnp.array([1.0, 4.0, 2.0])))
      >>> round(float(m.rest), 6), round(float(m.rest_sq), 6)  # ¼ + ½ and 1/16 + ¼
      (0.75, 0.3125)
    """
    shape = logits.shape[:-1]
    if logits.shape[-1] == 0:
        zero = jnp.zeros(shape, logits.dtype)
        return Moments(jnp.full(shape, -jnp.inf, logits.dtype), zero, zero, zero, zero)
    largest = jnp.max(logits, axis=-1)
    nothing = largest == -jnp.inf
    shifted = logits - jnp.where(nothing, jnp.zeros_like(largest), largest)[..., None]
    absent, is_largest = shifted == -jnp.inf, shifted == 0
    below = jnp.where(absent | is_largest, jnp.zeros_like(shifted), shifted)  # select before exp: no NaN from −inf
    weight = jnp.where(absent | is_largest, jnp.zeros_like(shifted), jnp.exp(below))
    ties = jnp.sum(is_largest, axis=-1, dtype=logits.dtype) - 1

    def total(values: Array, start: Array) -> Array:
        return jnp.where(nothing, jnp.zeros_like(start), start + jnp.sum(values, axis=-1))

    return Moments(
        largest=largest,
        rest=total(weight, ties),
        rest_sq=total(weight**2, ties),
        rest_cube=total(weight**3, ties),
        gap=total(-weight * below, jnp.zeros_like(ties)),
    )


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Merge the moments of two disjoint sets of logits.

    Example:
      >>> m = merge_moments(moments(jnp.log(jnp.array([1.0, 4.0]))), moments(jnp.log(jnp.array([2.0]))))
      >>> round(float(m.rest), 6)
      0.75
    """
    a_is_larger = a.largest >= b.largest
    high, low = (jax.tree.map(lambda x, y, c=c: jnp.where(c, x, y), a, b) for c in (a_is_larger, ~a_is_larger))
    nothing = low.largest == -jnp.inf
    distance = jnp.where(nothing, jnp.zeros_like(low.largest), high.largest - low.largest)
    factor = jnp.where(nothing, jnp.zeros_like(distance), jnp.exp(-distance))
    return Moments(
        largest=high.largest,
        rest=high.rest + (1 + low.rest) * factor,
        rest_sq=high.rest_sq + (1 + low.rest_sq) * factor**2,
        rest_cube=high.rest_cube + (1 + low.rest_cube) * factor**3,
        gap=high.gap + (low.gap + (1 + low.rest) * distance) * factor,
    )


def _hide(logits: Float[Array, "*B V"], ids: Int[Array, "*B S"]) -> Float[Array, "*B V"]:
    """Set the logits at ``ids`` to −inf; an id of V is dropped."""
    *shape, size = logits.shape
    rows = logits.reshape(math.prod(shape), size)  # not −1, which cannot be told where there are no tokens
    columns = ids.reshape(rows.shape[0], ids.shape[-1])
    lines = jnp.arange(rows.shape[0], dtype=ids.dtype)[:, None]
    return rows.at[lines, columns].set(-jnp.inf, mode="drop").reshape(*shape, size)


def _check(logits: Array, ids: Array, mask: Array) -> None:
    problems = [] if logits.ndim else ["logits is a scalar, expected shape [..., V]"]
    if ids.ndim == 0 or ids.shape[:-1] != logits.shape[:-1]:
        problems.append(f"ids has shape {ids.shape}, expected {logits.shape[:-1]} + [S] as logits {logits.shape}")
    problems += shape_problems(ids.shape, "ids", mask=mask)
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        problems.append(f"ids is {ids.dtype}, expected an integer dtype")
    if mask.dtype != jnp.bool_:
        problems.append(f"mask is {mask.dtype}, expected bool")
    raise_problems(problems)
