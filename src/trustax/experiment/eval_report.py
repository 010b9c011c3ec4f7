"""What `trustax eval` is asked about, and the files that it writes."""

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

from trustax.analysis.eval_page import eval_page
from trustax.analysis.records import read_records
from trustax.errors import ConfigError
from trustax.evaluation.evaluate import Evaluation
from trustax.experiment.assemble import Parts, load_policy_tokenizer
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.config_files import from_json
from trustax.experiment.files import naming, write_atomically
from trustax.objectives import RECIPES


def evaluated_policy(config: ExperimentConfig, checkpoint: Path | None) -> tuple[ExperimentConfig, Path | None]:
    """A Hugging Face folder as the policy of the config, not trained before it is measured; runs as they are."""
    if checkpoint is None or (checkpoint / "checkpoints").is_dir() or not any(checkpoint.glob("*.safetensors")):
        return config, checkpoint
    policy = dataclasses.replace(config.policy, source=str(checkpoint))
    return dataclasses.replace(config, policy=policy, supervised=dataclasses.replace(config.supervised, steps=0)), None


def check_tokenizer(parts: Parts, checkpoint: Path) -> None:
    """Refuse a run whose policy reads other token ids than the data of this config are written in."""
    file = checkpoint / "config.json"
    if not file.is_file():  # a bare folder of checkpoints says nothing of its tokenizer
        return
    try:
        trained = from_json(json.loads(file.read_text(encoding="utf-8"))["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} is not the record of a run: {error}") from error
    if trained.policy.source == parts.config.policy.source:
        return
    if load_policy_tokenizer(trained).fingerprint != parts.tokenizer.fingerprint:
        raise ConfigError(
            f"{checkpoint} was trained with the tokenizer of policy.source = {trained.policy.source}, the config's is "
            f"that of {parts.config.policy.source}, and the two differ; set policy.source to the first"
        )


def write_evaluation(config: ExperimentConfig, found: Evaluation, folder: Path, *, checkpoint: Path | None) -> None:
    """``eval.json`` and ``eval.html``; the page also shows the last training step of a run folder."""
    report: dict[str, Any] = {
        "name": config.name,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "settings": dataclasses.asdict(config.evaluation),
        "sampled": found.sampled,
        "greedy": found.greedy,
        "estimates": {name: list(estimate) for name, estimate in found.estimates.items()},
        "prompts": found.prompts,
    }
    page = eval_page(report, trained=_last_step(checkpoint), delta=_delta(config))
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "eval.json", json.dumps(report, allow_nan=False, ensure_ascii=False, indent=1) + "\n")
    write_atomically(folder / "eval.html", page)


def _last_step(run: Path | None) -> list[dict[str, Any]]:
    if run is None or not (run / "samples.jsonl").is_file():
        return []
    trained = [record for record in read_records(run / "samples.jsonl") if record["kind"] == "train"]
    return [record for record in trained if record["step"] == trained[-1]["step"]]


def _delta(config: ExperimentConfig) -> float | None:
    """The threshold of the config's recipe, where it has one number for it."""
    if "delta" in config.objective.hyperparameters:
        value = config.objective.hyperparameters["delta"]
    else:
        parameters = inspect.signature(RECIPES[config.objective.recipe]).parameters
        value = parameters["delta"].default if "delta" in parameters else None
    return float(value) if isinstance(value, int | float) else None
