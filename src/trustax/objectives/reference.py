"""The reference page of all recipes, from the recipes themselves."""

import inspect
from typing import Any

from trustax.objectives.recipes import RECIPES

_COLUMNS = ("recipe", "gradient weight", "dropped", "anchor", "aggregation", "advantage", "needs", "batch statistics")

_HEAD = """\
# Recipes

Made by `objectives.reference_page()`; a test fails when it differs from the code. Notation: π the policy, μ the
behavior policy (what was sampled), α the anchor (the policy at the start of the update, recomputed), ρ the reference,
A the advantage, r a token ratio, P a prefix ratio, s a geometric-mean ratio, w a sequence ratio. The gradient of every
recipe is `Agg[keep · weight · A · ∇log π]`, plus that of its regularisers.
"""


def _default(value: Any) -> str:
    return repr(value) if isinstance(value, (str, bool)) or value is None else f"{value:g}"


def hyperparameters(name: str) -> dict[str, str]:
    """A recipe's keyword arguments and their defaults, as text."""
    parameters = inspect.signature(RECIPES[name]).parameters.values()
    return {parameter.name: _default(parameter.default) for parameter in parameters}


def reference_table() -> list[dict[str, str]]:
    """One row per recipe: what ``ObjectiveSpec.describe`` says, and the hyperparameters with their defaults."""
    rows = []
    for name, recipe in RECIPES.items():
        defaults = ", ".join(f"{key} = {value}" for key, value in hyperparameters(name).items())
        rows.append(recipe().describe() | {"defaults": defaults})
    return rows


def _cell(text: str) -> str:
    return text.replace("|", "\\|") if text else "–"


def reference_page() -> str:
    """The table as Markdown: one overview, then each recipe's published loss, defaults and source."""
    rows = reference_table()
    lines = [_HEAD, "| " + " | ".join(_COLUMNS) + " |", "|" + " --- |" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_cell(row[column]) for column in _COLUMNS) + " |" for row in rows]
    for row in rows:
        lines += ["", f"## {row['recipe']}", ""]
        lines += [f"* loss: `{row['loss']}`", f"* defaults: `{row['defaults']}`"]
        if row["regularisers"]:
            lines.append(f"* regularisers: `{row['regularisers']}`")
        lines.append(f"* source: {row['source']}")
    return "\n".join(lines) + "\n"
