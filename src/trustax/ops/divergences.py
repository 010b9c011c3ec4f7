"""Divergences D(μ, π) of two policies at one token: binary, lumped (a support and its tail), full vocabulary.

``*B`` is any leading shape, ``S`` the slots of a support (K + 1), ``V`` the vocabulary. μ is the behavior policy, π the
training policy. All take natural log-probs (one above 0 is refused where it has a value, that is outside ``jit``),
compute in float32 (float64 if any input is) and return nats, or a fraction in [0, 1] for TV and Hellinger². All are
≥ 0, exactly 0 at π = μ, and differentiable with finite gradients.

Merging outcomes can only lose divergence: binary ≤ lumped ≤ full, as long as the sampled token has a slot of its own.
In float32 this holds to rounding (1e-6 of max(D, 1)) with tails from the passes over the logits. A tail left out is
known only where it is well above the rounding of 1 − Σ_S (from about 1e-5 on: then to 1e-5); below, KL(μ‖π) takes π_T
as the smallest normal float and may exceed the full one, by at most 88 μ_T: rather too far than too near. A
``log_pi`` that was itself rounded to 0 does the same to ``binary_kl``.
"""

from collections.abc import Callable

import jax.numpy as jnp

from trustax.ops._arguments import (
    LogProbsLike,
    MaskLike,
    SlotsLike,
    TokenLike,
    above_zero,
    as_floats,
    raise_problems,
    shape_problems,
)
from trustax.ops._cells import full_cells, smallest_log_mass
from trustax.ops._f_divergences import F_DIVERGENCES, at_most, difference, size
from trustax.ops._further_divergences import (
    full_chi2,
    full_hellinger2,
    full_js,
    lumped_chi2,
    lumped_hellinger2,
    lumped_js,
)
from trustax.ops._named import Token, full_divergence, lumped_divergence, sum_cells

__all__ = [
    "DIVERGENCES",
    "FULL",
    "LUMPED",
    "binary_kl",
    "binary_tv",
    "full_chi2",
    "full_divergence",
    "full_hellinger2",
    "full_js",
    "full_kl",
    "full_reverse_kl",
    "full_tv",
    "lumped_chi2",
    "lumped_divergence",
    "lumped_hellinger2",
    "lumped_js",
    "lumped_kl",
    "lumped_reverse_kl",
    "lumped_tv",
]


def binary_tv(log_pi: TokenLike, log_mu: TokenLike) -> Token:
    """Compute the total variation of "the sampled token, or any other".

        D = |μ_y − π_y|

    A lower bound of the full TV that needs nothing but the sampled token.

    Args:
      log_pi: log π of the sampled token.
      log_mu: log μ of the sampled token.

    Returns:
      D in [0, 1].

    Gradient: sign(π_y − μ_y)·π_y with respect to ``log_pi``; 0 at a tie.

    Edge cases: −inf is the probability 0. Accurate where both probabilities round to 1 or underflow.

    Raises:
      ValueError: shapes differ, or a dtype is not floating.

    References: DPPO, arXiv 2602.04879, eq. 13.

    Example:
      >>> round(float(binary_tv(jnp.log(0.6), jnp.log(0.45))), 6)
      0.15
    """
    log_pi, log_mu = _token_pair(log_pi, log_mu)
    return at_most(size(difference(log_pi, log_mu)), 1.0)


def binary_kl(
    log_pi: TokenLike,
    log_mu: TokenLike,
    *,
    log_complement_pi: TokenLike | None = None,
    log_complement_mu: TokenLike | None = None,
) -> Token:
    """Compute KL(μ‖π) of "the sampled token, or any other".

        D = μ_y ln(μ_y/π_y) + (1 − μ_y) ln((1 − μ_y)/(1 − π_y))

    A lower bound of the full KL that needs nothing but the sampled token.

    Args:
      log_pi: log π of the sampled token.
      log_mu: log μ of the sampled token.
      log_complement_pi: log(1 − π_y) from the pass over the logits; else 1 − e^log_pi by ``expm1``.
      log_complement_mu: log(1 − μ_y), likewise.

    Returns:
      D ≥ 0 in nats.

    Gradient: (π_y − μ_y)/(1 − π_y) with respect to ``log_pi``.

    Edge cases: a ``log_pi`` of exactly 0 says only that 1 − π_y is lost in rounding. It then counts as the smallest
    normal float, so that D is large but finite where μ_y < 1, and 0 where μ_y = 1 too. π_y = 0 < μ_y gives +inf. With
    the complements given, their −inf is taken at its word.

    Raises:
      ValueError: shapes differ, or a dtype is not floating.

    References: DPPO, arXiv 2602.04879, eq. 14.

    Example:
      >>> round(float(binary_kl(jnp.log(0.5), jnp.log(0.75))), 6)  # 0.75 ln 1.5 + 0.25 ln 0.5
      0.130812
      >>> round(float(binary_kl(-0.01, 0.0)), 6)  # μ_y = 1: ln(1/π_y)
      0.01
    """
    given = as_floats(
        log_pi=log_pi, log_mu=log_mu, log_complement_pi=log_complement_pi, log_complement_mu=log_complement_mu
    )
    log_pi, log_mu, other_pi, other_mu = given
    raise_problems(
        shape_problems(log_pi.shape, "log_pi", log_mu=log_mu, log_complement_pi=other_pi, log_complement_mu=other_mu)
    )
    raise_problems(above_zero(log_pi=log_pi, log_mu=log_mu))
    other_pi = _log_one_minus_exp(log_pi) if other_pi is None else other_pi
    other_mu = _log_one_minus_exp(log_mu) if other_mu is None else other_mu
    cells = full_cells(jnp.stack([log_pi, other_pi], axis=-1), jnp.stack([log_mu, other_mu], axis=-1))
    return sum_cells("kl", cells)


def lumped_tv(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    *,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
) -> Token:
    """Compute the total variation over the slots of a support and one cell for the rest.

        D = ½ ( Σ_S |π − μ| + |π_T − μ_T| )

    A lower bound of the full TV, equal to it iff π − μ has one sign on the tail T.

    Args:
      log_pi_support: log π on the slots, [..., S].
      log_mu_support: log μ on the slots.
      support_mask: which slots are valid; the others may hold anything (NaN, ±inf) and are never read.
      tail_log_pi: log π_T, the log-mass outside the support, from the pass over the logits; [...].
      tail_log_mu: log μ_T, likewise.

    Returns:
      D in [0, 1], [...].

    Gradient: ½ sign(π_c − μ_c)·π_c on each valid slot and on the tail, 0 on a tied cell; exactly 0 on the others.

    Edge cases: a tail left out is 1 − Σ_S, clipped at 0. An empty tail adds 0. No valid slot (a padding row) gives 0.

    Raises:
      ValueError: shapes that do not agree, a mask that is not boolean, a dtype that is not floating.

    References: DPPO, arXiv 2602.04879, eq. 15.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.6, 0.25])), jnp.log(jnp.array([0.5, 0.2]))
      >>> round(float(lumped_tv(pi, mu, jnp.array([True, True]))), 6)  # ½ (.10 + .05 + |.15 − .30|)
      0.15
    """
    return lumped_divergence("tv", log_pi_support, log_mu_support, support_mask, tail_log_pi, tail_log_mu)


def lumped_kl(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    *,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
) -> Token:
    """Compute KL(μ‖π) over the slots of a support and one cell for the rest.

        D = Σ_S μ ln(μ/π) + μ_T ln(μ_T/π_T)

    A lower bound of the full KL, equal to it iff π/μ is constant on the tail T.

    Args:
      log_pi_support: log π on the slots, [..., S].
      log_mu_support: log μ on the slots.
      support_mask: which slots are valid; the others may hold anything and are never read.
      tail_log_pi: log π_T from the pass over the logits, [...].
      tail_log_mu: log μ_T, likewise. A tail without both is clipped and can decide a mask: store them.

    Returns:
      D ≥ 0 in nats, [...].

    Gradient: π_c − μ_c with respect to the log π of each valid cell: along a softmax that is the gradient of the
    formula above, because Σ π_c stays 1.

    Edge cases: a tail left out is 1 − Σ_S, clipped at 0 and, inside the logarithm, at the smallest normal float; D may
    then exceed the full KL by up to 88 μ_T in float32. μ_c = 0 adds 0; π_c = 0 < μ_c gives +inf, which counts as far.
    No valid slot gives 0.

    Raises:
      ValueError: shapes that do not agree, a mask that is not boolean, a dtype that is not floating.

    References: DPPO, arXiv 2602.04879, eq. 16.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.6, 0.25])), jnp.log(jnp.array([0.5, 0.2]))
      >>> round(float(lumped_kl(pi, mu, jnp.array([True, True]))), 6)  # .5 ln(.5/.6) + .2 ln(.2/.25) + .3 ln(.3/.15)
      0.072155
    """
    return lumped_divergence("kl", log_pi_support, log_mu_support, support_mask, tail_log_pi, tail_log_mu)


def lumped_reverse_kl(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    *,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
) -> Token:
    """Compute KL(π‖μ) over the slots of a support and one cell for the rest.

        D = Σ_S π ln(π/μ) + π_T ln(π_T/μ_T)

    A lower bound of the full KL(π‖μ). Arguments, tails and errors as in ``lumped_kl``.

    Returns:
      D ≥ 0 in nats, [...].

    Gradient: π_c ln(π_c/μ_c) with respect to the log π of each valid cell, the constant of φ left out.

    Edge cases: π_c = 0 adds 0; μ_c = 0 < π_c gives +inf. No valid slot gives 0.

    Raises:
      ValueError: as ``lumped_kl``.

    References: the reverse form of DPPO, arXiv 2602.04879, eq. 16; derived here.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.5, 0.2])), jnp.log(jnp.array([0.6, 0.25]))
      >>> round(float(lumped_reverse_kl(pi, mu, jnp.array([True, True]))), 6)
      0.072155
    """
    return lumped_divergence("reverse_kl", log_pi_support, log_mu_support, support_mask, tail_log_pi, tail_log_mu)


def full_tv(log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike) -> Token:
    """Compute the total variation over the vocabulary.

        D = ½ Σ_a |π_a − μ_a|

    Args:
      log_probs_pi: normalised log-probs of π, [..., V].
      log_probs_mu: normalised log-probs of μ.

    Returns:
      D in [0, 1], [...].

    Gradient: ½ sign(π_a − μ_a)·π_a; 0 at ties.

    Edge cases: −inf is the probability 0.

    Raises:
      ValueError: shapes differ, or a dtype is not floating.

    References: DPPO, arXiv 2602.04879, Theorem 3.2 bounds the policy improvement by its maximum.

    Example:
      >>> round(float(full_tv(jnp.log(jnp.array([0.7, 0.2, 0.1])), jnp.log(jnp.array([0.5, 0.25, 0.25])))), 6)
      0.2
    """
    return full_divergence("tv", log_probs_pi, log_probs_mu)


def full_kl(log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike) -> Token:
    """Compute KL(μ‖π) over the vocabulary.

        D = Σ_a μ_a ln(μ_a/π_a)

    Arguments and errors as in ``full_tv``.

    Returns:
      D ≥ 0 in nats, [...].

    Gradient: π − μ with respect to the logits of π, finite where a probability of either is 0.

    Edge cases: μ_a = 0 adds 0, whatever π_a is; π_a = 0 < μ_a gives +inf.

    Raises:
      ValueError: as ``full_tv``.

    References: PDM, arXiv 2607.10848: the divergence whose change the predictive mask predicts.

    Example:
      >>> round(float(full_kl(jnp.log(jnp.array([0.25, 0.75])), jnp.log(jnp.array([0.5, 0.5])))), 6)  # ½ ln(4/3)
      0.143841
    """
    return full_divergence("kl", log_probs_pi, log_probs_mu)


def full_reverse_kl(log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike) -> Token:
    """Compute KL(π‖μ) over the vocabulary.

        D = Σ_a π_a ln(π_a/μ_a)

    Arguments and errors as in ``full_tv``.

    Returns:
      D ≥ 0 in nats, [...].

    Gradient: π_a (ln(π_a/μ_a) − D) with respect to the logits of π.

    Edge cases: π_a = 0 adds 0; μ_a = 0 < π_a gives +inf.

    Raises:
      ValueError: as ``full_tv``.

    References: Kullback and Leibler, On information and sufficiency, 1951.

    Example:
      >>> round(float(full_reverse_kl(jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.25, 0.75])))), 6)
      0.143841
    """
    return full_divergence("reverse_kl", log_probs_pi, log_probs_mu)


DIVERGENCES: tuple[str, ...] = tuple(F_DIVERGENCES)
"""The names that ``lumped_divergence``, ``full_divergence`` and the directions accept."""

LUMPED: dict[str, Callable[..., Token]] = {
    "tv": lumped_tv,
    "kl": lumped_kl,
    "reverse_kl": lumped_reverse_kl,
    "js": lumped_js,
    "chi2": lumped_chi2,
    "hellinger2": lumped_hellinger2,
}

FULL: dict[str, Callable[[LogProbsLike, LogProbsLike], Token]] = {
    "tv": full_tv,
    "kl": full_kl,
    "reverse_kl": full_reverse_kl,
    "js": full_js,
    "chi2": full_chi2,
    "hellinger2": full_hellinger2,
}


def _token_pair(log_pi: TokenLike, log_mu: TokenLike) -> tuple[Token, Token]:
    log_pi, log_mu = as_floats(log_pi=log_pi, log_mu=log_mu)
    raise_problems(shape_problems(log_pi.shape, "log_pi", log_mu=log_mu))
    raise_problems(above_zero(log_pi=log_pi, log_mu=log_mu))
    return log_pi, log_mu


def _log_one_minus_exp(log_p: Token) -> Token:
    """log(1 − p), at least the logarithm of the smallest normal float."""
    mass = -jnp.expm1(log_p)
    positive = mass > 0
    smallest = jnp.asarray(smallest_log_mass(log_p.dtype), log_p.dtype)
    return jnp.where(positive, jnp.maximum(jnp.log(jnp.where(positive, mass, jnp.ones_like(mass))), smallest), smallest)
