"""Objectives: a composition of small terms, called on per-token statistics.

    objective = build(RECIPES["pdm_topk_kl"](delta=0.1))
    out = objective(stats)          # out.sum / out.weight is the loss; out.metrics what was seen

``ObjectiveSpec`` composes an own one from masks, weights, gates, regularisers and an aggregation.
"""

from trustax.objectives.aggregation import Aggregation
from trustax.objectives.checks import check_values
from trustax.objectives.fates import TokenFates
from trustax.objectives.recipes import RECIPES
from trustax.objectives.reference import reference_page, reference_table
from trustax.objectives.runtime import Objective, ObjectiveOutput, build
from trustax.objectives.spec import ObjectiveSpec
from trustax.ops.advantages import ADVANTAGES

__all__ = [
    "ADVANTAGES",
    "RECIPES",
    "Aggregation",
    "Objective",
    "ObjectiveOutput",
    "ObjectiveSpec",
    "TokenFates",
    "build",
    "check_values",
    "reference_page",
    "reference_table",
]
