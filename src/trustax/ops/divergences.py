"""Divergences D(μ, π) of two policies at one token: binary, lumped (a support and its tail), full vocabulary.

``*B`` is any leading shape, ``S`` the slots of a support (K + 1), ``V`` the vocabulary. μ is the behavior policy, π the
training policy. All take natural log-probs, compute in float32 (float64 if any input is) and return nats, or a
fraction in [0, 1] for TV and Hellinger². All are ≥ 0, exactly 0 at π = μ, and differentiable with finite gradients.

Merging outcomes can only lose divergence: binary ≤ lumped ≤ full, as long as the sampled token has a slot of its own.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.ops._arguments import as_floats, name_problems, raise_problems, shape_problems, support_problems
from trustax.ops._cells import Cells, full_cells, lumped_cells, smallest_log_mass
from trustax.ops._f_divergences import F_DIVERGENCES, difference

Token = Float[Array, "*B"]
Slots = Float[Array, "*B S"]
SlotMask = Bool[Array, "*B S"]
LogProbs = Float[Array, "*B V"]


def binary_tv(log_pi: Token, log_mu: Token) -> Token:
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
    return jnp.minimum(jnp.abs(difference(log_pi, log_mu)), jnp.ones_like(log_pi))


def binary_kl(
    log_pi: Token,
    log_mu: Token,
    *,
    log_complement_pi: Token | None = None,
    log_complement_mu: Token | None = None,
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
    other_pi = _log_one_minus_exp(log_pi) if other_pi is None else other_pi
    other_mu = _log_one_minus_exp(log_mu) if other_mu is None else other_mu
    cells = full_cells(jnp.stack([log_pi, other_pi], axis=-1), jnp.stack([log_mu, other_mu], axis=-1))
    return _sum_cells("kl", cells)


def lumped_tv(
    log_pi_support: Slots,
    log_mu_support: Slots,
    support_mask: SlotMask,
    *,
    tail_log_pi: Token | None = None,
    tail_log_mu: Token | None = None,
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

    Gradient: ½ sign(π_c − μ_c)·π_c on each valid slot and on the tail; exactly 0 on the others.

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
    log_pi_support: Slots,
    log_mu_support: Slots,
    support_mask: SlotMask,
    *,
    tail_log_pi: Token | None = None,
    tail_log_mu: Token | None = None,
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

    Edge cases: a tail left out is 1 − Σ_S, clipped at 0 and, inside the logarithm, at the smallest normal float.
    μ_c = 0 adds 0; π_c = 0 < μ_c gives +inf, which counts as far. No valid slot gives 0.

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
    log_pi_support: Slots,
    log_mu_support: Slots,
    support_mask: SlotMask,
    *,
    tail_log_pi: Token | None = None,
    tail_log_mu: Token | None = None,
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


def lumped_js(
    log_pi_support: Slots,
    log_mu_support: Slots,
    support_mask: SlotMask,
    *,
    tail_log_pi: Token | None = None,
    tail_log_mu: Token | None = None,
) -> Token:
    """Compute the Jensen–Shannon divergence over the slots of a support and one cell for the rest.

        D = Σ_c ½ π_c ln(π_c/m_c) + ½ μ_c ln(μ_c/m_c),   m = ½(π + μ)

    Symmetric, at most ln 2, finite for disjoint policies. Arguments, tails and errors as in ``lumped_kl``.

    Returns:
      D in [0, ln 2] nats, [...].

    Gradient: ½ π_c ln(π_c/m_c) with respect to the log π of each valid cell.

    Edge cases: a cell where one of π, μ is 0 adds ½ ln 2 times the other. No valid slot gives 0.

    Raises:
      ValueError: as ``lumped_kl``.

    References: Lin, Divergence measures based on the Shannon entropy, 1991, eq. 4.1; the lumped form is ours.

    Example:
      >>> disjoint = jnp.array([0.0, -jnp.inf]), jnp.array([-jnp.inf, 0.0])
      >>> round(float(lumped_js(*disjoint, jnp.array([True, True]))), 6)  # ln 2
      0.693147
    """
    return lumped_divergence("js", log_pi_support, log_mu_support, support_mask, tail_log_pi, tail_log_mu)


def lumped_chi2(
    log_pi_support: Slots,
    log_mu_support: Slots,
    support_mask: SlotMask,
    *,
    tail_log_pi: Token | None = None,
    tail_log_mu: Token | None = None,
) -> Token:
    """Compute χ²(π‖μ) over the slots of a support and one cell for the rest.

        D = Σ_c (π_c − μ_c)²/μ_c = E_μ[(r − 1)²] over cells

    The variance of the importance ratio of the cells. Arguments and errors as in ``lumped_kl``.

    Returns:
      D ≥ 0, [...].

    Gradient: 2 π_c (π_c/μ_c − 1) with respect to the log π of each valid cell, for finite D.

    Edge cases: μ_c = 0 < π_c gives +inf. A tail that was not stored enters as at least 1.2e-7 (float32's ε): below
    it 1 − Σ_S is rounding, and its square over its like would be any number. No valid slot gives 0.

    Raises:
      ValueError: as ``lumped_kl``.

    References: Csiszár, Information-type measures of difference, 1967; the lumped form is ours.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.75, 0.25])), jnp.log(jnp.array([0.5, 0.5]))
      >>> round(float(lumped_chi2(pi, mu, jnp.array([True, True]))), 6)  # 2 · .25²/.5
      0.25
    """
    return lumped_divergence("chi2", log_pi_support, log_mu_support, support_mask, tail_log_pi, tail_log_mu)


def lumped_hellinger2(
    log_pi_support: Slots,
    log_mu_support: Slots,
    support_mask: SlotMask,
    *,
    tail_log_pi: Token | None = None,
    tail_log_mu: Token | None = None,
) -> Token:
    """Compute the squared Hellinger distance over the slots of a support and one cell for the rest.

        D = 1 − Σ_c √(π_c μ_c) = ½ Σ_c (√π_c − √μ_c)²

    Symmetric and bounded by 1; TV lies between D and √(2D). Arguments, tails and errors as in ``lumped_kl``.

    Returns:
      D in [0, 1], [...].

    Gradient: ½(π_c − √(π_c μ_c)) with respect to the log π of each valid cell.

    Edge cases: disjoint policies give 1. No valid slot gives 0.

    Raises:
      ValueError: as ``lumped_kl``.

    References: Csiszár, Information-type measures of difference, 1967; the lumped form is ours.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.8, 0.2])), jnp.log(jnp.array([0.2, 0.8]))
      >>> round(float(lumped_hellinger2(pi, mu, jnp.array([True, True]))), 6)  # 1 − 2·√.16
      0.2
    """
    return lumped_divergence("hellinger2", log_pi_support, log_mu_support, support_mask, tail_log_pi, tail_log_mu)


def full_tv(log_probs_pi: LogProbs, log_probs_mu: LogProbs) -> Token:
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


def full_kl(log_probs_pi: LogProbs, log_probs_mu: LogProbs) -> Token:
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


def full_reverse_kl(log_probs_pi: LogProbs, log_probs_mu: LogProbs) -> Token:
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


def full_js(log_probs_pi: LogProbs, log_probs_mu: LogProbs) -> Token:
    """Compute the Jensen–Shannon divergence over the vocabulary: ``lumped_js`` with every token its own cell.

    Example:
      >>> round(float(full_js(jnp.array([0.0, -jnp.inf]), jnp.array([-jnp.inf, 0.0]))), 6)  # ln 2
      0.693147
    """
    return full_divergence("js", log_probs_pi, log_probs_mu)


def full_chi2(log_probs_pi: LogProbs, log_probs_mu: LogProbs) -> Token:
    """Compute χ²(π‖μ) over the vocabulary: ``lumped_chi2`` with every token its own cell.

    Example:
      >>> round(float(full_chi2(jnp.log(jnp.array([0.75, 0.25])), jnp.log(jnp.array([0.5, 0.5])))), 6)
      0.25
    """
    return full_divergence("chi2", log_probs_pi, log_probs_mu)


def full_hellinger2(log_probs_pi: LogProbs, log_probs_mu: LogProbs) -> Token:
    """Compute the squared Hellinger distance over the vocabulary: ``lumped_hellinger2`` with every token its own cell.

    Example:
      >>> round(float(full_hellinger2(jnp.log(jnp.array([0.8, 0.2])), jnp.log(jnp.array([0.2, 0.8])))), 6)
      0.2
    """
    return full_divergence("hellinger2", log_probs_pi, log_probs_mu)


def lumped_divergence(
    divergence: str,
    log_pi_support: Slots,
    log_mu_support: Slots,
    support_mask: SlotMask,
    tail_log_pi: Token | None = None,
    tail_log_mu: Token | None = None,
) -> Token:
    """Compute the lumped divergence of the given name: what the ``lumped_*`` functions share.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.6, 0.25])), jnp.log(jnp.array([0.5, 0.2]))
      >>> round(float(lumped_divergence("tv", pi, mu, jnp.array([True, True]))), 6)
      0.15
    """
    log_pi, log_mu, tail_pi, tail_mu = as_floats(
        log_pi_support=log_pi_support, log_mu_support=log_mu_support, tail_log_pi=tail_log_pi, tail_log_mu=tail_log_mu
    )
    mask = jnp.asarray(support_mask)
    raise_problems(
        name_problems("divergence", divergence, F_DIVERGENCES)
        + support_problems(log_pi, log_mu, mask, {"tail_log_pi": tail_pi, "tail_log_mu": tail_mu})
    )
    smallest = F_DIVERGENCES[divergence].smallest_tail
    return _sum_cells(divergence, lumped_cells(log_pi, log_mu, mask, tail_pi, tail_mu, smallest=smallest))


def full_divergence(divergence: str, log_probs_pi: LogProbs, log_probs_mu: LogProbs) -> Token:
    """Compute the full-vocabulary divergence of the given name: what the ``full_*`` functions share.

    Example:
      >>> round(float(full_divergence("tv", jnp.log(jnp.array([0.7, 0.3])), jnp.log(jnp.array([0.5, 0.5])))), 6)
      0.2
    """
    log_pi, log_mu = as_floats(log_probs_pi=log_probs_pi, log_probs_mu=log_probs_mu)
    problems = name_problems("divergence", divergence, F_DIVERGENCES)
    problems += [] if log_pi.ndim else ["log_probs_pi is a scalar, expected shape [..., V]"]
    raise_problems(problems + shape_problems(log_pi.shape, "log_probs_pi", log_probs_mu=log_mu))
    return _sum_cells(divergence, full_cells(log_pi, log_mu))


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

FULL: dict[str, Callable[[LogProbs, LogProbs], Token]] = {
    "tv": full_tv,
    "kl": full_kl,
    "reverse_kl": full_reverse_kl,
    "js": full_js,
    "chi2": full_chi2,
    "hellinger2": full_hellinger2,
}


def _token_pair(log_pi: Token, log_mu: Token) -> tuple[Token, Token]:
    log_pi, log_mu = as_floats(log_pi=log_pi, log_mu=log_mu)
    raise_problems(shape_problems(log_pi.shape, "log_pi", log_mu=log_mu))
    return log_pi, log_mu


def _sum_cells(divergence: str, cells: Cells) -> Token:
    row = F_DIVERGENCES[divergence]
    contributions = row.cell(cells.log_pi, cells.log_mu)
    total = jnp.sum(jnp.where(cells.valid, contributions, jnp.zeros_like(contributions)), axis=-1)
    return jnp.minimum(total, jnp.asarray(row.largest, total.dtype))


def _log_one_minus_exp(log_p: Token) -> Token:
    """log(1 − p), at least the logarithm of the smallest normal float."""
    mass = -jnp.expm1(log_p)
    positive = mass > 0
    smallest = jnp.asarray(smallest_log_mass(log_p.dtype), log_p.dtype)
    return jnp.where(positive, jnp.maximum(jnp.log(jnp.where(positive, mass, jnp.ones_like(mass))), smallest), smallest)
