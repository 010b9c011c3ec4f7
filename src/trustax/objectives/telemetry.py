"""What an objective reports: the same names for every recipe, each a ``Metric`` that merges over micro-batches.

Means and maxima merge exactly. Two do not: ``divergence/p95`` merges as the token-weighted mean of the parts' own
95th percentiles, and ``weight/ess`` as that of the parts' own effective sample sizes (exact from ``weight/mean`` and
``weight/mean_square``). An absent category has weight 0; nothing is ever NaN.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.objectives.checks import TOLERANCE, mass_tolerance
from trustax.objectives.directions import Direction
from trustax.objectives.fates import TokenFates
from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.term import walk
from trustax.objectives.view import TokenView
from trustax.ops.masked import masked_max, masked_quantile, masked_sum, select
from trustax.types import Metric, Support, TokenStats

LARGEST = 1e6
"""A divergence may be infinite (π = 0 where μ > 0); the metrics show it as this."""


def _mean(values: Array, where: Bool[Array, "*B T"], dtype: jnp.dtype) -> Metric:
    values = jnp.clip(values.astype(dtype), -LARGEST, LARGEST)
    return Metric(masked_sum(values, where), jnp.sum(where).astype(dtype))


def _max(values: Array, where: Bool[Array, "*B T"], dtype: jnp.dtype) -> Metric:
    values = jnp.clip(values.astype(dtype), -LARGEST, LARGEST)
    return Metric(masked_max(values, where), jnp.sum(where).astype(dtype), "max")


def _count(where: Array, dtype: jnp.dtype) -> Metric:
    return Metric(jnp.sum(where).astype(dtype), jnp.ones((), dtype), "sum")


def counters(stats: TokenStats, view: TokenView) -> dict[str, Metric]:
    """How many tokens and sequences there are, and how many hold values that cannot be right."""
    dtype, mask = view.dtype, stats.token_mask
    above = mask & ((stats.log_pi > TOLERANCE) | (stats.log_mu > TOLERANCE))
    found = {
        "tokens/valid": _count(view.valid, dtype),
        "tokens/nonfinite": _count(view.nonfinite, dtype),
        "tokens/log_prob_above_zero": _count(above, dtype),
        "sequences/valid": _count(view.length > 0, dtype),
        "sequences/empty": _count(view.length == 0, dtype),
    }
    if view.support is not None:
        support = view.support
        masses = [jnp.sum(select(jnp.exp(log_p), support.mask), -1) for log_p in (support.log_mu, support.log_pi)]
        assert stats.support is not None
        most = 1.0 + mass_tolerance(stats.support.log_mu.dtype, stats.support.log_pi.dtype)
        heavy = (masses[0] > most) | (masses[1] > most)
        found["tokens/mass_above_one"] = _count(view.valid & heavy, dtype)
        found["tokens/duplicate_ids"] = _count(view.valid & _has_duplicates(support), dtype)
    return found


def _has_duplicates(support: Support) -> Bool[Array, "*B T"]:
    """Tokens with an id twice among the valid slots; one comparison a pair of slots, (K+1)² a token."""
    width = support.ids.shape[-1]
    same = (support.ids[..., :, None] == support.ids[..., None, :]) & support.mask[..., :, None]
    same &= support.mask[..., None, :]
    pairs = jnp.broadcast_to(jnp.tri(width, k=-1, dtype=bool), same.shape)
    return jnp.any(same & pairs, axis=(-2, -1))


def _mask_metrics(view: TokenView, fates: TokenFates) -> dict[str, Metric]:
    dtype, valid, a = view.dtype, view.valid, view.advantages
    dropped = valid & ~fates.keep
    gap = view.log_pi - view.log_mu
    parts = {
        "mask/fraction": valid,
        "mask/fraction_positive": valid & (a > 0),
        "mask/fraction_negative": valid & (a < 0),
        "mask/fraction_zero": valid & (a == 0),
        "mask/fraction_above": valid & (gap > 0),
        "mask/fraction_below": valid & (gap < 0),
        "mask/fraction_of_far": fates.far,
    }
    # Where in its sequence a token stands: decile 1 holds the first tenth of the valid tokens.
    length = view.per_sequence(view.length).astype(view.position.dtype)
    decile = (10 * view.position - 1) // jnp.maximum(length, 1) + 1
    parts |= {f"mask/fraction_decile_{n}": valid & (jnp.minimum(decile, 10) == n) for n in range(1, 11)}
    size = jnp.abs(a * fates.surrogate)
    return {name: _mean(dropped, where, dtype) for name, where in parts.items()} | {
        "mask/far": _mean(fates.far, valid, dtype),
        "mask/outward": _mean(fates.outward, valid, dtype),
        "mask/dropped_mass": Metric(masked_sum(size, dropped), masked_sum(size, valid)),
    }


def _distance_metrics(view: TokenView, fates: TokenFates) -> dict[str, Metric]:
    dtype, valid = view.dtype, view.valid
    divergence = jnp.minimum(fates.divergence, LARGEST)
    count = jnp.sum(valid).astype(dtype)
    p95 = masked_quantile(divergence.reshape(-1), valid.reshape(-1), 0.95)
    gap = jnp.abs(jnp.exp(view.log_pi) - jnp.exp(view.log_mu))
    log_ratio = view.log_pi - view.log_mu
    found = {
        "divergence/mean": _mean(divergence, valid, dtype),
        "divergence/max": _max(divergence, valid, dtype),
        "divergence/p95": Metric(p95 * count, count),
        "prob_gap/mean": _mean(gap, valid, dtype),
        "prob_gap/max": _max(gap, valid, dtype),
        "log_ratio/mean": _mean(log_ratio, valid, dtype),
        "log_ratio/max_abs": _max(jnp.abs(log_ratio), valid, dtype),
    }
    if view.support is not None:
        found |= _tail_metrics(view, view.support)
    if view.policy_staleness is not None:
        staleness = view.policy_staleness.astype(dtype)
        found |= {"staleness/mean": _mean(staleness, valid, dtype), "staleness/max": _max(staleness, valid, dtype)}
    return found


def _tail_mass(log_probs: Array, mask: Array, tail_log: Array | None) -> Array:
    if tail_log is not None:
        return jnp.exp(tail_log)
    return jnp.clip(1.0 - jnp.sum(select(jnp.exp(log_probs), mask), axis=-1), 0.0, 1.0)


def _tail_metrics(view: TokenView, support: Support) -> dict[str, Metric]:
    dtype, valid = view.dtype, view.valid
    mu = _tail_mass(support.log_mu, support.mask, support.tail_log_mu)
    pi = _tail_mass(support.log_pi, support.mask, support.tail_log_pi)
    stored = support.tail_log_mu is not None and support.tail_log_sum_sq_pi is not None
    return {
        "tail/mu_mean": _mean(mu, valid, dtype),
        "tail/mu_max": _max(mu, valid, dtype),
        "tail/pi_mean": _mean(pi, valid, dtype),
        "tail/pi_max": _max(pi, valid, dtype),
        "tail/from_logits": _mean(jnp.full_like(mu, float(stored)), valid, dtype),
    }


def _direction_metrics(spec: ObjectiveSpec, view: TokenView, fates: TokenFates) -> dict[str, Metric]:
    judged = fates.far & (view.advantages != 0)
    ratio_outward = jnp.sign(view.advantages) * jnp.sign(view.log_pi - view.log_mu) > 0
    found = {"direction/disagreement": _mean(fates.outward != ratio_outward, judged, view.dtype)}
    if any(isinstance(part, Direction) and part.certified for part in walk(spec.mask)):
        found["direction/certified"] = _mean(fates.direction != 0, fates.far, view.dtype)
    return found


def _weight_metrics(view: TokenView, fates: TokenFates) -> dict[str, Metric]:
    dtype, keep = view.dtype, fates.keep
    total, squares = masked_sum(jnp.abs(fates.weight), keep), masked_sum(jnp.square(fates.weight), keep)
    count = jnp.sum(keep).astype(dtype)
    # Scaled by the largest weight, so that no square overflows.
    scale = jnp.maximum(masked_max(jnp.abs(fates.weight), keep), jnp.finfo(dtype).tiny)
    scaled = jnp.abs(fates.weight) / scale
    one, two = masked_sum(scaled, keep), masked_sum(jnp.square(scaled), keep)
    ess = jnp.square(one) / jnp.maximum(two * jnp.maximum(count, 1.0), jnp.finfo(dtype).tiny)
    return {
        "weight/mean": Metric(total, count),
        "weight/mean_square": Metric(squares, count),
        "weight/max": _max(fates.weight, keep, dtype),
        "weight/min": Metric(-masked_max(-fates.weight, keep), count, "min"),
        "weight/cap_hits": _mean(fates.capped, keep, dtype),
        "weight/ess": Metric(ess * count, count),
    }


def entropy_direction(view: TokenView, support: Support, entropy: Float[Array, "*B T"]) -> Float[Array, "*B T"]:
    """The first-order change of the entropy under a unit step of the token's logits.

    ``Σ_a π_a² (ln π_a + H) − π_y (ln π_y + H)``. Inside the tail only Σ_T π² and π_T are known: ln π is taken as
    log(Σ_T π² / π_T), exact for a uniform tail.

    References: methods of arXiv 2607.10848, derived.
    """
    h = entropy[..., None]
    inside = jnp.sum(select(jnp.exp(2.0 * support.log_pi) * (support.log_pi + h), support.mask), axis=-1)
    own = jnp.exp(view.log_pi) * (view.log_pi + entropy)
    tail = jnp.zeros_like(own)
    if support.tail_log_sum_sq_pi is not None and support.tail_log_pi is not None:
        known = jnp.isfinite(support.tail_log_sum_sq_pi) & jnp.isfinite(support.tail_log_pi)
        log_sq, log_mass = select(support.tail_log_sum_sq_pi, known), select(support.tail_log_pi, known)
        tail = select(jnp.exp(log_sq) * (log_sq - log_mass + entropy), known)
    return inside + tail - own


def _entropy_metrics(view: TokenView, fates: TokenFates) -> dict[str, Metric]:
    if view.entropy is None:
        return {}
    dtype, valid = view.dtype, view.valid
    entropy = jnp.asarray(view.entropy)
    found = {"entropy/mean": _mean(entropy, valid, dtype)}
    if view.support is not None:
        change = view.advantages * fates.surrogate * entropy_direction(view, view.support, entropy)
        found["entropy/change_kept"] = _mean(change, fates.keep, dtype)
        found["entropy/change_masked"] = _mean(change, valid & ~fates.keep, dtype)
    return found


def metrics(spec: ObjectiveSpec, stats: TokenStats, view: TokenView, fates: TokenFates) -> dict[str, Metric]:
    """Everything an objective reports about a batch."""
    return (
        counters(stats, view)
        | _mask_metrics(view, fates)
        | _distance_metrics(view, fates)
        | _direction_metrics(spec, view, fates)
        | _weight_metrics(view, fates)
        | _entropy_metrics(view, fates)
    )
