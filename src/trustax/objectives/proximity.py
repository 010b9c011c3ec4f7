"""How far the policy is from its anchor: one number per token, to be compared with a threshold.

Divergences are ≥ 0; ratio deviations are signed, so that a band may be asymmetric. All are detached.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.objectives.ratio import BEHAVIOR, LogRatio
from trustax.objectives.term import Leaf, Term, number, outside, unknown
from trustax.objectives.view import TokenView, required, support_arguments
from trustax.ops import directions, divergences, second_order
from trustax.ops.kl_estimators import k2, k3
from trustax.ops.masked import masked_max, masked_mean
from trustax.types import Support, pytree_dataclass, static_field

Kind = str
"""One of ``LUMPED``."""
_KIND = {"kl": "KL(μ‖π)", "reverse_kl": "KL(π‖μ)", "tv": "TV"}


class Proximity(Term):
    """Base: ``__call__(view) -> [B, T]``. ``upper_limit`` bounds a sensible threshold (1 for a total variation)."""

    upper_limit: ClassVar[float] = float("inf")

    @property
    def limit(self) -> float:
        """The largest value the statistic can take; a threshold beyond it is a mistake."""
        return self.upper_limit

    @property
    def symbol(self) -> str:
        """How the table writes it."""
        raise NotImplementedError

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        raise NotImplementedError


@pytree_dataclass
class BinaryTV(Proximity):
    """|π_y − μ_y|: total variation of {y, rest}, a lower bound on the full one. DPPO, arXiv 2602.04879, eq. 13."""

    upper_limit: ClassVar[float] = 1.0

    @property
    def symbol(self) -> str:
        return "binary TV"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return divergences.binary_tv(view.log_pi, view.log_mu)


@pytree_dataclass
class BinaryKL(Proximity):
    """KL(μ‖π) of {y, rest}, a lower bound on the full one. DPPO, arXiv 2602.04879, eq. 14."""

    @property
    def symbol(self) -> str:
        return "binary KL(μ‖π)"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return divergences.binary_kl(view.log_pi, view.log_mu)


LUMPED = {
    "kl": divergences.lumped_kl,
    "reverse_kl": divergences.lumped_reverse_kl,
    "tv": divergences.lumped_tv,
}


@pytree_dataclass
class LumpedDivergence(Proximity):
    """A divergence over TopK(μ) ∪ {y} and one cell for the rest. DPPO, arXiv 2602.04879, eqs. 15-16."""

    kind: Kind = static_field(default="kl")

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({"support"})

    def own_problems(self) -> list[str]:
        return unknown("divergence", self.kind, tuple(LUMPED))

    @property
    def limit(self) -> float:
        return 1.0 if self.kind == "tv" else float("inf")

    @property
    def symbol(self) -> str:
        return f"top-K {_KIND.get(self.kind, self.kind)}"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        support: Support = required(view.support, "support")
        value = LUMPED[self.kind](
            support.log_pi,
            support.log_mu,
            support.mask,
            tail_log_pi=support.tail_log_pi,
            tail_log_mu=support.tail_log_mu,
        )
        return jnp.where(view.valid, value, jnp.zeros_like(value))


@pytree_dataclass
class PredictedDivergence(Proximity):
    """The top-K divergence after the token's own update, to second order: D + sG + ½s²C, s = step_size·A·min(r, cap).

    With the direction ``Always`` it is a mask of its own: drop what the update would carry beyond δ. The categorical
    form of Flow-DPPO's full predictive mask, arXiv 2606.11025, eq. 24-27; ours. ``step_size`` is the effective learning
    rate of the logits; the tail is taken as even, since a ``Support`` does not hold Σ_T π³. For TV tied cells add |s|R.
    """

    step_size: Leaf
    kind: Kind = static_field(default="kl")
    cap: Leaf = 5.0

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({"support", "sum_sq_pi"})

    def own_problems(self) -> list[str]:
        found = outside("step_size", self.step_size, 0.0, 1e6, "the expansion is of a small step; 0 predicts D itself")
        found += outside("cap", self.cap, 1e-30, float("inf"), "it limits the ratio in the step")
        return found + unknown("divergence", self.kind, tuple(LUMPED))

    @property
    def limit(self) -> float:
        return LumpedDivergence(self.kind).limit

    @property
    def symbol(self) -> str:
        step = f"{number(self.step_size)}·A·min(r, {number(self.cap)})"
        return f"{LumpedDivergence(self.kind).symbol} after a step of {step}"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        cells, known = support_arguments(view)
        now = LumpedDivergence(self.kind)(view)
        direction = directions.predictive_direction(*cells, divergence=self.kind, **known)
        curvature = second_order.predictive_curvature(*cells, divergence=self.kind, **known)
        ties = directions.tv_tie_rate(*cells, **known) if self.kind == "tv" else None
        step = view.full(self.step_size) * view.advantages * jnp.minimum(jnp.exp(BEHAVIOR(view)), view.full(self.cap))
        after = second_order.predicted_divergence(now, direction, curvature, step, ties)
        return jnp.where(view.valid, jnp.maximum(after, 0.0), view.full(0.0))


@pytree_dataclass
class RatioDeviation(Proximity):
    """r − 1, signed: PPO's band [1 − ε_low, 1 + ε_high] is [−ε_low, ε_high] here."""

    ratio: LogRatio = BEHAVIOR

    @property
    def symbol(self) -> str:
        return f"{self.ratio.symbol} − 1"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return jnp.expm1(self.ratio(view))


@pytree_dataclass
class LogRatioValue(Proximity):
    """The log-ratio itself, signed."""

    ratio: LogRatio = BEHAVIOR

    @property
    def symbol(self) -> str:
        return f"log {self.ratio.symbol}"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return self.ratio(view)


@pytree_dataclass
class K2(Proximity):
    """l²/2, the sample proxy of a divergence."""

    ratio: LogRatio = BEHAVIOR

    @property
    def symbol(self) -> str:
        return f"½ log² {self.ratio.symbol}"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return k2(self.ratio(view), view.full(0.0))


@pytree_dataclass
class K3(Proximity):
    """r − 1 − l ≥ 0: its mean over samples of the denominator is KL(denominator‖numerator)."""

    ratio: LogRatio = BEHAVIOR

    @property
    def symbol(self) -> str:
        return f"{self.ratio.symbol} − 1 − log {self.ratio.symbol}"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return k3(-self.ratio(view), view.full(0.0))


@pytree_dataclass
class Absolute(Proximity):
    """The size of a signed statistic."""

    base: Proximity

    @property
    def symbol(self) -> str:
        return f"|{self.base.symbol}|"

    @property
    def limit(self) -> float:
        return self.base.limit

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return jnp.abs(self.base(view))


@pytree_dataclass
class SequenceMax(Proximity):
    """The largest value among a sequence's valid tokens, for all its tokens."""

    base: Proximity

    @property
    def symbol(self) -> str:
        return f"max_t {self.base.symbol}"

    @property
    def limit(self) -> float:
        return self.base.limit

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return view.per_sequence(masked_max(self.base(view), view.valid, axis=-1))


@pytree_dataclass
class SequenceMean(Proximity):
    """The mean over a sequence's valid tokens, for all its tokens."""

    base: Proximity

    @property
    def symbol(self) -> str:
        return f"mean_t {self.base.symbol}"

    @property
    def limit(self) -> float:
        return self.base.limit

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return view.per_sequence(masked_mean(self.base(view), view.valid, axis=-1))


Position = str
POSITIONS = ("valid", "column")


def position_weights(view: TokenView, w_min: Leaf, position: Position) -> Float[Array, "*B T"]:
    """``1 − (1 − w_min)(t − 1)/(T − 1)``, 1 where T = 1.

    ``position="valid"`` counts valid tokens, T the sequence's own length: padding changes nothing. ``"column"`` is
    the column of the array and its padded width, as in the published pull request.
    """
    if position == "valid":
        step = (view.position - 1).astype(view.dtype)
        last = view.per_sequence((view.length - 1).astype(view.dtype))
    else:
        width = view.log_pi.shape[-1]
        step = jnp.broadcast_to(jnp.arange(width, dtype=view.dtype), view.log_pi.shape)
        last = view.full(float(width - 1))
    share = jnp.maximum(step, 0.0) / jnp.maximum(last, 1.0)
    return 1.0 - (1.0 - jnp.asarray(w_min, view.dtype)) * share


@pytree_dataclass
class PositionWeighted(Proximity):
    """A statistic times a weight that falls from 1 at the first token to ``w_min`` at the last. CPPO, 2606.10968."""

    base: Proximity
    w_min: Leaf = 1.0
    position: Position = static_field(default="valid")

    @property
    def symbol(self) -> str:
        return f"position-weighted {self.base.symbol}"

    @property
    def limit(self) -> float:
        return self.base.limit

    def own_problems(self) -> list[str]:
        found = outside("w_min", self.w_min, 0.0, 1.0, "it is the weight of the last token")
        return found + unknown("position", self.position, POSITIONS)

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        return self.base(view) * position_weights(view, self.w_min, self.position)
