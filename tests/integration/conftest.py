"""A run small enough to be done many times."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trustax.data import ArithmeticConfig, DataConfig
from trustax.evaluation import EvalConfig
from trustax.experiment import ExperimentConfig, ObjectiveConfig, VerifierConfig
from trustax.policies import PolicyConfig
from trustax.rollouts import RolloutConfig
from trustax.training import OptimizerConfig, SupervisedConfig, TrainConfig


@pytest.fixture(scope="session")
def small_config(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ExperimentConfig]:
    data_folder = tmp_path_factory.mktemp("data")

    def build(recipe: str = "pdm_topk_kl", **train: int) -> ExperimentConfig:
        return ExperimentConfig(
            name="small",
            policy=PolicyConfig(source="tiny"),
            data=DataConfig(source=ArithmeticConfig(), template="{prompt} =", folder=str(data_folder)),
            # Some completion has an even digit from the start, so that there is something to learn and to resume.
            verifier=VerifierConfig(name="python", options={"path": "tests.integration.grading:even_digits"}),
            rollout=RolloutConfig(prompts_per_step=4, group_size=4, max_prompt_tokens=8, max_new_tokens=3, top_k=5),
            objective=ObjectiveConfig(recipe=recipe),
            supervised=SupervisedConfig(steps=2, batch_size=8),
            optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=2),
            train=TrainConfig(**{"steps": 3, "minibatches": 2, "checkpoint_every": 2} | train),
            evaluation=EvalConfig(prompts=5, samples=2),
        )

    return build


def run_files(folder: Path) -> dict[str, str]:
    """What a run wrote, without what depends on the clock."""
    import json

    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    metrics = [{key: value for key, value in line.items() if key != "timing"} for line in lines]
    summary = json.loads((folder / "summary.json").read_text())
    timeless = {k: v for k, v in summary.items() if k not in ("wall_seconds", "tokens_per_second")}
    return {
        "metrics": json.dumps(metrics, indent=1),
        "samples": (folder / "samples.jsonl").read_text(),
        "summary": json.dumps(timeless, indent=1),
    }
