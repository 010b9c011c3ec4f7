"""Which tokens keep their gradient: an algebra of boolean masks.

``keep = ~(far & outward)``: a token is dropped only if it is beyond the threshold *and* its update would move it
further. Masks combine with ``&``, ``|`` and ``~``. A mask is detached and never sees a gradient.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.objectives.directions import Direction, RatioSign
from trustax.objectives.proximity import BinaryTV, Proximity
from trustax.objectives.term import Leaf, Term, outside
from trustax.objectives.thresholds import Threshold
from trustax.objectives.view import TokenView
from trustax.types import pytree_dataclass, static_field


class MaskReading(NamedTuple):
    """A mask's decision and what it was made from; the details of a combination are those of its first part."""

    keep: Bool[Array, "*B T"]
    far: Bool[Array, "*B T"]
    outward: Bool[Array, "*B T"]
    divergence: Float[Array, "*B T"]
    direction: Float[Array, "*B T"]


class Mask(Term):
    """Base: ``__call__(view) -> MaskReading``, and the operators ``&``, ``|``, ``~``."""

    @property
    def text(self) -> str:
        """When a token is dropped, in words for the table."""
        raise NotImplementedError

    def __call__(self, view: TokenView) -> MaskReading:
        raise NotImplementedError

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, other)

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, other)

    def __invert__(self) -> "Mask":
        return Not(self)


@pytree_dataclass
class KeepAll(Mask):
    """No mask. Its divergence, for the metrics, is the binary TV; its direction the ratio's."""

    @property
    def text(self) -> str:
        return "nothing"

    def __call__(self, view: TokenView) -> MaskReading:
        direction = RatioSign()(view)
        nothing = jnp.zeros_like(view.valid)
        divergence = jnp.where(view.valid, BinaryTV()(view), view.full(0.0))
        return MaskReading(~nothing, nothing, direction.outward, divergence, direction.value)


@pytree_dataclass
class TrustRegion(Mask):
    """Drop tokens that are far and would move outward."""

    proximity: Proximity
    threshold: Threshold
    direction: Direction

    def own_problems(self) -> list[str]:
        limit = self.proximity.limit
        hint = (
            f"{self.proximity.symbol} is a difference of probabilities, at most 1, not a ratio; ∞ switches the mask off"
            if limit == 1.0
            else "a threshold is not negative; ∞ switches the mask off"
        )
        return [
            problem
            for name, value in self.threshold.limited().items()
            for problem in outside(name, value, 0.0, limit, hint, or_infinite=True)
        ]

    @property
    def text(self) -> str:
        far = self.threshold.text(self.proximity.symbol)
        return far if self.direction.symbol == "always" else f"{far} and {self.direction.symbol}"

    def __call__(self, view: TokenView) -> MaskReading:
        statistic = self.proximity(view)
        bounds = self.threshold(view, statistic)
        far = ((statistic < bounds.lower) | (statistic > bounds.upper)) & view.valid
        direction = self.direction(view)
        outward = direction.outward & view.valid
        return MaskReading(~(far & outward), far, outward, jnp.abs(statistic), direction.value)


@pytree_dataclass
class And(Mask):
    """Keep what both keep."""

    first: Mask
    second: Mask

    @property
    def text(self) -> str:
        return f"{self.first.text}; or {self.second.text}"

    def __call__(self, view: TokenView) -> MaskReading:
        first, second = self.first(view), self.second(view)
        return first._replace(keep=first.keep & second.keep)


@pytree_dataclass
class Or(Mask):
    """Keep what either keeps."""

    first: Mask
    second: Mask

    @property
    def text(self) -> str:
        return f"({self.first.text}) and also ({self.second.text})"

    def __call__(self, view: TokenView) -> MaskReading:
        first, second = self.first(view), self.second(view)
        return first._replace(keep=first.keep | second.keep)


@pytree_dataclass
class Not(Mask):
    """Keep what the other drops."""

    base: Mask

    @property
    def text(self) -> str:
        return f"all but ({self.base.text})"

    def __call__(self, view: TokenView) -> MaskReading:
        reading = self.base(view)
        return reading._replace(keep=~reading.keep)


@pytree_dataclass
class ForSign(Mask):
    """Apply a mask to tokens of one advantage sign only; all others are kept."""

    base: Mask
    sign: int = static_field(default=-1)

    def own_problems(self) -> list[str]:
        return [] if self.sign in (-1, 1) else [f"sign must be −1 or 1; got {self.sign}"]

    @property
    def text(self) -> str:
        return f"{self.base.text}, where A {'<' if self.sign < 0 else '>'} 0"

    def __call__(self, view: TokenView) -> MaskReading:
        reading = self.base(view)
        return reading._replace(keep=reading.keep | (view.advantages * self.sign <= 0))


@pytree_dataclass
class WholeSequence(Mask):
    """Drop a sequence if the mask drops more than ``share`` of its valid tokens (0: any token)."""

    base: Mask
    share: Leaf = 0.0

    def own_problems(self) -> list[str]:
        return outside("share", self.share, 0.0, 1.0, "it is a share of a sequence's tokens")

    @property
    def text(self) -> str:
        return f"every token of a sequence where {self.base.text}"

    def __call__(self, view: TokenView) -> MaskReading:
        reading = self.base(view)
        dropped = jnp.sum(~reading.keep & view.valid, axis=-1).astype(view.dtype)
        allowed = jnp.asarray(self.share, view.dtype) * view.length.astype(view.dtype)
        return reading._replace(keep=view.per_sequence(dropped <= allowed))
