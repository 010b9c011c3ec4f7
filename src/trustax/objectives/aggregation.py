"""From per-token losses to a sum and a weight, named by the arithmetic.

The mean is ``sum / weight``, divided once by the *global* weight, so that micro-batches and shards change nothing.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.objectives.term import Leaf, Term, number, outside, unknown
from trustax.ops.masked import masked_sum
from trustax.types import pytree_dataclass, static_field

Mode = str
MODES = (
    "token_mean",
    "sequence_mean_of_token_sums",
    "sequence_mean_of_token_means",
    "sequence_sum_over_horizon",
)
Denominator = str
DENOMINATORS = ("original", "surviving")


class SumAndWeight(NamedTuple):
    """A part of a global mean."""

    sum: Float[Array, ""]
    weight: Float[Array, ""]


@pytree_dataclass
class Aggregation(Term):
    """How per-token losses l become one number; n_i valid tokens of sequence i, B sequences with a valid token.

        token_mean                     Σ l / Σ_i n_i
        sequence_mean_of_token_sums    (1/B) Σ_i Σ_t l
        sequence_mean_of_token_means   (1/B) Σ_i (1/n_i) Σ_t l
        sequence_sum_over_horizon      (1/B) Σ_i (1/H) Σ_t l

    A sequence without a valid token adds nothing to either part. Tokens that a mask drops stay in n_i and B with
    ``denominator="original"``, and leave both with ``"surviving"``. ``horizon`` H is used by the last mode only.
    """

    mode: Mode = static_field(default="token_mean")
    denominator: Denominator = static_field(default="original")
    horizon: Leaf = 1.0

    def own_problems(self) -> list[str]:
        found = unknown("aggregation", self.mode, MODES) + unknown("denominator", self.denominator, DENOMINATORS)
        if self.mode == "sequence_sum_over_horizon":
            found += outside("horizon", self.horizon, 1.0, 1e12, "it is the number of tokens a sequence sum is over")
        return found

    @property
    def text(self) -> str:
        """The name, as the table writes it."""
        horizon = f" (H = {number(self.horizon)})" if self.mode == "sequence_sum_over_horizon" else ""
        return self.mode + horizon + (", surviving" if self.denominator == "surviving" else "")

    def __call__(
        self, losses: Float[Array, "*B T"], valid: Bool[Array, "*B T"], keep: Bool[Array, "*B T"]
    ) -> SumAndWeight:
        counted = valid & keep if self.denominator == "surviving" else valid
        per_sequence = masked_sum(losses, valid, axis=-1)
        tokens = jnp.sum(counted, axis=-1).astype(losses.dtype)
        sequences = jnp.sum(tokens > 0).astype(losses.dtype)
        if self.mode == "token_mean":
            return SumAndWeight(jnp.sum(per_sequence), jnp.sum(tokens))
        if self.mode == "sequence_mean_of_token_means":
            return SumAndWeight(jnp.sum(per_sequence / jnp.maximum(tokens, 1.0)), sequences)
        scale = jnp.asarray(self.horizon, losses.dtype) if self.mode == "sequence_sum_over_horizon" else 1.0
        return SumAndWeight(jnp.sum(per_sequence) / scale, sequences)
