"""A divergence by name: what the functions of ``divergences`` share."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.ops._arguments import (
    LogProbsLike,
    MaskLike,
    SlotsLike,
    TokenLike,
    above_zero,
    as_floats,
    name_problems,
    raise_problems,
    shape_problems,
    support_problems,
)
from trustax.ops._cells import Cells, full_cells, lumped_cells
from trustax.ops._f_divergences import F_DIVERGENCES, at_most

Token = Float[Array, "*B"]


def lumped_divergence(
    divergence: str,
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    tail_log_pi: TokenLike | None = None,
    tail_log_mu: TokenLike | None = None,
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
    raise_problems(above_zero(mask, log_pi_support=log_pi, log_mu_support=log_mu))
    smallest = F_DIVERGENCES[divergence].smallest_tail
    return sum_cells(divergence, lumped_cells(log_pi, log_mu, mask, tail_pi, tail_mu, smallest=smallest))


def full_divergence(divergence: str, log_probs_pi: LogProbsLike, log_probs_mu: LogProbsLike) -> Token:
    """Compute the full-vocabulary divergence of the given name: what the ``full_*`` functions share.

    Example:
      >>> round(float(full_divergence("tv", jnp.log(jnp.array([0.7, 0.3])), jnp.log(jnp.array([0.5, 0.5])))), 6)
      0.2
    """
    log_pi, log_mu = as_floats(log_probs_pi=log_probs_pi, log_probs_mu=log_probs_mu)
    problems = name_problems("divergence", divergence, F_DIVERGENCES)
    problems += [] if log_pi.ndim else ["log_probs_pi is a scalar, expected shape [..., V]"]
    raise_problems(problems + shape_problems(log_pi.shape, "log_probs_pi", log_probs_mu=log_mu))
    raise_problems(above_zero(log_probs_pi=log_pi, log_probs_mu=log_mu))
    return sum_cells(divergence, full_cells(log_pi, log_mu))


def sum_cells(divergence: str, cells: Cells) -> Token:
    """D of the given name over cells."""
    row = F_DIVERGENCES[divergence]
    contributions = row.cell(cells.log_pi, cells.log_mu)
    total = jnp.sum(jnp.where(cells.valid, contributions, jnp.zeros_like(contributions)), axis=-1)
    return at_most(total, row.largest)
