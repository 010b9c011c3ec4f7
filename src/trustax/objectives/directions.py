"""Whether a token's own update would grow its divergence.

``value`` is signed so that, with the advantage, it points outward: outward iff A · value > 0, strictly; A = 0 and
value = 0 are never outward. ``UpdateAware`` is the exception: its value already contains A.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.objectives.proximity import Kind
from trustax.objectives.ratio import BEHAVIOR, LogRatio
from trustax.objectives.term import Term, unknown
from trustax.objectives.view import TokenView, required, support_arguments
from trustax.ops import directions
from trustax.types import pytree_dataclass, static_field

Tail = str
TAILS = ("exact", "aggregated", "uniform", "none")
KINDS = ("kl", "reverse_kl", "tv")


class DirectionReading(NamedTuple):
    """The signed direction and the tokens that would move outward."""

    value: Float[Array, "*B T"]
    outward: Bool[Array, "*B T"]


class Direction(Term):
    """Base: ``__call__(view) -> DirectionReading``."""

    certified: ClassVar[bool] = False

    @property
    def symbol(self) -> str:
        """The condition for outward, as the table writes it."""
        raise NotImplementedError

    def __call__(self, view: TokenView) -> DirectionReading:
        raise NotImplementedError


def _with_advantage(view: TokenView, value: Float[Array, "*B T"]) -> DirectionReading:
    # Signs, not a product: A·value underflows to 0 for tiny numbers.
    return DirectionReading(value, jnp.sign(view.advantages) * jnp.sign(value) > 0)


@pytree_dataclass
class Always(Direction):
    """Every token counts as outward: a symmetric mask, that drops far tokens whatever their update does."""

    @property
    def symbol(self) -> str:
        return "always"

    def __call__(self, view: TokenView) -> DirectionReading:
        return DirectionReading(view.full(1.0), view.valid)


@pytree_dataclass
class NegativeAdvantage(Direction):
    """Tokens with A < 0 count as outward (OPSM; the inner band of a dual clip)."""

    @property
    def symbol(self) -> str:
        return "A < 0"

    def __call__(self, view: TokenView) -> DirectionReading:
        return DirectionReading(view.full(-1.0), view.advantages < 0)


@pytree_dataclass
class RatioSign(Direction):
    """The ratio test: outward iff A (r − 1) > 0, r any ratio."""

    ratio: LogRatio = BEHAVIOR

    @property
    def symbol(self) -> str:
        return f"A·({self.ratio.symbol} − 1) > 0"

    def __call__(self, view: TokenView) -> DirectionReading:
        token_ratio = self.ratio == BEHAVIOR
        value = directions.ratio_direction(view.log_pi, view.log_mu) if token_ratio else self.ratio(view)
        return _with_advantage(view, jnp.where(view.valid, value, jnp.zeros_like(value)))


def check_predictive(divergence: str, tail: str) -> list[str]:
    """What is wrong with the names of a divergence and a tail."""
    return unknown("divergence", divergence, KINDS) + unknown("tail", tail, TAILS)


@pytree_dataclass
class Predictive(Direction):
    """G, the first-order change of the top-K divergence under the token's own softmax step. PDM, arXiv 2607.10848."""

    divergence: Kind = static_field(default="kl")
    tail: Tail = static_field(default="exact")

    @property
    def own_needs(self) -> frozenset[str]:
        extra = {"exact": {"sum_sq_pi"}, "uniform": {"vocab_size"}}.get(self.tail, set())
        return frozenset({"support"} | extra)

    def own_problems(self) -> list[str]:
        return check_predictive(self.divergence, self.tail)

    @property
    def symbol(self) -> str:
        return f"A·G > 0 (G of {self.divergence}, tail {self.tail})"

    def __call__(self, view: TokenView) -> DirectionReading:
        cells, known = support_arguments(view)
        value = directions.predictive_direction(*cells, divergence=self.divergence, tail=self.tail, **known)
        value = jnp.where(view.valid, value, jnp.zeros_like(value))
        if self.divergence != "tv":
            return _with_advantage(view, value)
        # TV has a kink where π_a = μ_a: a tied cell grows it whichever way the step goes.
        ties = directions.tv_tie_rate(*cells, tail=self.tail, **known)
        signed = jnp.sign(view.advantages)
        return DirectionReading(value, (signed != 0) & (signed * value + ties > 0))


@pytree_dataclass
class Certified(Direction):
    """The sign of the full-vocabulary KL's direction where the bounds prove it; 0, never outward, where they do not.

    The bounds hold whatever the tail looks like: see ``ops.directions.direction_certificate``.
    """

    certified: ClassVar[bool] = True

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({"support", "sum_sq_pi"})

    @property
    def symbol(self) -> str:
        return "A·G > 0 proven (G of the full KL)"

    def __call__(self, view: TokenView) -> DirectionReading:
        cells, known = support_arguments(view)
        sign = directions.direction_certificate(*cells, **known).astype(view.dtype)
        return _with_advantage(view, jnp.where(view.valid, sign, jnp.zeros_like(sign)))


@pytree_dataclass
class UpdateAware(Direction):
    """The derivative of the token's divergence along the actual optimizer update: outward iff it is > 0."""

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({"divergence_rate"})

    @property
    def symbol(self) -> str:
        return "dD/d(update) > 0"

    def __call__(self, view: TokenView) -> DirectionReading:
        rate = required(view.divergence_rate, "divergence_rate")
        return DirectionReading(rate, rate > 0)
