"""Second-order prediction of a divergence, and the step below which a predicted decrease of the KL is certain.

Both need what the sign of G does not: the step size s = η·A·w on the logits. The step goes along the straight line
z + s (e_y − π), with π as it is now.
"""

from typing import Unpack

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.ops._arguments import (
    IdsLike,
    LogProbsLike,
    MaskLike,
    SlotsLike,
    TokenLike,
    as_floats,
    raise_problems,
    shape_problems,
)
from trustax.ops._cells import Cells
from trustax.ops._softmax_step import curvature, direction
from trustax.ops._tail import KnownOfTail, check_full_inputs, check_inputs, own_masses

Token = Float[Array, "*B"]


def predicted_divergence(
    divergence: TokenLike,
    direction: TokenLike,
    curvature: TokenLike,
    logit_step: TokenLike,
    tie_rate: TokenLike | None = None,
) -> Token:
    """Predict the divergence after the token's own update, to second order.

        D' = D + s G + ½ s² C,   s = η·A·w,   with ties of TV:  + |s| R

    Args:
      divergence: D now, [...].
      direction: G of ``predictive_direction``.
      curvature: C of ``predictive_curvature``, of the same divergence.
      logit_step: s, signed: the effective learning rate of the logits times the token's gradient weight.
      tie_rate: R of ``tv_tie_rate``; only TV needs it.

    Returns:
      D', [...]; the expansion may be below 0 for a large step.

    Gradient: that of the formula; masks detach it.

    Raises:
      ValueError: shapes differ, or a dtype is not floating.

    References: the categorical analogue of Flow-DPPO, arXiv 2606.11025, eq. 24–27; derived here.

    Example:
      >>> args = jnp.array(0.1), jnp.array(-0.2), jnp.array(0.5), jnp.array(0.2)
      >>> round(float(predicted_divergence(*args)), 6)  # .1 − .04 + ½ · .04 · .5
      0.07
    """
    d, g, c, s, r = as_floats(
        divergence=divergence, direction=direction, curvature=curvature, logit_step=logit_step, tie_rate=tie_rate
    )
    raise_problems(shape_problems(d.shape, "divergence", direction=g, curvature=c, logit_step=s, tie_rate=r))
    value = d + s * g + 0.5 * s**2 * c
    return value if r is None else value + jnp.abs(s) * r


def predictive_curvature(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    sampled_slot: IdsLike,
    *,
    divergence: str = "kl",
    tail_log_sum_cube_pi: TokenLike | None = None,
    **known: Unpack[KnownOfTail],
) -> Token:
    """Compute the second derivative of the lumped divergence along the token's own unit step.

        C = Σ_c π_c φ_c ((g_c − h)² + v_c − v) + β_c (g_c − h)²,   φ_c = ∂D/∂π_c,  β_c = π_c² ∂²D/∂π_c²
        KL(μ‖π):  C = Σ_c π_c (g_c − h)² + (π_T − μ_T) v_T,        v_T = Σ_T π³/π_T − q²,  q = Σ_T π²/π_T

    g, h and the cells as in ``predictive_direction``; v_c is 0 on a slot and v_T on the tail, the variance of π_a
    inside it; v = Σ_c π_c ((g_c − h)² + v_c). The full KL is convex and C ≥ 0; the lumped one need not be where
    μ_T > π_T, nor need any of the others.

    Args:
      log_pi_support, log_mu_support, support_mask, sampled_slot: as in ``predictive_direction``.
      divergence: likewise. β is μ for "kl", π for "reverse_kl", 0 for "tv", ½πμ/(π + μ) for "js", 2π²/μ for "chi2",
        ¼√(πμ) for "hellinger2".
      tail_log_sum_cube_pi: log Σ_T π³ from the pass over the logits; without it v_T = 0, an even tail.
      known: ``sum_sq_pi``, ``vocab_size``, ``tail_log_pi``, ``tail_log_mu``, ``tail_log_sum_sq_pi``, as in
        ``predictive_direction``; the tail is "exact".

    Returns:
      C, [...], 0 where the sampled token has no valid slot.

    Gradient: none is meant to flow.

    Edge cases: TV has no second derivative where a cell is tied (π_c = μ_c, the same float): such cells are left out of
    C, and the first-order |s|·R of ``tv_tie_rate`` takes their place. For TV the prediction holds until a cell's
    π_c passes its μ_c; as D is then convex in that cell's mass, it is too low beyond.

    Raises:
      ValueError: as ``predictive_direction``.

    References: derived here.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.9, 0.1]))
      >>> c = predictive_curvature(pi, mu, jnp.array([True, True]), jnp.array(0), sum_sq_pi=jnp.array(0.5))
      >>> round(float(c), 6)  # two tokens: g = ±.5, h = 0
      0.25
    """
    inputs = check_inputs(log_pi_support, log_mu_support, support_mask, sampled_slot, divergence=divergence, **known)
    (log_cube,) = as_floats(tail_log_sum_cube_pi=tail_log_sum_cube_pi)
    raise_problems(shape_problems(inputs.log_pi.shape[:-1], "log_pi_support", tail_log_sum_cube_pi=log_cube))
    cells = inputs.cells(divergence)
    own = own_masses(inputs, cells, "exact")
    variance = None if log_cube is None else _tail_variance(cells, own[..., -1], log_cube.astype(own.dtype))
    return curvature(divergence, cells, own, inputs.is_sampled(), variance)


def predictive_curvature_full(
    log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike, sampled_ids: IdsLike, *, divergence: str = "kl"
) -> Token:
    """Compute the second derivative of the full divergence: ``predictive_curvature`` with every token its own cell.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.9, 0.1]))
      >>> round(float(predictive_curvature_full(pi, mu, jnp.array(0))), 6)
      0.25
    """
    cells, is_sampled = check_full_inputs(log_probs_pi, log_probs_mu, sampled_ids, divergence)
    return curvature(divergence, cells, cells.masses()[0], is_sampled)


def descent_step_limit(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    sampled_slot: IdsLike,
    **known: Unpack[KnownOfTail],
) -> Token:
    """Compute the size of the logit step below which a predicted decrease of the lumped KL(μ‖π) is certain.

        |s| < 4 |G| / ‖e_y − π‖²,   s·G < 0     ⇒     D(after the step) < D

    For the KL only: its second derivative in the logits is at most ½, whatever the policies. Those of the reverse KL
    and of χ² grow without bound as μ_a → 0, and TV has kinks; for JS and Hellinger² no such bound is derived here.

    Args:
      log_pi_support, log_mu_support, support_mask, sampled_slot: as in ``predictive_direction``.
      known: ``sum_sq_pi``, ``vocab_size``, ``tail_log_pi``, ``tail_log_mu``, ``tail_log_sum_sq_pi``, likewise; the
        tail is "exact".

    Returns:
      The limit of |s|, [...], ≥ 0; 0 where G = 0.

    Gradient: none is meant to flow.

    Raises:
      ValueError: as ``predictive_direction``.

    References: derived here.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.9, 0.1]))
      >>> limit = descent_step_limit(pi, mu, jnp.array([True, True]), jnp.array(0), sum_sq_pi=jnp.array(0.5))
      >>> round(float(limit), 5)  # G = −.4, ‖(.5, −.5)‖² = .5
      3.2
    """
    inputs = check_inputs(log_pi_support, log_mu_support, support_mask, sampled_slot, **known)
    cells, is_sampled = inputs.cells("kl"), inputs.is_sampled()
    own = own_masses(inputs, cells, "exact")
    value = direction("kl", cells, own, is_sampled)
    norm_sq = _step_norm_sq(cells, own, is_sampled)
    positive = norm_sq > 0
    return jnp.where(positive, 4 * jnp.abs(value) / jnp.where(positive, norm_sq, 1), 0)


def _tail_variance(cells: Cells, q: Token, log_sum_cube: Token) -> Token:
    """v_T = Σ_T π³/π_T − q², 0 where there is no tail."""
    valid = cells.valid[..., -1]
    mean_square = jnp.exp(jnp.where(valid, log_sum_cube - cells.log_pi[..., -1], -jnp.inf))
    return jnp.maximum(mean_square - jnp.where(valid, q, 0) ** 2, 0)


def _step_norm_sq(cells: Cells, own: Float[Array, "*B C"], is_sampled: Bool[Array, "*B C"]) -> Token:
    """‖e_y − π‖² = (1 − π_y)² + Σ_{a≠y} π_a², with 1 − π_y as the sum of the others."""
    pi, _ = cells.masses()
    others = jnp.where(is_sampled, 0, pi)
    return jnp.sum(others, axis=-1) ** 2 + jnp.sum(others * own, axis=-1)
