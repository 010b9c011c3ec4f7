"""The f-divergences, each as what one cell adds to D, and as the slope and the bend of D in that cell's mass.

    D = Σ_c cell_c,     φ_c = ∂D/∂π_c  (up to one constant for all cells, chosen such that φ = 0 at π = μ)
    β_c = π_c² ∂²D/∂π_c²

Every cell is written so that it is ≥ 0 by itself: it includes the terms ±(π_c − μ_c), whose sum over all cells is 0.
Without them the cells cancel, D is rounding noise of either sign near π = μ, and clamping it at 0 would erase the
gradient there.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trustax.ops._cells import smallest_log_mass

LogMass = Float[Array, "*C"]


class FDivergence(NamedTuple):
    """One row of the table. ``slope`` is π·φ and ``bend`` β, both finite for every pair of masses, 0 included."""

    cell: Callable[[LogMass, LogMass], Float[Array, "*C"]]
    slope: Callable[[LogMass, LogMass], Float[Array, "*C"]]
    bend: Callable[[LogMass, LogMass], Float[Array, "*C"]]
    largest: float = np.inf
    smallest_tail: float | None = None


def expm1_minus(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """e^x − 1 − x, accurate and never negative: a Taylor series near 0, where the difference would cancel."""
    near = jnp.abs(x) < 0.1
    small = jnp.where(near, x, jnp.zeros_like(x))
    series = jnp.zeros_like(x)
    for order in range(10, 1, -1):  # x^10/10!: the next term is below 1e-17 of the sum
        series = (series * small) + jnp.asarray(1.0 / float(np.prod(np.arange(1.0, order + 1.0))), x.dtype)
    away = jnp.where(near, jnp.ones_like(x), x)
    return jnp.where(near, series * small * small, jnp.expm1(away) - away)


def difference(log_p: LogMass, log_q: LogMass) -> Float[Array, "*C"]:
    """p − q without cancellation: the larger mass times 1 − e^−|log p − log q|."""
    log_p, log_q = _floored(log_p), _floored(log_q)
    ratio = log_p - log_q
    shrink = jnp.expm1(-_abs(ratio))
    return jnp.where(ratio > 0, -jnp.exp(log_p) * shrink, jnp.exp(log_q) * shrink)


def _floored(log_mass: LogMass) -> LogMass:
    """Replace the logarithm of 0 by that of the smallest normal float, so that log-ratios are finite."""
    return jnp.maximum(log_mass, jnp.asarray(smallest_log_mass(log_mass.dtype), log_mass.dtype))


def _abs(x: Array) -> Array:
    """|x| with derivative −1, not 0, at 0: the second derivative of x² = |x|² must survive."""
    return jnp.where(x > 0, x, -x)


def _kl_cell(log_p: LogMass, log_q: LogMass) -> Array:
    """p·(log p − log q) − p + q: q where p = 0, +inf where only q is 0."""
    p_is_zero, q_is_zero = log_p == -jnp.inf, log_q == -jnp.inf
    zero = jnp.zeros_like(log_p)
    safe_p, safe_q = jnp.where(p_is_zero, zero, log_p), jnp.where(q_is_zero, zero, log_q)
    q = jnp.where(q_is_zero, zero, jnp.exp(safe_q))
    both = _relative_entropy(jnp.exp(safe_p), q, safe_q - safe_p)
    return jnp.where(p_is_zero, q, jnp.where(q_is_zero, jnp.full_like(q, jnp.inf), both))


def _relative_entropy(p: Array, q: Array, log_ratio: Array) -> Array:
    """q − p − p·log(q/p) ≥ 0, given all three."""
    near = log_ratio <= 1
    small = jnp.where(near, log_ratio, jnp.ones_like(log_ratio))
    return jnp.where(near, p * expm1_minus(small), (q - p) - p * log_ratio)


def _reverse_kl_slope(log_pi: LogMass, log_mu: LogMass) -> Array:
    return jnp.exp(log_pi) * (_floored(log_pi) - _floored(log_mu))


def size(x: Array) -> Array:
    """|x| with derivative 0 at 0, where ``jnp.abs`` has 1."""
    return x * jnp.sign(x)


def at_most(x: Array, most: float) -> Array:
    """min(x, most) with the whole gradient where they are equal, which ``jnp.minimum`` halves."""
    bound = jnp.asarray(most, x.dtype)
    return jnp.where(x > bound, bound, x)


def _tv_cell(log_pi: LogMass, log_mu: LogMass) -> Array:
    return 0.5 * size(difference(log_pi, log_mu))


def _tv_slope(log_pi: LogMass, log_mu: LogMass) -> Array:
    return 0.5 * jnp.exp(log_pi) * jnp.sign(_floored(log_pi) - _floored(log_mu))


def _log_mean_over(log_p: LogMass, log_q: LogMass) -> Array:
    """log((p + q)/2) − log p, exactly 0 at p = q."""
    ratio = log_p - log_q
    return jnp.log1p(0.5 * jnp.expm1(-_abs(ratio))) + jnp.where(ratio > 0, jnp.zeros_like(ratio), -ratio)


def _js_cell(log_pi: LogMass, log_mu: LogMass) -> Array:
    log_pi, log_mu = _floored(log_pi), _floored(log_mu)
    larger, smaller = jnp.exp(jnp.maximum(log_pi, log_mu)), jnp.exp(jnp.minimum(log_pi, log_mu))
    distance = _abs(log_pi - log_mu)
    below = 0.5 * jnp.expm1(-distance)
    mean, log_mean = larger * (1 + below), jnp.log1p(below)  # the latter relative to the larger one
    from_smaller = _relative_entropy(smaller, mean, log_mean + distance)
    return 0.5 * (_relative_entropy(larger, mean, log_mean) + from_smaller)


def _js_slope(log_pi: LogMass, log_mu: LogMass) -> Array:
    return -0.5 * jnp.exp(log_pi) * _log_mean_over(_floored(log_pi), _floored(log_mu))


def _js_bend(log_pi: LogMass, log_mu: LogMass) -> Array:
    """½ πμ/(π + μ)."""
    smaller, distance = jnp.minimum(log_pi, log_mu), _abs(_floored(log_pi) - _floored(log_mu))
    return 0.5 * jnp.exp(smaller) / (1.0 + jnp.exp(-distance))


def _chi2_cell(log_pi: LogMass, log_mu: LogMass) -> Array:
    """(π − μ)²/μ: 0 where both are 0, +inf where only μ is."""
    mu_is_zero = log_mu == -jnp.inf
    # Both floored alike: π = μ is exactly 0 below the smallest float too.
    safe_mu = jnp.where(mu_is_zero, jnp.zeros_like(log_mu), _floored(log_mu))
    safe_pi = _floored(log_pi)
    shrink = jnp.expm1(-_abs(safe_pi - safe_mu)) ** 2
    scale = jnp.where(safe_pi > safe_mu, jnp.exp(2 * safe_pi - safe_mu), jnp.exp(safe_mu))
    only_pi = jnp.where(log_pi == -jnp.inf, jnp.zeros_like(log_pi), jnp.inf)
    return jnp.where(mu_is_zero, only_pi, scale * shrink)


def _chi2_log_ratio(log_pi: LogMass, log_mu: LogMass) -> Array:
    most = jnp.asarray(-smallest_log_mass(log_pi.dtype) - 8.0, log_pi.dtype)  # e^8 short of overflow: sums stay finite
    return jnp.minimum(_floored(log_pi) - _floored(log_mu), most)


def _chi2_slope(log_pi: LogMass, log_mu: LogMass) -> Array:
    return 2.0 * jnp.exp(log_pi) * jnp.expm1(_chi2_log_ratio(log_pi, log_mu))


def _chi2_bend(log_pi: LogMass, log_mu: LogMass) -> Array:
    """2 π²/μ."""
    return 2.0 * jnp.exp(log_pi + _chi2_log_ratio(log_pi, log_mu))


def _hellinger2_cell(log_pi: LogMass, log_mu: LogMass) -> Array:
    """½(√π − √μ)²."""
    log_pi, log_mu = _floored(log_pi), _floored(log_mu)
    return 0.5 * jnp.exp(jnp.maximum(log_pi, log_mu)) * jnp.expm1(-0.5 * _abs(log_pi - log_mu)) ** 2


def _hellinger2_slope(log_pi: LogMass, log_mu: LogMass) -> Array:
    """½(π − √(πμ))."""
    return 0.5 * difference(log_pi, 0.5 * (_floored(log_pi) + _floored(log_mu)))


def _hellinger2_bend(log_pi: LogMass, log_mu: LogMass) -> Array:
    """¼ √(πμ)."""
    return 0.25 * jnp.exp(0.5 * (log_pi + log_mu))


F_DIVERGENCES: dict[str, FDivergence] = {
    "kl": FDivergence(
        lambda log_pi, log_mu: _kl_cell(log_mu, log_pi), difference, lambda log_pi, log_mu: jnp.exp(log_mu)
    ),
    "reverse_kl": FDivergence(_kl_cell, _reverse_kl_slope, lambda log_pi, log_mu: jnp.exp(log_pi)),
    # Away from its kink at π = μ.
    "tv": FDivergence(_tv_cell, _tv_slope, lambda log_pi, log_mu: jnp.zeros_like(log_pi), largest=1.0),
    "js": FDivergence(_js_cell, _js_slope, _js_bend, largest=float(np.log(2.0))),
    # (π − μ)²/μ is all rounding where a μ_T that was not stored is below the resolution of 1 − Σ: see lumped_chi2.
    "chi2": FDivergence(_chi2_cell, _chi2_slope, _chi2_bend, smallest_tail=float(np.log(np.finfo(np.float32).eps))),
    "hellinger2": FDivergence(_hellinger2_cell, _hellinger2_slope, _hellinger2_bend, largest=1.0),
}
"""What ``divergence=`` may name, for D and for its directions alike; KL is KL(μ‖π), the reverse KL is KL(π‖μ)."""
