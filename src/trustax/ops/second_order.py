"""Second-order prediction of the lumped KL, and the step below which a predicted decrease is certain.

Both need what the sign of G does not: the step size η·A·w on the logits.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.ops._arguments import IdsLike, MaskLike, SlotsLike, TokenLike, as_floats, raise_problems, shape_problems
from trustax.ops._softmax_step import direction, relative_rates
from trustax.ops._tail import LumpedInputs, check_inputs, own_masses

Token = Float[Array, "*B"]


def predicted_divergence(
    divergence: TokenLike, direction: TokenLike, curvature: TokenLike, logit_step: TokenLike
) -> Token:
    """Predict the divergence after the token's own update, to second order.

        D' = D + s G + ½ s² C,   s = η·A·w

    Args:
      divergence: D now, [...].
      direction: G of ``predictive_direction``.
      curvature: C of ``lumped_kl_curvature``.
      logit_step: s, signed: the effective learning rate of the logits times the token's gradient weight.

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
    d, g, c, s = as_floats(divergence=divergence, direction=direction, curvature=curvature, logit_step=logit_step)
    raise_problems(shape_problems(d.shape, "divergence", direction=g, curvature=c, logit_step=s))
    return d + s * g + 0.5 * s**2 * c


def lumped_kl_curvature(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    sampled_slot: IdsLike,
    *,
    sum_sq_pi: TokenLike | None = None,
    vocab_size: int | None = None,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
    tail_log_sum_sq_pi: TokenLike | None = None,
    tail_log_sum_cube_pi: TokenLike | None = None,
) -> Token:
    """Compute the second derivative of the lumped KL(μ‖π) along the token's own unit step.

        C = Σ_c π_c (g_c − h)² + (π_T − μ_T) v_T,    v_T = Σ_T π³/π_T − q²,    q = Σ_T π²/π_T

    v_T ≥ 0 is the variance of π_a inside the tail. The full KL is convex and C ≥ 0; the lumped one need not be where
    μ_T > π_T.

    Args:
      log_pi_support, log_mu_support, support_mask, sampled_slot: as in ``predictive_direction``.
      sum_sq_pi, vocab_size, tail_log_pi, tail_log_mu, tail_log_sum_sq_pi: likewise.
      tail_log_sum_cube_pi: log Σ_T π³ from the pass over the logits; without it v_T = 0, an even tail.

    Returns:
      C, [...], 0 where the sampled token has no valid slot.

    Gradient: none is meant to flow.

    Raises:
      ValueError: as ``predictive_direction``.

    References: derived here.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.9, 0.1]))
      >>> c = lumped_kl_curvature(pi, mu, jnp.array([True, True]), jnp.array(0), sum_sq_pi=jnp.array(0.5))
      >>> round(float(c), 6)  # two tokens: g = ±.5, h = 0
      0.25
    """
    inputs = check_inputs(
        log_pi_support,
        log_mu_support,
        support_mask,
        sampled_slot,
        divergence="kl",
        tail="exact",
        sum_sq_pi=sum_sq_pi,
        vocab_size=vocab_size,
        tail_log_pi=tail_log_pi,
        tail_log_mu=tail_log_mu,
        tail_log_sum_sq_pi=tail_log_sum_sq_pi,
    )
    (tail_log_cube,) = as_floats(tail_log_sum_cube_pi=tail_log_sum_cube_pi)
    raise_problems(shape_problems(inputs.log_pi.shape[:-1], "log_pi_support", tail_log_sum_cube_pi=tail_log_cube))
    cells, is_sampled = inputs.cells("kl"), inputs.is_sampled()
    own = own_masses(inputs, cells, "exact")
    pi, rates, _ = relative_rates(cells, own, is_sampled)
    curvature = jnp.sum(pi * rates**2, axis=-1)
    if tail_log_cube is not None:
        _, mu = cells.masses()
        valid = cells.valid[..., -1]
        ratio = jnp.where(valid, jnp.exp(jnp.where(valid, tail_log_cube - cells.log_pi[..., -1], 0)), 0)
        variance = jnp.maximum(ratio - jnp.where(valid, own[..., -1] ** 2, 0), 0)
        curvature += (pi[..., -1] - mu[..., -1]) * variance
    return jnp.where(jnp.any(is_sampled & cells.valid, axis=-1), curvature, 0)


def descent_step_limit(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    sampled_slot: IdsLike,
    *,
    sum_sq_pi: TokenLike | None = None,
    vocab_size: int | None = None,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
    tail_log_sum_sq_pi: TokenLike | None = None,
) -> Token:
    """Compute the size of the logit step below which a predicted decrease of the lumped KL is certain.

        |s| < 4 |G| / ‖e_y − π‖²,   s·G < 0     ⇒     D(after the step) < D

    Args:
      log_pi_support, log_mu_support, support_mask, sampled_slot: as in ``predictive_direction``.
      sum_sq_pi, vocab_size, tail_log_pi, tail_log_mu, tail_log_sum_sq_pi: likewise; the tail is "exact".

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
    inputs = check_inputs(
        log_pi_support,
        log_mu_support,
        support_mask,
        sampled_slot,
        divergence="kl",
        tail="exact",
        sum_sq_pi=sum_sq_pi,
        vocab_size=vocab_size,
        tail_log_pi=tail_log_pi,
        tail_log_mu=tail_log_mu,
        tail_log_sum_sq_pi=tail_log_sum_sq_pi,
    )
    cells, is_sampled = inputs.cells("kl"), inputs.is_sampled()
    own = own_masses(inputs, cells, "exact")
    value = direction("kl", cells, own, is_sampled)
    norm_sq = _step_norm_sq(inputs, own, is_sampled)
    positive = norm_sq > 0
    return jnp.where(positive, 4 * jnp.abs(value) / jnp.where(positive, norm_sq, 1), 0)


def _step_norm_sq(inputs: LumpedInputs, own: Float[Array, "*B C"], is_sampled: Bool[Array, "*B C"]) -> Token:
    """‖e_y − π‖² = (1 − π_y)² + Σ_{a≠y} π_a², with 1 − π_y as the sum of the others."""
    pi, _ = inputs.cells("kl").masses()
    others = jnp.where(is_sampled, 0, pi)
    return jnp.sum(others, axis=-1) ** 2 + jnp.sum(others * own, axis=-1)
