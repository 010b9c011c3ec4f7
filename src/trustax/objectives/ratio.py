"""The ratio an objective reads: of which two policies, and over which part of the sequence."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.objectives.term import Term, unknown
from trustax.objectives.view import TokenView, required
from trustax.ops import ratios
from trustax.types import pytree_dataclass, static_field

Level = str
LEVELS = ("token", "prefix", "sequence_mean", "sequence_sum")
Anchor = str
ANCHORS = ("behavior", "anchor")

_SYMBOL = {"policy": "π", "anchor": "α", "behavior": "μ"}
_LEVEL = {"token": "r", "prefix": "P", "sequence_mean": "s", "sequence_sum": "w"}


@pytree_dataclass
class LogRatio(Term):
    """The detached log-ratio of two policies, limited to [−20, 20] per token and after the reduction.

    ``level``: ``token`` l_t; ``prefix`` Σ_{j≤t} l_j; ``sequence_mean`` (1/n) Σ l; ``sequence_sum`` Σ l. All are
    ``[B, T]``: a sequence's number is repeated for its tokens.
    """

    numerator: str = static_field(default="policy")
    denominator: Anchor = static_field(default="behavior")
    level: Level = static_field(default="token")

    @property
    def own_needs(self) -> frozenset[str]:
        return frozenset({"log_anchor"} if "anchor" in (self.numerator, self.denominator) else ())

    def own_problems(self) -> list[str]:
        return (
            unknown("numerator", self.numerator, ("policy", "anchor"))
            + unknown("anchor", self.denominator, ANCHORS)
            + unknown("level", self.level, LEVELS)
        )

    @property
    def symbol(self) -> str:
        """How the table writes it."""
        return f"{_LEVEL[self.level]}({_SYMBOL[self.numerator]}/{_SYMBOL[self.denominator]})"

    def __call__(self, view: TokenView) -> Float[Array, "*B T"]:
        top = view.log_pi if self.numerator == "policy" else required(view.log_anchor, "log_anchor")
        bottom = view.log_mu if self.denominator == "behavior" else required(view.log_anchor, "log_anchor")
        tokens = ratios.log_ratio(top, bottom, view.valid)
        if self.level == "token":
            return tokens
        if self.level == "prefix":
            reduced = ratios.prefix_log_ratio(tokens, view.valid)
        elif self.level == "sequence_mean":
            reduced = view.per_sequence(ratios.sequence_mean_log_ratio(tokens, view.valid))
        else:
            reduced = view.per_sequence(ratios.sequence_log_ratio(tokens, view.valid))
        return jnp.clip(reduced, -ratios.LOG_RATIO_LIMIT, ratios.LOG_RATIO_LIMIT)


BEHAVIOR = LogRatio()
"""π/μ per token."""


def policy_ratio(anchor: Anchor, level: Level = "token") -> LogRatio:
    """π over ``anchor`` at a level; ``build`` refuses unknown names."""
    return LogRatio(denominator=anchor, level=level)
