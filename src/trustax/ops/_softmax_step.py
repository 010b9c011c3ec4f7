"""First-order effect of one policy-gradient step on the cells of a divergence.

The step on the sampled token y moves the logits by dz = η·c·(e_y − π), c = A·w. With g_a = 1[a = y] − π_a and
h = Σ_a π_a g_a = π_y − Σ_a π_a², the masses move by dπ_a = η·c·π_a (g_a − h), so that

    dD = η·c·G,    G = Σ_c π_c (g_c − h) φ_c,    φ_c = ∂D/∂π_c

On the tail cell g_T = −q, where q = Σ_T π²/π_T is the mean of π_a under π(·|T): how the tail's mass is spread inside
it is all that a direction needs to know of it, and ``own_mass`` carries it (π_a for a token, q for the tail).

Along the straight line of that step, g fixed and h moving, d²π_c/ds² = π_c ((g_c − h)² + v_c − v): v_c is the variance
of g inside the cell (0 for a token) and v that over all tokens. So

    d²D/ds² = Σ_c π_c φ_c ((g_c − h)² + v_c − v) + β_c (g_c − h)²,    β_c = π_c² ∂²D/∂π_c²
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.ops._cells import Cells, one_hot
from trustax.ops._f_divergences import F_DIVERGENCES

PerCell = Float[Array, "*B C"]


def direction(
    divergence: str, cells: Cells, own_mass: PerCell, is_sampled: Bool[Array, "*B C"], *, drop_last: bool = False
) -> Float[Array, "*B"]:
    """G, or 0 where the sampled token has no valid cell. ``drop_last`` takes φ = 0 on the last cell."""
    slope = jnp.where(cells.valid, F_DIVERGENCES[divergence].slope(cells.log_pi, cells.log_mu), 0)
    own_mass = jnp.where(cells.valid, own_mass, 0)
    if divergence == "kl":  # Σ_c π_c φ_c = 0 leaves Σ_c π_c φ_c g_c; with g_y = 1 − π_y it does not cancel as π_y → 1
        pi, _ = cells.masses()
        others = jnp.sum(jnp.where(is_sampled, 0, pi), axis=-1)
        gains = jnp.where(is_sampled, others[..., None], -own_mass)
        value = jnp.sum(gains * slope, axis=-1)
    else:
        if drop_last:
            slope = slope.at[..., -1].set(0)
        pi, rates, is_reference = relative_rates(cells, own_mass, is_sampled)
        value = _sum_keeping_sign(rates, _relative_slope(slope, pi, is_reference))
    return jnp.where(jnp.any(is_sampled & cells.valid, axis=-1), value, 0)


def curvature(
    divergence: str,
    cells: Cells,
    own_mass: PerCell,
    is_sampled: Bool[Array, "*B C"],
    last_variance: Float[Array, "*B"] | None = None,
) -> Float[Array, "*B"]:
    """d²D/ds², or 0 where the sampled token has no valid cell; ``last_variance`` is v_c of the last cell."""
    row = F_DIVERGENCES[divergence]
    slope = jnp.where(cells.valid, row.slope(cells.log_pi, cells.log_mu), 0)
    bend = jnp.where(cells.valid, row.bend(cells.log_pi, cells.log_mu), 0)
    pi, rates, is_reference = relative_rates(cells, jnp.where(cells.valid, own_mass, 0), is_sampled)
    squares = rates**2
    spread = squares if last_variance is None else squares.at[..., -1].add(last_variance)
    spread -= jnp.sum(pi * spread, axis=-1)[..., None]
    # Σ_c π_c'' = 0: the same constant may be taken from every φ, as for the direction.
    value = jnp.sum(_relative_slope(slope, pi, is_reference) * spread + bend * squares, axis=-1)
    return jnp.where(jnp.any(is_sampled & cells.valid, axis=-1), value, 0)


def relative_rates(
    cells: Cells, own_mass: PerCell, is_sampled: Bool[Array, "*B C"]
) -> tuple[PerCell, PerCell, Bool[Array, "*B C"]]:
    """π_c, the relative rates dπ_c/π_c = g_c − h, and the reference cell: the one with the largest mass.

    All gains are taken relative to the reference cell's, and 1 − π_y as the sum of the other masses. Then nothing
    cancels when one token, sampled or not, holds nearly all of the mass. Because Σ_c π_c (g_c − h) = 0, a caller may
    subtract the reference cell's φ from every φ and leave the reference cell out.
    """
    pi, _ = cells.masses()
    is_reference = one_hot(jnp.argmax(pi, axis=-1), pi.shape[-1])
    sampled_is_reference = jnp.any(is_sampled & is_reference, axis=-1)[..., None]
    others = jnp.sum(jnp.where(is_reference, 0, pi), axis=-1)[..., None]
    reference_mass = _pick(own_mass, is_reference)[..., None]
    gains = jnp.where(
        sampled_is_reference, -(others + own_mass), is_sampled.astype(pi.dtype) + reference_mass - own_mass
    )
    gains = jnp.where(is_reference, 0, gains)
    return pi, gains - jnp.sum(pi * gains, axis=-1)[..., None], is_reference


def tie_rate(
    cells: Cells, own_mass: PerCell, is_sampled: Bool[Array, "*B C"], *, drop_last: bool = False
) -> Float[Array, "*B"]:
    """½ Σ |dπ_c| over the cells where π_c and μ_c are the same number: what they add to TV in either direction."""
    pi, rates, _ = relative_rates(cells, jnp.where(cells.valid, own_mass, 0), is_sampled)
    tied = cells.valid & (cells.log_pi == cells.log_mu)
    if drop_last:
        tied = tied.at[..., -1].set(False)
    value = 0.5 * jnp.sum(jnp.where(tied, jnp.abs(pi * rates), 0), axis=-1)
    return jnp.where(jnp.any(is_sampled & cells.valid, axis=-1), value, 0)


def local_and_head(cells: Cells, is_sampled: Bool[Array, "*B C"]) -> Float[Array, "*B"]:
    """(π_y − μ_y) + Σ_S π (μ − π): the part of the KL's direction that no estimate of the tail touches."""
    pi, _ = cells.masses()
    return direction("kl", cells, pi.at[..., -1].set(0), is_sampled)


def _sum_keeping_sign(rates: PerCell, relative: PerCell) -> Float[Array, "*B"]:
    """Σ rates·relative; where that underflows (both are of the order 1 − max π), the smallest float of its sign."""
    smallest = jnp.asarray(jnp.finfo(rates.dtype).tiny, rates.dtype)
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(relative), axis=-1))  # it cancels, also in the gradient
    size = jnp.where(size > 0, size, 1)
    scaled = jnp.sum(rates * (relative / size[..., None]), axis=-1)
    value = scaled * size
    return jnp.where(jnp.abs(value) < smallest, jnp.sign(scaled) * smallest, value)


def _relative_slope(slope: PerCell, pi: PerCell, is_reference: Bool[Array, "*B C"]) -> PerCell:
    """π_c (φ_c − φ_reference), exactly 0 on the reference cell."""
    reference_slope = _pick(slope, is_reference) / jnp.maximum(_pick(pi, is_reference), jnp.finfo(pi.dtype).tiny)
    return jnp.where(is_reference, 0, slope - pi * reference_slope[..., None])


def _pick(values: PerCell, where: Bool[Array, "*B C"]) -> Float[Array, "*B"]:
    return jnp.sum(jnp.where(where, values, 0), axis=-1)
