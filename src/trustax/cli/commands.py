"""What each command does, once its words are understood."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from trustax.analysis.outcome import print_outcome
from trustax.analysis.records import read_records
from trustax.analysis.tokens import visible
from trustax.errors import UserError
from trustax.experiment import run
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.config_files import load_config
from trustax.experiment.overrides import apply_overrides
from trustax.experiment.run_folder import default_folder


def train(config_file: Path, overrides: Sequence[str], *, output: Path | None, overwrite: bool) -> None:
    """Train, then show what it changed and where it is."""
    config = _config(config_file, overrides)
    folder = default_folder(config) if output is None else output
    summary = run.train(config, folder, overwrite=overwrite)
    samples_file = folder / "samples.jsonl"
    console = Console()
    print_outcome(console, dataclasses.asdict(summary), read_records(samples_file) if samples_file.is_file() else [])
    console.print(
        f"run folder: {folder} (plots/overview.png, metrics.jsonl, summary.json)", markup=False, soft_wrap=True
    )


def sample(
    config_file: Path,
    overrides: Sequence[str],
    *,
    checkpoint: Path | None,
    prompts: list[str] | None,
    count: int,
    greedy: bool,
) -> None:
    """Print completions, one line each, under their prompts."""
    config = _config(config_file, overrides)
    records = run.sample(config, checkpoint=_existing(checkpoint), prompts=prompts, count=count, greedy=greedy)
    console = Console()
    last = None
    for record in records:
        if record["prompt"] != last:
            last = record["prompt"]
            console.print(Text(visible(last), style="bold"), soft_wrap=True)
        verdict = f"  ({record['verdict']})" if prompts is None else ""  # no answer is known to a prompt of one's own
        console.print(Text(f"  {visible(record['completion'])}{verdict}"), soft_wrap=True)


def evaluate(config_file: Path, overrides: Sequence[str], *, checkpoint: Path | None) -> None:
    """Print held-out accuracy, sampled and greedy."""
    config = _config(config_file, overrides)
    found = run.evaluate(config, checkpoint=_existing(checkpoint))
    print(f"sampled: {found.sampled:.1%}")
    print(f"greedy:  {found.greedy:.1%}")


def _config(path: Path, overrides: Sequence[str]) -> ExperimentConfig:
    return apply_overrides(load_config(path), overrides)


def _existing(checkpoint: Path | None) -> Path | None:
    if checkpoint is not None and not checkpoint.is_dir():
        raise UserError(f"no folder {checkpoint}; give --checkpoint a run folder, such as runs/tiny-seed0")
    return checkpoint
