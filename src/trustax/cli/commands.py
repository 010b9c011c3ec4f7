"""What each command does, once its words are understood."""

import dataclasses
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.text import Text

from trustax.analysis.eval_page import print_estimates
from trustax.analysis.off_policy import off_policy_json, print_off_policy
from trustax.analysis.outcome import print_outcome
from trustax.analysis.records import read_records
from trustax.analysis.score_file import score_file
from trustax.analysis.score_report import print_score
from trustax.analysis.tokens import visible
from trustax.errors import UserError
from trustax.evaluation.off_policy import OffPolicyOptions
from trustax.experiment import run
from trustax.experiment import sft as supervised
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.config_files import load_config
from trustax.experiment.convert import convert as run_conversion
from trustax.experiment.eval_report import write_evaluation
from trustax.experiment.overrides import apply_overrides
from trustax.experiment.plan import plan as run_plan
from trustax.experiment.plan_report import print_plan
from trustax.experiment.run_folder import default_folder
from trustax.experiment.suggest import nearest
from trustax.objectives import RECIPES
from trustax.typed import parse


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


def sft(config_file: Path, overrides: Sequence[str], *, output: Path | None, overwrite: bool) -> None:
    """Train on given answers, and say where the parameters are and how to go on from them."""
    config = _config(config_file, overrides)
    folder = supervised.default_folder(config) if output is None else output
    loss = supervised.sft(config, folder, overwrite=overwrite)
    print(f"loss: {loss:.4f} nats per token")
    print(f"run folder: {folder} (trustax train {config_file} policy.start={folder} supervised.steps=0)")


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


def evaluate(config_file: Path, overrides: Sequence[str], *, checkpoint: Path | None, output: Path | None) -> None:
    """Print held-out accuracy, sampled and greedy, with intervals; write a report and a page where asked to."""
    config = _config(config_file, overrides)
    found = run.evaluate(config, checkpoint=_existing(checkpoint))
    print(f"sampled: {found.sampled:.1%}")
    print(f"greedy:  {found.greedy:.1%}")
    console = Console()
    print_estimates(console, found.estimates, greedy=found.greedy)
    if output is not None:
        write_evaluation(config, found, output, checkpoint=checkpoint)
        console.print(f"report: {output / 'eval.html'} (eval.json)", markup=False, soft_wrap=True)


def convert(source: Path, folder: Path, *, dtype: str | None, shard_bytes: int, adapter: bool) -> None:
    """Write a policy as a Hugging Face folder, or its adapters in PEFT's layout, and say what is in it."""
    files = run_conversion(source, folder, dtype=dtype, shard_bytes=shard_bytes, adapter=adapter)
    print(f"{folder}: {', '.join(files)}")


def log_rollouts(
    config_file: Path, overrides: Sequence[str], *, checkpoint: Path | None, count: int, file: Path
) -> None:
    """Write completions of held-out prompts with the log-probs that they were drawn with."""
    config = _config(config_file, overrides)
    records = run.log_rollouts(config, checkpoint=_existing(checkpoint), count=count)
    file.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    print(f"{len(records)} completions: {file}")


def off_policy(
    config_file: Path,
    overrides: Sequence[str],
    *,
    checkpoint: Path | None,
    rollouts: Path,
    options: OffPolicyOptions,
    layout: str | None,
    skip_bad: bool,
    json_file: Path | None,
) -> None:
    """Print what a checkpoint is worth by another policy's completions."""
    found = run.off_policy(
        _config(config_file, overrides),
        checkpoint=_existing(checkpoint),
        rollouts=rollouts,
        options=options,
        layout=layout,
        skip_bad=skip_bad,
    )
    if json_file is not None:
        json_file.write_text(off_policy_json(found) + "\n", encoding="utf-8")
    print_off_policy(Console(), found)


def score(
    file: Path,
    *,
    recipes: str | None,
    settings: Sequence[str],
    layout: str | None,
    skip_bad: bool,
    vocab_size: int | None,
    tokens: int | None,
    json_file: Path | None,
) -> None:
    """Print what recipes would mask in a file of rollouts."""
    names = None if recipes is None else [name.strip() for name in recipes.split(",") if name.strip()]
    found = score_file(
        file,
        recipes=_known_recipes(names),
        settings=_settings(settings),
        layout=layout,
        skip_bad=skip_bad,
        vocab_size=vocab_size,
        tokens=0 if tokens is None else tokens,
    )
    if json_file is not None:
        json_file.write_text(found.to_json() + "\n", encoding="utf-8")
    console = Console()
    print_score(console if console.is_terminal else Console(width=120), found)


def _known_recipes(names: list[str] | None) -> list[str] | None:
    if names == []:
        raise UserError("--recipes names no recipe; leave it out to ask all of them")
    for name in names if names is not None else []:
        if name not in RECIPES:
            raise UserError(f"no recipe {name!r}{nearest(name, RECIPES)}")
    return names


def _settings(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``recipe.name=value`` by recipe; a value is read as the type of its default."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        recipe, dot, name = key.strip().partition(".")
        if not (equals and dot):
            raise UserError(f"--set {text!r} must be recipe.name=value")
        if recipe not in RECIPES:
            raise UserError(f"--set {text}: no recipe {recipe!r}{nearest(recipe, RECIPES)}")
        parameters = inspect.signature(RECIPES[recipe]).parameters
        if name not in parameters:
            raise UserError(f"--set {text}: {recipe} has no hyperparameter {name!r}{nearest(name, parameters)}")
        try:
            found.setdefault(recipe, {})[name] = parse(value, _kind(parameters[name].default))
        except ValueError as error:
            raise UserError(f"--set {key.strip()} must be {error}") from None
    return found


def _kind(default: Any) -> Any:
    """What a hyperparameter may be, by its default: numbers are floats, and words are checked by the recipe."""
    return float if type(default) in (int, float) else type(default) if isinstance(default, bool | str) else Any


def plan(config_file: Path, overrides: Sequence[str], *, topology: str, json_file: Path | None) -> None:
    """Say whether a run fits a machine, and what bounds it there."""
    jax.config.update("jax_platforms", "cpu")  # nothing runs: whatever accelerator is here stays untouched
    found = run_plan(_config(config_file, overrides), topology)
    if json_file is not None:
        json_file.write_text(json.dumps(dataclasses.asdict(found) | {"fits": found.fits}, indent=1) + "\n")
    print_plan(Console(), found)


def _config(path: Path, overrides: Sequence[str]) -> ExperimentConfig:
    return apply_overrides(load_config(path), overrides)


def _existing(checkpoint: Path | None) -> Path | None:
    if checkpoint is not None and not checkpoint.is_dir():
        raise UserError(f"no folder {checkpoint}; give --checkpoint a run folder, such as runs/tiny-seed0")
    return checkpoint
