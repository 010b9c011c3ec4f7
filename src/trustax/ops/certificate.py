"""The sign of the full-vocabulary direction, proven from a top-K support, or left undecided."""

from typing import Unpack

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from trustax.ops._arguments import IdsLike, MaskLike, SlotsLike, TokenLike, as_floats, raise_problems, shape_problems
from trustax.ops._cells import Cells
from trustax.ops._softmax_step import local_and_head
from trustax.ops._tail import KnownOfTail, LumpedInputs, check_inputs, tail_sum_sq

Token = Float[Array, "*B"]


def direction_certificate(
    log_pi_support: SlotsLike,
    log_mu_support: SlotsLike,
    support_mask: MaskLike,
    sampled_slot: IdsLike,
    *,
    tail_log_max_pi: TokenLike | None = None,
    margin: float | None = None,
    **known: Unpack[KnownOfTail],
) -> Int[Array, "*B"]:
    """Prove the sign of the full-vocabulary KL's direction, where the tail cannot change it.

        G = local + head + τ,    −T2 ≤ τ ≤ min( μ_K π_T,  π_max μ_T,  √(T2 μ_K μ_T) ) − T2

    τ = Σ_T π(μ − π) is all that the support does not know. T2 = Σ_T π², μ_K is the K-th largest μ, π_max the tail's
    largest π (at most √T2). The sign is proven if both ends of the bracket have it.

    Args:
      log_pi_support, log_mu_support, support_mask, sampled_slot: as in ``predictive_direction``. Slots 0..S−2 must
        hold TopK(μ), the last one the sampled token if it is not among them (the layout of ``Support``).
      tail_log_max_pi: log π_max from the pass over the logits; sharpens the bound.
      margin: how far from 0 an end must be, against rounding; 1e-6 in float32, 1e-12 in float64.
      known: ``sum_sq_pi``, ``vocab_size``, ``tail_log_pi``, ``tail_log_mu``, ``tail_log_sum_sq_pi``, as in
        ``predictive_direction``.

    Returns:
      int32: +1 or −1 proven, 0 undecided.

    Gradient: none.

    Edge cases: without stored tails, T2 is known only to ``margin`` and the bounds are widened by it. No valid slot
    gives 0.

    Raises:
      ValueError: as ``predictive_direction``; T2 needs ``tail_log_sum_sq_pi`` or ``sum_sq_pi``.

    References: derived here; it certifies the direction of PDM, arXiv 2607.10848.

    Example:
      >>> pi, mu = jnp.log(jnp.array([0.4, 0.4, 0.4])), jnp.log(jnp.array([0.5, 0.2, 0.2]))
      >>> int(direction_certificate(pi, mu, jnp.array([True, True, False]), jnp.array(0), sum_sq_pi=jnp.array(0.34)))
      -1
    """
    inputs = check_inputs(log_pi_support, log_mu_support, support_mask, sampled_slot, **known)
    (tail_log_max_pi,) = as_floats(tail_log_max_pi=tail_log_max_pi)
    raise_problems(shape_problems(inputs.log_pi.shape[:-1], "log_pi_support", tail_log_max_pi=tail_log_max_pi))
    dtype = inputs.log_pi.dtype
    margin = (1e-6 if dtype == jnp.float32 else 1e-12) if margin is None else margin
    cells = inputs.cells("kl")
    inside = local_and_head(cells, inputs.is_sampled())
    lower, upper = tail_bracket(inputs, cells, tail_log_max_pi, margin)
    proven = jnp.where(inside + lower > margin, 1, jnp.where(inside + upper < -margin, -1, 0)).astype(jnp.int32)
    sampled_is_valid = jnp.any(inputs.is_sampled() & cells.valid, axis=-1)
    return jnp.where(sampled_is_valid, proven, 0)


def tail_bracket(
    inputs: LumpedInputs, cells: Cells, tail_log_max_pi: Token | None, margin: float
) -> tuple[Token, Token]:
    """The interval that Σ_T π(μ − π) must lie in."""
    pi, mu = cells.masses()
    tail_pi, tail_mu = pi[..., -1], mu[..., -1]
    least_sq, most_sq = _sum_sq_bounds(inputs, cells, tail_pi, margin)
    top_k = inputs.mask[..., :-1]
    kth_mu = jnp.min(jnp.where(top_k, mu[..., : top_k.shape[-1]], 1), axis=-1, initial=1)
    max_pi = jnp.sqrt(most_sq) if tail_log_max_pi is None else _masked_exp(tail_log_max_pi, cells.valid[..., -1])
    product = jnp.minimum(kth_mu * tail_pi, jnp.minimum(max_pi * tail_mu, jnp.sqrt(most_sq * kth_mu * tail_mu)))
    return -most_sq, product - least_sq


def _sum_sq_bounds(inputs: LumpedInputs, cells: Cells, tail_pi: Token, margin: float) -> tuple[Token, Token]:
    """The least and the most that Σ_T π² can be."""
    if inputs.tail_log_sum_sq_pi is not None:
        exact = jnp.minimum(_masked_exp(inputs.tail_log_sum_sq_pi, cells.valid[..., -1]), tail_pi**2)
        return exact, exact
    around = tail_sum_sq(inputs, tail_pi)
    return jnp.maximum(around - margin, 0), jnp.minimum(around + margin, tail_pi**2)


def _masked_exp(log_mass: Token, valid: Bool[Array, "*B"]) -> Token:
    return jnp.where(valid, jnp.exp(jnp.where(valid, log_mass, 0)), 0)
