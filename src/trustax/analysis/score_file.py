"""What every recipe would do with the rollouts of a file: masked share, divergence, weights, and why."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from trustax.analysis.records import strict
from trustax.analysis.score_recipes import Choice, choose, description, objectives, reference
from trustax.analysis.score_tokens import TokenScore, most_interesting
from trustax.analysis.score_totals import Decision, Reading, RecipeTotals
from trustax.objectives import RECIPES, Objective
from trustax.objectives.masks import KeepAll
from trustax.rollouts.importers import FileReader, batches
from trustax.types import Metric, TokenStats

SHOWN = (
    "mask/fraction",
    "mask/fraction_positive",
    "mask/fraction_negative",
    "mask/fraction_zero",
    "mask/far",
    "divergence/mean",
    "divergence/max",
    "direction/disagreement",
    "direction/certified",
    "weight/mean",
    "weight/mean_square",
    "weight/max",
    "weight/cap_hits",
)
"""The metrics of a recipe that are asked for: all merge exactly. ``divergence/p95`` and ``weight/ess`` are added."""


@dataclasses.dataclass(frozen=True)
class FileScore:
    """The report on one file; ``recipes`` maps a name to its numbers, ``lacking`` to needs that the file leaves unmet.

    ``batch_statistics`` are recipes that look at a whole batch: here at ``batches`` of up to 64 rows of like length.
    """

    file: str
    layout: str
    rows: int
    skipped: int
    problems: list[str]
    ignored: list[str]
    statistics: list[str]
    batches: int
    reference: str
    reading: dict[str, float]
    recipes: dict[str, dict[str, float]]
    lacking: dict[str, list[str]]
    batch_statistics: list[str]
    interesting: list[TokenScore]

    def to_json(self) -> str:
        """Strict JSON: infinities by name."""
        return json.dumps(strict(dataclasses.asdict(self)), ensure_ascii=False, indent=2, allow_nan=False)


def score_file(
    path: Path,
    *,
    recipes: Sequence[str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    layout: str | None = None,
    skip_bad: bool = False,
    vocab_size: int | None = None,
    tokens: int = 0,
    most_rows: int = 64,
) -> FileScore:
    """Ask recipes (all by default) about every token of a file, and keep the ``tokens`` most interesting ones.

    Everything is computed in float64. Raises ``UserError`` for a file that cannot be read, a bad row unless
    ``skip_bad``, an unknown recipe or hyperparameter, and needs that are met for none of the recipes.
    """
    reader = FileReader(path, layout=layout, skip_bad=skip_bad, vocab_size=vocab_size)
    with jax.enable_x64(True):
        asked = objectives(list(RECIPES) if recipes is None else recipes, {} if settings is None else settings)
    scorer, count = None, 0
    for batch in batches(reader, vocab_size=vocab_size, most_rows=most_rows):
        if scorer is None:
            scorer = _Scorer(asked, batch.stats)
        read, decisions = scorer.add(batch.stats)
        scorer.interesting = most_interesting(scorer.interesting, batch.rows, read, decisions, scorer.masking, tokens)
        count += 1
    assert scorer is not None, "the reader refuses a file without a row"
    return FileScore(
        file=str(path),
        layout=str(reader.layout),
        rows=reader.rows,
        skipped=reader.skipped,
        problems=reader.problems,
        ignored=sorted(reader.ignored),
        statistics=sorted(reader.statistics if reader.statistics is not None else ()),
        batches=count,
        reference=description(scorer.reference),
        reading=scorer.reading.summary(),
        recipes={name: totals.summary() for name, totals in scorer.totals.items()},
        lacking=scorer.choice.lacking,
        batch_statistics=[name for name, o in scorer.choice.met.items() if o.spec.batch_statistics],
        interesting=scorer.interesting,
    )


class _Scorer:
    """What is known after some batches; the first one decides which recipes can be asked."""

    def __init__(self, asked: Mapping[str, Objective], stats: TokenStats):
        with jax.enable_x64(True):
            self.choice: Choice = choose(asked, stats)
            self.reference = reference(stats)
        met = self.choice.met
        self.masking = frozenset(name for name, o in met.items() if not isinstance(o.spec.mask, KeepAll))
        self.totals = {name: RecipeTotals() for name in met}
        self.reading = Reading()
        self.interesting: list[TokenScore] = []

    def add(self, stats: TokenStats) -> tuple[Decision, dict[str, Decision]]:
        """Count a batch; its decisions by the reference and by every recipe."""
        with jax.enable_x64(True):
            read, judged = jax.device_get(_judge(self.reference, self.choice.met, stats))
        for name, found in judged.items():
            self.totals[name].add(found.metrics, found.decision)
        self.reading.add(stats, read)
        return read, {name: found.decision for name, found in judged.items()}


class _Judged(NamedTuple):
    metrics: dict[str, Metric]
    decision: Decision


@jax.jit
def _judge(
    reference: Objective, objectives: dict[str, Objective], stats: TokenStats
) -> tuple[Decision, dict[str, _Judged]]:
    judged = {}
    for name, objective in objectives.items():
        seen = objective(stats).metrics
        judged[name] = _Judged({key: seen[key] for key in SHOWN if key in seen}, _decide(objective, stats))
    return _decide(reference, stats), judged


def _decide(objective: Objective, stats: TokenStats) -> Decision:
    fates = objective.per_token(stats)
    return Decision(fates.valid, fates.keep, fates.far, fates.outward, fates.divergence, fates.direction)
