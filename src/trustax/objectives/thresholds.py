"""Where "far" begins: a lower and an upper bound for every token.

A token is far if its statistic is below ``lower`` or above ``upper``, strictly: on the bound it is kept.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.objectives.proximity import Position, Proximity, position_weights
from trustax.objectives.ratio import BEHAVIOR, LogRatio
from trustax.objectives.term import Leaf, Term, number, outside, unknown
from trustax.objectives.view import TokenView
from trustax.ops.masked import masked_quantile, select
from trustax.types import pytree_dataclass, static_field


class Bounds(NamedTuple):
    """The region that counts as near."""

    lower: Float[Array, "*B T"]
    upper: Float[Array, "*B T"]


class Threshold(Term):
    """Base: ``__call__(view, statistic) -> Bounds``."""

    def limited(self) -> dict[str, Any]:
        """The leaves that are compared with the statistic itself, by name, so that their range can be checked."""
        raise NotImplementedError

    def text(self, symbol: str) -> str:
        """``symbol`` far from here, in words for the table."""
        raise NotImplementedError

    def __call__(self, view: TokenView, statistic: Float[Array, "*B T"]) -> Bounds:
        raise NotImplementedError


@pytree_dataclass
class Constant(Threshold):
    """|statistic| > δ."""

    delta: Leaf

    def limited(self) -> dict[str, Any]:
        return {"delta": self.delta}

    def text(self, symbol: str) -> str:
        return f"{symbol} > {number(self.delta)}"

    def __call__(self, view: TokenView, statistic: Float[Array, "*B T"]) -> Bounds:
        delta = view.full(self.delta)
        return Bounds(-delta, delta)


@pytree_dataclass
class Band(Threshold):
    """statistic < −low or statistic > high."""

    low: Leaf
    high: Leaf

    def limited(self) -> dict[str, Any]:
        return {"eps_low": self.low, "eps_high": self.high}

    def text(self, symbol: str) -> str:
        return f"{symbol} ∉ [−{number(self.low)}, {number(self.high)}]"

    def __call__(self, view: TokenView, statistic: Float[Array, "*B T"]) -> Bounds:
        return Bounds(-view.full(self.low), view.full(self.high))


@pytree_dataclass
class ByAdvantageSign(Threshold):
    """|statistic| > ``positive`` where A > 0, > ``negative`` elsewhere."""

    positive: Leaf
    negative: Leaf

    def limited(self) -> dict[str, Any]:
        return {"delta for A > 0": self.positive, "delta for A < 0": self.negative}

    def text(self, symbol: str) -> str:
        return f"{symbol} > {number(self.positive)} (A > 0) or {number(self.negative)} (A < 0)"

    def __call__(self, view: TokenView, statistic: Float[Array, "*B T"]) -> Bounds:
        delta = jnp.where(view.advantages > 0, view.full(self.positive), view.full(self.negative))
        return Bounds(-delta, delta)


@pytree_dataclass
class PowerOfPosition(Threshold):
    """The band [−low·t^p, high·t^p], t the 1-based index among valid tokens. CTPO, arXiv 2605.07331, §3."""

    low: Leaf
    high: Leaf
    power: Leaf = 0.5

    def own_problems(self) -> list[str]:
        return outside("power", self.power, -10.0, 10.0, "the band is a power of the position; 0.5 is its square root")

    def limited(self) -> dict[str, Any]:
        return {"eps_low": self.low, "eps_high": self.high}

    def text(self, symbol: str) -> str:
        return f"{symbol} ∉ [−{number(self.low)}, {number(self.high)}]·t^{number(self.power)}"

    def __call__(self, view: TokenView, statistic: Float[Array, "*B T"]) -> Bounds:
        growth = jnp.maximum(view.position, 1).astype(view.dtype) ** jnp.asarray(self.power, view.dtype)
        # An infinite bound is a switch: no growth can change it.
        return Bounds(-view.full(self.low) * growth, view.full(self.high) * growth)


@pytree_dataclass
class PrefixBudget(Threshold):
    """``min(δ, δ + δ_b W_{t−1} − S_{t−1})``: a prefix that has used up its divergence tightens the bound.

    S and W are the prefix sums of the weighted divergence and of the position weights over *every* valid token.
    ``delta_b`` is the allowed average per token; where ``quantile`` is set it is
    ``clip(scale · quantile_q(D), delta_b, ceiling · delta_b)`` of the sequence's own divergences. CPPO, 2606.10968.
    """

    base: Proximity
    delta: Leaf
    delta_b: Leaf
    w_min: Leaf = 1.0
    quantile: Leaf | None = None
    scale: Leaf = 1.0
    ceiling: Leaf = 2.0
    position: Position = static_field(default="valid")

    def limited(self) -> dict[str, Any]:
        return {"delta": self.delta}

    def own_problems(self) -> list[str]:
        found = outside("delta_b", self.delta_b, 0.0, 3e38, "use a large finite budget to switch it off (∞·0 is NaN)")
        if self.quantile is not None:
            found += outside("quantile", self.quantile, 0.0, 1.0, "it is a share of the sequence's tokens")
            found += outside("scale", self.scale, 0.0, 1e12, "the quantile's factor is finite and not negative")
            found += outside("ceiling", self.ceiling, 1.0, 1e12, "it is a multiple of delta_b, the smallest budget")
        return found

    def text(self, symbol: str) -> str:
        return f"{symbol} > min({number(self.delta)}, {number(self.delta)} + δ_b·W_(t−1) − S_(t−1))"

    def budget(self, view: TokenView) -> Float[Array, "*B T"]:
        """δ_b per token: the constant, or the sequence's clipped quantile."""
        floor = view.full(self.delta_b)
        if self.quantile is None:
            return floor
        wanted = jnp.asarray(self.scale, view.dtype) * masked_quantile(
            self.base(view), view.valid, jnp.asarray(self.quantile, view.dtype)
        )
        return jnp.clip(view.per_sequence(wanted), floor, self.ceiling * floor)

    def prefixes(self, view: TokenView, statistic: Float[Array, "*B T"]) -> tuple[Array, Array]:
        """S_{t−1} and W_{t−1}."""
        spent = select(statistic, view.valid)
        weights = select(position_weights(view, self.w_min, self.position), view.valid)
        return jnp.cumsum(spent, axis=-1) - spent, jnp.cumsum(weights, axis=-1) - weights

    def __call__(self, view: TokenView, statistic: Float[Array, "*B T"]) -> Bounds:
        spent, weight = self.prefixes(view, statistic)
        delta = view.full(self.delta)
        allowed = jnp.where(jnp.isinf(delta), delta, delta + self.budget(view) * weight - spent)
        return Bounds(view.full(-jnp.inf), jnp.minimum(delta, allowed))


HillForm = str
HILL_FORMS = ("continuous", "hill", "power")


@pytree_dataclass
class QuantileContracted(Threshold):
    """PPO's band with its outer ends drawn in for the most off-policy tokens. SAT, arXiv 2607.18722.

    ``x = |l|``, q its quantile over the batch's valid tokens; ``c = 1`` where x ≤ q, else a Hill function of x/q; the
    band is [−low·c, high] for r < 1 and [−low, high·c] for r > 1. The published text does not fix the Hill form:
    ``continuous`` 2/(1 + (x/q)^n) (default, ours), ``hill`` 1/(1 + (x/q)^n), ``power`` (q/x)^n.
    """

    batch_level: ClassVar[bool] = True

    low: Leaf
    high: Leaf
    quantile: Leaf = 0.9
    exponent: Leaf = 2.0
    ratio: LogRatio = BEHAVIOR
    form: HillForm = static_field(default="continuous")

    def limited(self) -> dict[str, Any]:
        return {"eps_low": self.low, "eps_high": self.high}

    def own_problems(self) -> list[str]:
        found = outside("quantile", self.quantile, 0.0, 1.0, "it is a share of the batch's tokens")
        found += outside("exponent", self.exponent, 0.0, 1e6, "a negative one would widen the band")
        return found + unknown("form", self.form, HILL_FORMS)

    def text(self, symbol: str) -> str:
        return f"{symbol} ∉ [−{number(self.low)}·c, {number(self.high)}·c], c from the {number(self.quantile)} quantile"

    def contraction(self, view: TokenView) -> Float[Array, "*B T"]:
        """c_t in (0, 1]."""
        size = jnp.abs(self.ratio(view))
        q = masked_quantile(size.reshape(-1), view.valid.reshape(-1), jnp.asarray(self.quantile, view.dtype))
        beyond = (size > q) & (q > 0)
        share = jnp.where(beyond, size, jnp.ones_like(size)) / jnp.where(q > 0, q, jnp.ones_like(q))
        power = jnp.where(beyond, share, jnp.ones_like(share)) ** jnp.asarray(self.exponent, view.dtype)
        shrunk = {"continuous": 2.0 / (1.0 + power), "hill": 1.0 / (1.0 + power), "power": 1.0 / power}[self.form]
        return jnp.where(beyond, shrunk, jnp.ones_like(shrunk))

    def __call__(self, view: TokenView, statistic: Float[Array, "*B T"]) -> Bounds:
        contraction = self.contraction(view)
        low, high = view.full(self.low), view.full(self.high)
        return Bounds(
            jnp.where(statistic < 0, -low * contraction, -low), jnp.where(statistic > 0, high * contraction, high)
        )
