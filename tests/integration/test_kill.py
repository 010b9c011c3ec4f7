"""kill -9 of the real command, at a step that chance picks: the same command ends as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.integration.conftest import run_files
from tests.integration.test_resume import final_arrays

ROOT = Path(__file__).parents[2]
CONFIG = """
import sys
sys.path.insert(0, {root!r})
from trustax.data import ArithmeticConfig, DataConfig
from trustax.evaluation import EvalConfig
from trustax.experiment import ExperimentConfig, VerifierConfig
from trustax.rollouts import RolloutConfig
from trustax.training import OptimizerConfig, TrainConfig

def get_config():
    return ExperimentConfig(
        name="killed",
        data=DataConfig(source=ArithmeticConfig(), template="{{prompt}} =", folder={data!r}),
        verifier=VerifierConfig(name="python", options={{"path": "tests.integration.grading:even_digits"}}),
        rollout=RolloutConfig(prompts_per_step=4, group_size=4, max_prompt_tokens=8, max_new_tokens=3, top_k=5),
        optimizer=OptimizerConfig(learning_rate=1e-3),
        train=TrainConfig(steps=30, checkpoint_every=3),
        evaluation=EvalConfig(prompts=5, samples=2),
    )
"""


def start(config: Path, folder: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "trustax", "train", str(config), "--output", str(folder)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)


def steps_done(folder: Path) -> int:
    file = folder / "metrics.jsonl"
    return file.read_text().count('"train"') if file.exists() else 0


@pytest.mark.slow
def test_kill_9(tmp_path: Path) -> None:
    config = tmp_path / "killed.py"
    config.write_text(CONFIG.format(root=str(ROOT), data=str(tmp_path / "data")))
    assert start(config, tmp_path / "whole").wait(timeout=300) == 0
    when = random.SystemRandom().randint(1, 25)
    print(f"killed after step {when}")
    process = start(config, tmp_path / "run")
    deadline = time.monotonic() + 300
    while steps_done(tmp_path / "run") < when and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert start(config, tmp_path / "run").wait(timeout=300) == 0
    assert run_files(tmp_path / "run") == run_files(tmp_path / "whole")
    for mine, theirs in zip(final_arrays(tmp_path / "run"), final_arrays(tmp_path / "whole"), strict=True):
        np.testing.assert_array_equal(mine, theirs)
