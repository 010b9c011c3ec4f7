"""Further divergences: Jensen–Shannon, χ²(π‖μ) and squared Hellinger, in lumped and full form.

Conventions as in ``divergences``, which exports them.
"""

from trustax.ops._arguments import LogProbsLike, MaskLike, SlotsLike, TokenLike
from trustax.ops._named import Token, full_divergence, lumped_divergence


def lumped_js(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    *,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
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
      >>> import jax.numpy as jnp
      >>> disjoint = jnp.array([0.0, -jnp.inf]), jnp.array([-jnp.inf, 0.0])
      >>> round(float(lumped_js(*disjoint, jnp.array([True, True]))), 6)  # ln 2
      0.693147
    """
    return lumped_divergence("js", log_pi_support, log_mu_support, support_mask, tail_log_pi, tail_log_mu)


def lumped_chi2(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    *,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
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
      >>> import jax.numpy as jnp
      >>> pi, mu = jnp.log(jnp.array([0.75, 0.25])), jnp.log(jnp.array([0.5, 0.5]))
      >>> round(float(lumped_chi2(pi, mu, jnp.array([True, True]))), 6)  # 2 · .25²/.5
      0.25
    """
    return lumped_divergence("chi2", log_pi_support, log_mu_support, support_mask, tail_log_pi, tail_log_mu)


def lumped_hellinger2(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    *,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
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
      >>> import jax.numpy as jnp
      >>> pi, mu = jnp.log(jnp.array([0.8, 0.2])), jnp.log(jnp.array([0.2, 0.8]))
      >>> round(float(lumped_hellinger2(pi, mu, jnp.array([True, True]))), 6)  # 1 − 2·√.16
      0.2
    """
    return lumped_divergence("hellinger2", log_pi_support, log_mu_support, support_mask, tail_log_pi, tail_log_mu)


def full_js(log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike) -> Token:
    """Compute the Jensen–Shannon divergence over the vocabulary: ``lumped_js`` with every token its own cell.

    Example:
      >>> import jax.numpy as jnp
      >>> round(float(full_js(jnp.array([0.0, -jnp.inf]), jnp.array([-jnp.inf, 0.0]))), 6)  # ln 2
      0.693147
    """
    return full_divergence("js", log_probs_pi, log_probs_mu)


def full_chi2(log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike) -> Token:
    """Compute χ²(π‖μ) over the vocabulary: ``lumped_chi2`` with every token its own cell.

    Example:
      >>> import jax.numpy as jnp
      >>> round(float(full_chi2(jnp.log(jnp.array([0.75, 0.25])), jnp.log(jnp.array([0.5, 0.5])))), 6)
      0.25
    """
    return full_divergence("chi2", log_probs_pi, log_probs_mu)


def full_hellinger2(log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike) -> Token:
    """Compute the squared Hellinger distance over the vocabulary: ``lumped_hellinger2`` with every token its own cell.

    Example:
      >>> import jax.numpy as jnp
      >>> round(float(full_hellinger2(jnp.log(jnp.array([0.8, 0.2])), jnp.log(jnp.array([0.2, 0.8])))), 6)
      0.2
    """
    return full_divergence("hellinger2", log_probs_pi, log_probs_mu)
