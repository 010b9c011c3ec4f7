"""Soft trust regions: a factor on the weight instead of a mask; 1 where π is its anchor.

A linear gate may turn negative: it then pulls the token back. All are detached.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.objectives.directions import Direction
from trustax.objectives.masks import Mask
from trustax.objectives.proximity import Proximity
from trustax.objectives.ratio import BEHAVIOR, LogRatio
from trustax.objectives.term import Leaf, Term, number, outside, unknown
from trustax.objectives.thresholds import PrefixBudget
from trustax.objectives.view import TokenView
from trustax.types import pytree_dataclass, static_field


class Gate(Term):
    """Base: ``__call__(view) -> [B, T]``."""

    @property
    def text(self) -> str:
        """The factor, as the table writes it."""
        raise NotImplementedError

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        raise NotImplementedError


def _positive(name: str, value: Leaf) -> list[str]:
    return outside(name, value, 1e-30, float("inf"), "the gate divides by it; it must be above 0 (∞ switches it off)")


@pytree_dataclass
class SechSquared(Gate):
    """``1 / cosh²(τ (r − 1)/2)``, τ by the advantage's sign, on every token. SAPO (soft), arXiv 2511.20347."""

    ratio: LogRatio = BEHAVIOR
    tau_positive: Leaf = 1.0
    tau_negative: Leaf = 1.05

    def own_problems(self) -> list[str]:
        hint = "0 switches the gate off"
        return outside("tau_positive", self.tau_positive, 0.0, 1e6, hint) + outside(
            "tau_negative", self.tau_negative, 0.0, 1e6, hint
        )

    @property
    def text(self) -> str:
        return f"sech²(τ_A ({self.ratio.symbol} − 1)/2)"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        tau = jnp.where(view.advantages > 0, view.full(self.tau_positive), view.full(self.tau_negative))
        half = 0.5 * tau * jnp.expm1(self.ratio(view))
        # sech x = 2 e^{−|x|} / (1 + e^{−2|x|}): cosh itself overflows.
        decay = jnp.exp(-jnp.abs(half))
        return jnp.square(2.0 * decay / (1.0 + jnp.square(decay)))


@pytree_dataclass
class Linear(Gate):
    """``1 − s·D/δ``: s = ±1 by direction (``signed``), or 1 on outward tokens and 0 elsewhere (``outward``).

    ``only_where`` applies it to the tokens another mask calls far; the others keep the factor 1.
    """

    proximity: Proximity
    delta: Leaf
    direction: Direction
    on: str = static_field(default="signed")
    only_where: Mask | None = None

    def own_problems(self) -> list[str]:
        return _positive("delta", self.delta) + unknown("on", self.on, ("signed", "outward"))

    @property
    def text(self) -> str:
        sign = self.direction.symbol.removesuffix(" > 0")
        factor = f"sgn({sign})" if self.on == "signed" else f"1[{self.direction.symbol}]"
        where = "" if self.only_where is None else f" where {self.only_where.text.split(' and ')[0]}"
        return f"1 − {factor}·|{self.proximity.symbol}|/{number(self.delta)}{where}"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        direction = self.direction(view)
        if self.on == "signed":
            sign = jnp.sign(view.advantages) * jnp.sign(direction.value)
        else:
            sign = direction.outward.astype(view.dtype)
        penalty = sign * jnp.abs(self.proximity(view)) / view.full(self.delta)
        if self.only_where is not None:
            penalty = jnp.where(self.only_where(view).far, penalty, jnp.zeros_like(penalty))
        return 1.0 - penalty


@pytree_dataclass
class InverseBudget(Gate):
    """``min(1, 1/x)`` on outward tokens, x = max(Z_t/δ, S_t/(δ + δ_b W_{t−1})). CPPO's soft form, 2606.10968."""

    proximity: Proximity
    budget: PrefixBudget
    direction: Direction

    def own_problems(self) -> list[str]:
        return _positive("delta", self.budget.delta)

    @property
    def text(self) -> str:
        return f"min(1, 1/x) where {self.direction.symbol}, x = max(Z/δ, S/(δ + δ_b·W_(t−1)))"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        statistic = self.proximity(view)
        spent, weight = self.budget.prefixes(view, statistic)
        delta = view.full(self.budget.delta)
        room = delta + self.budget.budget(view) * weight
        excess = jnp.maximum(statistic / delta, (spent + statistic) / room)
        outward = self.direction(view).outward & (excess > 1.0)
        return jnp.where(outward, 1.0 / jnp.where(outward, excess, jnp.ones_like(excess)), jnp.ones_like(excess))
