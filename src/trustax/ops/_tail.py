"""How the trainer's mass is spread over the tail: the one number q that the four tail estimators disagree about."""

from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from trustax.ops._arguments import (
    above_zero,
    as_floats,
    name_problems,
    raise_problems,
    shape_problems,
    support_problems,
)
from trustax.ops._cells import Cells, complement_mass, full_cells, lumped_cells, one_hot
from trustax.ops._f_divergences import F_DIVERGENCES

TAILS = ("exact", "aggregated", "uniform", "none")


class KnownOfTail(TypedDict, total=False):
    """What may be known of the tail, as keyword arguments: see ``predictive_direction``."""

    sum_sq_pi: ArrayLike | None
    vocab_size: int | None
    tail_log_pi: ArrayLike | None
    tail_log_mu: ArrayLike | None
    tail_log_sum_sq_pi: ArrayLike | None


class LumpedInputs(NamedTuple):
    """The validated arguments that all functions on a support share, in one dtype."""

    log_pi: Float[Array, "*B S"]
    log_mu: Float[Array, "*B S"]
    mask: Bool[Array, "*B S"]
    sampled_slot: Int[Array, "*B"]
    sum_sq_pi: Float[Array, "*B"] | None
    tail_log_pi: Float[Array, "*B"] | None
    tail_log_mu: Float[Array, "*B"] | None
    tail_log_sum_sq_pi: Float[Array, "*B"] | None
    vocab_size: int | None

    def tail_count(self) -> Float[Array, "*B"] | None:
        """N = V − |S|, the number of tokens in the tail; None where V is not known."""
        if self.vocab_size is None:
            return None
        return self.vocab_size - jnp.sum(self.mask, axis=-1).astype(self.log_pi.dtype)

    def cells(self, divergence: str) -> Cells:
        """The support's slots and its tail."""
        count = self.tail_count()
        return lumped_cells(
            self.log_pi,
            self.log_mu,
            self.mask,
            self.tail_log_pi,
            self.tail_log_mu,
            has_tail=None if count is None else count > 0,
            smallest=F_DIVERGENCES[divergence].smallest_tail,
        )

    def is_sampled(self) -> Bool[Array, "*B C"]:
        """True on the sampled token's cell; a slot out of range is clipped into it."""
        slots = self.log_pi.shape[-1]
        return one_hot(jnp.clip(self.sampled_slot, 0, slots - 1), slots + 1)


def check_inputs(
    log_pi_support: ArrayLike,
    log_mu_support: ArrayLike,
    support_mask: ArrayLike,
    sampled_slot: ArrayLike,
    *,
    divergence: str = "kl",
    tail: str = "exact",
    sum_sq_pi: ArrayLike | None = None,
    vocab_size: int | None = None,
    tail_log_pi: ArrayLike | None = None,
    tail_log_mu: ArrayLike | None = None,
    tail_log_sum_sq_pi: ArrayLike | None = None,
) -> LumpedInputs:
    """Bring the arguments to one dtype; raise one error with everything that is wrong with them."""
    log_pi, log_mu, sum_sq, tail_pi, tail_mu, tail_sum_sq = as_floats(
        log_pi_support=log_pi_support,
        log_mu_support=log_mu_support,
        sum_sq_pi=sum_sq_pi,
        tail_log_pi=tail_log_pi,
        tail_log_mu=tail_log_mu,
        tail_log_sum_sq_pi=tail_log_sum_sq_pi,
    )
    mask, slot = jnp.asarray(support_mask), jnp.asarray(sampled_slot)
    problems = name_problems("divergence", divergence, F_DIVERGENCES) + name_problems("tail", tail, TAILS)
    problems += support_problems(
        log_pi,
        log_mu,
        mask,
        {
            "sampled_slot": slot,
            "sum_sq_pi": sum_sq,
            "tail_log_pi": tail_pi,
            "tail_log_mu": tail_mu,
            "tail_log_sum_sq_pi": tail_sum_sq,
        },
    )
    if not jnp.issubdtype(slot.dtype, jnp.integer):
        problems.append(f"sampled_slot is {slot.dtype}, expected an integer dtype")
    if vocab_size is not None and vocab_size < 1:
        problems.append(f"vocab_size is {vocab_size}, expected at least 1")
    if tail == "exact" and sum_sq is None and tail_sum_sq is None:
        problems.append("tail='exact' needs tail_log_sum_sq_pi (better) or sum_sq_pi: pass one, or choose another tail")
    if tail == "uniform" and vocab_size is None:
        problems.append("tail='uniform' needs vocab_size, the number of real tokens: pass it, or choose another tail")
    raise_problems(problems)
    raise_problems(above_zero(mask, log_pi_support=log_pi, log_mu_support=log_mu))
    # Directions decide masks; a mask has no gradient, and the kinks inside would make one NaN.
    detached = jax.lax.stop_gradient((log_pi, log_mu, mask, slot, sum_sq, tail_pi, tail_mu, tail_sum_sq))
    return LumpedInputs(*detached, vocab_size)


def check_full_inputs(
    log_probs_pi: ArrayLike, log_probs_mu: ArrayLike, sampled_ids: ArrayLike, divergence: str
) -> tuple[Cells, Bool[Array, "*B V"]]:
    """The vocabulary as cells, and the sampled one; raise one error with everything that is wrong."""
    log_pi, log_mu = as_floats(log_probs_pi=log_probs_pi, log_probs_mu=log_probs_mu)
    ids = jnp.asarray(sampled_ids)
    problems = name_problems("divergence", divergence, F_DIVERGENCES)
    problems += [] if log_pi.ndim else ["log_probs_pi is a scalar, expected shape [..., V]"]
    problems += shape_problems(log_pi.shape, "log_probs_pi", log_probs_mu=log_mu)
    problems += shape_problems(log_pi.shape[:-1], "log_probs_pi without its last axis", sampled_ids=ids)
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        problems.append(f"sampled_ids is {ids.dtype}, expected an integer dtype")
    raise_problems(problems)
    raise_problems(above_zero(log_probs_pi=log_pi, log_probs_mu=log_mu))
    return full_cells(log_pi, log_mu), one_hot(jnp.clip(ids, 0, log_pi.shape[-1] - 1), log_pi.shape[-1])


def own_masses(inputs: LumpedInputs, cells: Cells, tail: str) -> Float[Array, "*B C"]:
    """π of each slot and, last, q = Σ_T π²/π_T of the tail by the named estimator."""
    pi, _ = cells.masses()
    tail_pi = pi[..., -1]
    if tail == "none":
        spread = jnp.zeros_like(tail_pi)
    elif tail == "aggregated":
        spread = tail_pi
    elif tail == "uniform":
        count = inputs.tail_count()
        assert count is not None, "check_inputs refuses tail='uniform' without vocab_size"
        spread = tail_pi / jnp.maximum(count, 1)
    elif inputs.tail_log_sum_sq_pi is not None:
        log_ratio = jnp.where(cells.valid[..., -1], inputs.tail_log_sum_sq_pi - cells.log_pi[..., -1], -jnp.inf)
        spread = jnp.minimum(jnp.exp(log_ratio), tail_pi)
    else:
        spread = _safe_divide(tail_sum_sq(inputs, tail_pi), tail_pi)
    return pi.at[..., -1].set(spread)


def tail_sum_sq(inputs: LumpedInputs, tail_pi: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """Σ_T π² where only Σπ² over the vocabulary is known, clipped into what is possible: [π_T²/N, π_T²]."""
    assert inputs.sum_sq_pi is not None, "check_inputs refuses tail='exact' without Σπ²"
    # (Σπ² − 1) is exact where Σπ² is close to 1, and so is 1 − Σ_S π²: their sum is better than Σπ² − Σ_S π².
    log_pi = jnp.where(inputs.mask, inputs.log_pi, 0)
    left = (inputs.sum_sq_pi - 1) + complement_mass(log_pi, inputs.mask, power=2)
    count = inputs.tail_count()
    least = jnp.zeros_like(tail_pi) if count is None else tail_pi**2 / jnp.maximum(count, 1)
    return jnp.clip(left, least, tail_pi**2)


def _safe_divide(numerator: Array, denominator: Array) -> Array:
    positive = denominator > 0
    return jnp.where(positive, numerator / jnp.where(positive, denominator, 1), 0)
