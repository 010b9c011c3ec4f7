"""An objective as data: what every method is made of, axis by axis."""

import dataclasses
from typing import Any

from trustax.objectives.aggregation import Aggregation
from trustax.objectives.gates import Gate
from trustax.objectives.masks import KeepAll, Mask
from trustax.objectives.ratio import LogRatio
from trustax.objectives.regularizers import Regularizer
from trustax.objectives.term import Term, needs, walk
from trustax.objectives.weights import Weight
from trustax.ops.advantages import ADVANTAGES, GAE
from trustax.types import pytree_dataclass, static_field


@pytree_dataclass
class ObjectiveSpec(Term):
    """anchor × ratio level × proximity × direction × gate × surrogate weight × aggregation + regularisers.

    The gradient is ``Agg[ keep · Π gates · Π weights · A · ∇log π ] + Σ regularisers``; everything in front of ∇log π
    is detached, so the loss of a token is ``−sg[A·w]·log π``. Numbers are leaves, names and structure are static.

    Attributes:
        mask: which tokens keep their gradient.
        weights: factors of the surrogate weight; empty is 1.
        gates: soft trust regions, further factors.
        regularizers: terms added to the loss.
        aggregation: how tokens become one number.
        advantage: the estimator's name in ``ADVANTAGES``, or ``"gae"``, for which the policy needs a value head.
        name: the recipe's name.
        loss: the published loss or objective, as text.
        source: where it is published, and which values are ours.
    """

    mask: Mask = dataclasses.field(default_factory=KeepAll)
    weights: tuple[Weight, ...] = ()
    gates: tuple[Gate, ...] = ()
    regularizers: tuple[Regularizer, ...] = ()
    aggregation: Aggregation = dataclasses.field(default_factory=Aggregation)
    advantage: str = static_field(default="group_centered")
    name: str = static_field(default="custom")
    loss: str = static_field(default="")
    source: str = static_field(default="")

    def own_problems(self) -> list[str]:
        if self.advantage == GAE and self.aggregation.denominator == "surviving":
            return ["advantage 'gae' needs denominator 'original': the critic learns from masked tokens too"]
        if self.advantage in (*ADVANTAGES, GAE):
            return []
        return [f"advantage {self.advantage!r} is unknown: expected one of {', '.join((*ADVANTAGES, GAE))}"]

    def replace(self, **changes: Any) -> "ObjectiveSpec":
        """A copy with some axes changed."""
        return dataclasses.replace(self, **changes)

    @property
    def batch_statistics(self) -> bool:
        """Whether any part reads the whole batch, so that splitting it into micro-batches changes the gradient."""
        return any(part.batch_level for part in walk(self))

    def describe(self) -> dict[str, str]:
        """One row of the reference table, every column from the parts themselves."""
        factors = [gate.text for gate in self.gates]
        weights = [weight.text for weight in self.weights]
        product = " × ".join([*weights, *(f"({factor})" for factor in factors)])
        return {
            "recipe": self.name,
            "loss": self.loss,
            "gradient weight": product if product else "1",
            "dropped": self.mask.text,
            "anchor": "μ and α" if "log_anchor" in needs(self) and _reads_behavior(self) else _anchor(self),
            "regularisers": " + ".join(term.text for term in self.regularizers),
            "aggregation": self.aggregation.text,
            "advantage": self.advantage,
            "needs": ", ".join(sorted(needs(self))),
            "batch statistics": "yes" if self.batch_statistics else "no",
            "source": self.source,
        }


def _anchor(spec: ObjectiveSpec) -> str:
    return "α (recomputed)" if "log_anchor" in needs(spec) else "μ"


def _reads_behavior(spec: ObjectiveSpec) -> bool:
    return any(isinstance(part, LogRatio) and part.denominator == "behavior" for part in walk(spec))
