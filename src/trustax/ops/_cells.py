"""The categories over which a divergence is a sum: the slots of a support and, last, one cell for its complement.

``C`` counts cells. In lumped form ``C = S + 1`` and the last cell is the tail T; in full form the cells are the
vocabulary. Whatever stands in an invalid cell is replaced here, before any ``exp``: nothing after this module reads it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


class Cells(NamedTuple):
    """Log-probs of both policies on every cell; 0 in both where the cell is not valid."""

    log_pi: Float[Array, "*B C"]
    log_mu: Float[Array, "*B C"]
    valid: Bool[Array, "*B C"]

    def masses(self) -> tuple[Float[Array, "*B C"], Float[Array, "*B C"]]:
        """π and μ of every cell, 0 where it is not valid."""
        zero = jnp.zeros((), self.log_pi.dtype)
        return jnp.where(self.valid, jnp.exp(self.log_pi), zero), jnp.where(self.valid, jnp.exp(self.log_mu), zero)


def smallest_log_mass(dtype: np.dtype) -> float:
    """Stand-in for the logarithm of a mass that is 0, so that a log-ratio stays finite: −87.3 in float32."""
    return float(np.log(np.finfo(dtype).tiny))


def full_cells(log_pi: Float[Array, "*B V"], log_mu: Float[Array, "*B V"]) -> Cells:
    """Every token of the vocabulary is its own cell."""
    return Cells(log_pi, log_mu, jnp.ones(log_pi.shape, bool))


def lumped_cells(
    log_pi: Float[Array, "*B S"],
    log_mu: Float[Array, "*B S"],
    mask: Bool[Array, "*B S"],
    tail_log_pi: Float[Array, "*B"] | None,
    tail_log_mu: Float[Array, "*B"] | None,
    *,
    has_tail: Bool[Array, "*B"] | None = None,
    smallest: float | None = None,
) -> Cells:
    """The slots of a support and the tail as the last cell.

    A tail that was not stored is what the support leaves of 1. That difference can be 0 by rounding alone, so it
    enters the logarithm as at least e^``smallest``. The tail cell is not valid where the support is empty (a padding
    row), where both tails are empty, or where ``has_tail`` is false.
    """
    zero = jnp.zeros((), log_pi.dtype)
    log_pi = jnp.where(mask, log_pi, zero)
    log_mu = jnp.where(mask, log_mu, zero)
    valid_tail = jnp.any(mask, axis=-1)
    if has_tail is not None:
        valid_tail &= has_tail
    stored = tail_log_pi is not None and tail_log_mu is not None
    tail_log_pi = _complement(log_pi, mask) if tail_log_pi is None else tail_log_pi
    tail_log_mu = _complement(log_mu, mask) if tail_log_mu is None else tail_log_mu
    valid_tail &= (tail_log_pi > -jnp.inf) | (tail_log_mu > -jnp.inf)
    tail_log_pi = jnp.where(valid_tail, tail_log_pi, zero)
    tail_log_mu = jnp.where(valid_tail, tail_log_mu, zero)
    if not stored:  # then a mass of 0 says only that it is lost in the rounding of a sum
        floor = jnp.asarray(smallest_log_mass(log_pi.dtype) if smallest is None else smallest, log_pi.dtype)
        tail_log_pi, tail_log_mu = jnp.maximum(tail_log_pi, floor), jnp.maximum(tail_log_mu, floor)

    def append(slots: Array, tail: Array) -> Array:
        return jnp.concatenate([slots, tail[..., None]], axis=-1)

    return Cells(append(log_pi, tail_log_pi), append(log_mu, tail_log_mu), append(mask, valid_tail))


def complement_mass(log_probs: Float[Array, "*B S"], mask: Bool[Array, "*B S"], power: int = 1) -> Float[Array, "*B"]:
    """1 − Σ_S p^power, not clipped. The largest term leaves 1 by ``expm1``: exact where it is close to 1."""
    if log_probs.shape[-1] == 0:
        return jnp.ones(log_probs.shape[:-1], log_probs.dtype)
    zero = jnp.zeros((), log_probs.dtype)
    exponent = log_probs * power
    is_largest = one_hot(jnp.argmax(jnp.where(mask, exponent, -jnp.inf), axis=-1), log_probs.shape[-1])
    largest = jnp.sum(jnp.where(is_largest & mask, jnp.expm1(exponent), zero), axis=-1)
    rest = jnp.sum(jnp.where(mask & ~is_largest, jnp.exp(exponent), zero), axis=-1)
    return jnp.where(jnp.any(mask, axis=-1), -largest, jnp.ones_like(largest)) - rest


def one_hot(index: Array, size: int) -> Bool[Array, "*B C"]:
    """True at ``index`` of the last axis."""
    return jax.lax.broadcasted_iota(index.dtype, (*index.shape, size), index.ndim) == index[..., None]


def _complement(log_probs: Float[Array, "*B S"], mask: Bool[Array, "*B S"]) -> Float[Array, "*B"]:
    """log(1 − Σ_S p), −inf where nothing is left."""
    mass = complement_mass(log_probs, mask)
    positive = mass > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, mass, jnp.ones_like(mass))), -jnp.inf)
