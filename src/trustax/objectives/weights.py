"""The surrogate weight of a kept token: what multiplies A · ∇log π. All are detached and 1 where π is its anchor."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from trustax.objectives.ratio import BEHAVIOR, LogRatio
from trustax.objectives.term import Leaf, Term, number, outside
from trustax.objectives.view import TokenView
from trustax.ops.ratios import prefix_min_log_ratio, sequence_mean_log_ratio
from trustax.types import pytree_dataclass, static_field

INFINITY = float("inf")


class WeightReading(NamedTuple):
    """A weight, and where a cap or a floor decided it."""

    value: Float[Array, "*B T"]
    capped: Bool[Array, "*B T"]


class Weight(Term):
    """Base: ``__call__(view) -> WeightReading``."""

    @property
    def text(self) -> str:
        """The weight, as the table writes it."""
        raise NotImplementedError

    def __call__(self, view: TokenView) -> WeightReading:
        raise NotImplementedError


def _clip(value: Float[Array, "*B T"], low: Leaf, high: Leaf) -> WeightReading:
    low, high = jnp.asarray(low, value.dtype), jnp.asarray(high, value.dtype)
    return WeightReading(jnp.clip(value, low, high), (value < low) | (value > high))


def _clip_problems(low: Leaf, high: Leaf) -> list[str]:
    """A weight below 0 would turn the gradient round, a lower end above the upper one is a constant; −∞ is no floor."""
    found = outside("the cap on the weight", high, 1e-30, INFINITY, "a cap is above 0, else every token's weight is 0")
    if found or isinstance(low, Tracer) or isinstance(high, Tracer) or low == -INFINITY:
        return found
    return outside("the floor of the weight", low, 0.0, float(np.asarray(high)), "it lies between 0 and the cap")


@pytree_dataclass
class ClippedRatio(Weight):
    """``clip(ratio, low, high)``: with the defaults the ratio itself, with ``high=C`` the capped weight min(r, C)."""

    ratio: LogRatio = BEHAVIOR
    low: Leaf = 0.0
    high: Leaf = INFINITY

    def own_problems(self) -> list[str]:
        return _clip_problems(self.low, self.high)

    @property
    def text(self) -> str:
        low, high = number(self.low), number(self.high)
        if low == "0":
            return self.ratio.symbol if high == "inf" else f"min({self.ratio.symbol}, {high})"
        return f"clip({self.ratio.symbol}, {low}, {high})"

    def __call__(self, view: TokenView) -> WeightReading:
        return _clip(jnp.exp(self.ratio(view)), self.low, self.high)


@pytree_dataclass
class MinimumPrefix(Weight):
    """``clip(b_t r_t, low, high)``, b_t the smallest ratio before t. MinPRO, arXiv 2601.22718.

    With ``cap_at_one`` the running minimum starts from 1, so that b ≤ 1; else b_2 = r_1 may exceed 1.
    """

    ratio: LogRatio = BEHAVIOR
    low: Leaf = 0.0
    high: Leaf = INFINITY
    cap_at_one: bool = static_field(default=False)

    def own_problems(self) -> list[str]:
        return _clip_problems(self.low, self.high)

    @property
    def text(self) -> str:
        return f"clip(min_(j<t) r_j · r_t, {number(self.low)}, {number(self.high)})"

    def __call__(self, view: TokenView) -> WeightReading:
        tokens = self.ratio(view)
        smallest = prefix_min_log_ratio(tokens, view.valid, cap_at_one=self.cap_at_one)
        return _clip(jnp.exp(smallest + tokens), self.low, self.high)


@pytree_dataclass
class ClampedGeometricMean(Weight):
    """``R = exp(mean_t lc_t)``, lc = min(l, high) where A > 0 and max(l, −low) elsewhere. GMPO, arXiv 2507.20673."""

    ratio: LogRatio = BEHAVIOR
    low: Leaf = 0.4
    high: Leaf = 0.4

    @property
    def text(self) -> str:
        return f"exp(mean_t clamp(log {self.ratio.symbol}; {number(self.low)}, {number(self.high)}))"

    def __call__(self, view: TokenView) -> WeightReading:
        tokens = self.ratio(view)
        above, below = view.full(self.high), -view.full(self.low)
        clamped = jnp.where(view.advantages > 0, jnp.minimum(tokens, above), jnp.maximum(tokens, below))
        mean = view.per_sequence(sequence_mean_log_ratio(clamped, view.valid))
        return WeightReading(jnp.exp(mean), clamped != tokens)


@pytree_dataclass
class ReciprocalOnPositive(Weight):
    """``min(1/r, cap)`` where A > 0, ``min(r, cap)`` elsewhere: lifts unlikely tokens of good answers. ASPO."""

    ratio: LogRatio = BEHAVIOR
    cap: Leaf = 3.0

    def own_problems(self) -> list[str]:
        return _clip_problems(0.0, self.cap)

    @property
    def text(self) -> str:
        return f"min(1/r, {number(self.cap)}) for A > 0, min(r, {number(self.cap)}) else; r = {self.ratio.symbol}"

    def __call__(self, view: TokenView) -> WeightReading:
        tokens = self.ratio(view)
        return _clip(jnp.exp(jnp.where(view.advantages > 0, -tokens, tokens)), 0.0, self.cap)


@pytree_dataclass
class GammaShaped(Weight):
    """``φ(w) = e^λ w^k e^{−λw}``, w the ratio, with (k, λ) by the advantage's sign. VESPO, arXiv 2602.10693.

    φ(1) = 1, with its peak at w = k/λ. log w is held in [log 1e-8, 20].
    """

    ratio: LogRatio = BEHAVIOR
    k_positive: Leaf = 2.0
    lam_positive: Leaf = 3.0
    k_negative: Leaf = 3.0
    lam_negative: Leaf = 2.0

    def own_problems(self) -> list[str]:
        names = ("k_positive", "lam_positive", "k_negative", "lam_negative")
        values = (self.k_positive, self.lam_positive, self.k_negative, self.lam_negative)
        return [
            problem
            for name, value in zip(names, values, strict=True)
            for problem in outside(name, value, 0.0, 1e6, "φ must vanish at both ends")
        ]

    @property
    def text(self) -> str:
        return f"φ(w) = e^λ w^k e^(−λw), w = {self.ratio.symbol}"

    def __call__(self, view: TokenView) -> WeightReading:
        log_w = self.ratio(view)
        held = jnp.maximum(log_w, jnp.log(view.full(1e-8)))
        positive = view.advantages >= 0
        k = jnp.where(positive, view.full(self.k_positive), view.full(self.k_negative))
        lam = jnp.where(positive, view.full(self.lam_positive), view.full(self.lam_negative))
        # λ(1 − w) by expm1, so that φ(1) is exactly 1 and nothing cancels near it.
        return WeightReading(jnp.exp(k * held - lam * jnp.expm1(held)), held != log_w)


ONE: tuple[Weight, ...] = ()
"""The weights of plain REINFORCE: an empty product."""
