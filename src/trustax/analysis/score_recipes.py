"""Recipes as a user names them, and what a file must hold to be asked about each."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from trustax.errors import UserError
from trustax.objectives import RECIPES, Objective, build
from trustax.objectives.checks import unmet
from trustax.objectives.masks import TrustRegion
from trustax.types import TokenStats

HINTS = {
    "support": "top_k_log_pi (the trainer's log-probs on the engine's top-K ids) and the engine's top-K",
    "sum_sq_pi": "sum_sq_pi (Σπ² over the vocabulary, one number a token)",
    "log_anchor": "log_anchor (the trainer's log-probs at the start of the update)",
    "log_ref": "log_ref (the reference's log-probs)",
    "entropy": "entropy (the trainer's, in nats)",
    "divergence_rate": "divergence_rate (only a trainer with its optimizer can supply it)",
    "policy_staleness": "policy_staleness (trainer version − rollout version)",
    "vocab_size": "--vocab-size",
}
"""What meets a need."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which recipes a file's statistics are enough for, and what the others lack."""

    met: dict[str, Objective]
    lacking: dict[str, list[str]]


def objectives(names: Sequence[str], settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Objective]:
    """Build recipes by name, some with other hyperparameters than their defaults; all problems at once."""
    problems = [f"no recipe {name!r}" for name in names if name not in RECIPES]
    problems += [f"{name} is set, but is not among the recipes" for name in settings if name not in names]
    built = {}
    for name in names:
        if name in RECIPES:
            changes = settings.get(name, {})
            known = inspect.signature(RECIPES[name]).parameters
            unknown = [key for key in changes if key not in known]
            problems += [f"{name} has no hyperparameter {key!r}; it has {', '.join(known)}" for key in unknown]
            if not unknown:
                try:
                    built[name] = build(RECIPES[name](**changes))
                except ValueError as error:
                    problems.append(str(error))
    if problems:
        raise UserError("; ".join(problems))
    return built


def choose(asked: Mapping[str, Objective], stats: TokenStats) -> Choice:
    """Split recipes by whether their needs are met. Raises ``UserError`` if none are."""
    missing = {name: unmet(stats, objective.needs) for name, objective in asked.items()}
    met = {name: objective for name, objective in asked.items() if not missing[name]}
    lacking = {name: needs for name, needs in missing.items() if needs}
    if not met:
        needs = sorted({need for needs in lacking.values() for need in needs})
        hints = "; ".join(HINTS[need] for need in needs)
        raise UserError(f"the file meets the needs of none of the recipes asked for; they lack: {hints}")
    return Choice(met, lacking)


def reference(stats: TokenStats) -> Objective:
    """Whose D and G stand for a token: the top-K KL(μ‖π) and its prediction, or the binary TV and the ratio."""
    if stats.support is None:
        return build(RECIPES["dppo_binary_tv"]())
    exact = not unmet(stats, frozenset({"sum_sq_pi"}))
    return build(RECIPES["pdm_topk_kl"](tail="exact" if exact else "aggregated"))


def description(objective: Objective) -> str:
    """The D and the direction of a recipe with one trust region, by their symbols."""
    region = objective.spec.mask
    assert isinstance(region, TrustRegion), "reference() gives recipes with one trust region"
    return f"D {region.proximity.symbol}, outward where {region.direction.symbol}"
