"""Which training prompts are neither too hard nor too easy for the policy that training starts from."""

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from trustax.data import Example, ListSource, Source
from trustax.errors import ConfigError
from trustax.experiment.assemble import Parts
from trustax.experiment.files import write_atomically
from trustax.sampling.keys import EVALUATION
from trustax.types import Verdict

logger = logging.getLogger(__name__)


def filter_by_difficulty(parts: Parts, params: Any, source: Source, file: Path) -> Source:
    """The source as ``data.difficulty`` wants it. Pass rates are measured once a run and kept in ``file``."""
    settings = parts.config.data.difficulty
    if settings is None:
        return source
    if file.is_file():
        measured = json.loads(file.read_text(encoding="utf-8"))["measured"]
    else:
        measured = _measure(parts, params, source, settings.samples)
    rates = np.array([one["pass_rate"] for one in measured])
    lengths = np.array([one["length"] for one in measured])
    keep = (rates >= settings.low) & (rates <= settings.high)
    counts = f"{(rates < settings.low).sum()} too hard, {(rates > settings.high).sum()} too easy"
    name = f"{source.name}:pass_rate={settings.low:g}..{settings.high:g}"
    if not keep.any():
        raise ConfigError(
            f"{source.name}: none of {len(source)} prompts has a pass rate in {settings.low:g}..{settings.high:g} "
            f"({counts}); widen data.difficulty, or start from another policy"
        )
    bias = float(lengths[keep].mean() - lengths.mean())
    logger.warning(
        "%s: kept %d of %d prompts (%s); length bias %+.1f tokens", name, keep.sum(), len(keep), counts, bias
    )
    report = {"kept": int(keep.sum()), "of": len(keep), "length_bias": bias, "measured": measured}
    write_atomically(file, json.dumps(report, allow_nan=False) + "\n")
    return ListSource(name, [source[int(place)] for place in np.flatnonzero(keep)])


def _measure(parts: Parts, params: Any, source: Source, samples: int) -> list[dict[str, Any]]:
    """Each prompt's share of right completions and their mean length, sampled as training samples."""
    collector = dataclasses.replace(parts.collector, group_size=samples, stream=EVALUATION)
    size = parts.config.rollout.prompts_per_step
    measured: list[dict[str, Any]] = []
    for start in range(0, len(source), size):
        batch: list[Example] = [source[place] for place in range(start, min(start + size, len(source)))]
        filled = batch + [batch[-1]] * (size - len(batch))  # one shape for all calls
        _, completions = collector(params, filled, step=0, version=0)
        for place, example in enumerate(batch):
            rows = completions[place * samples : (place + 1) * samples]
            right = sum(row.verdict is Verdict.CORRECT for row in rows)
            length = sum(len(row.token_ids) for row in rows) / samples
            measured.append({"index": example.index, "pass_rate": right / samples, "length": length})
    return measured
