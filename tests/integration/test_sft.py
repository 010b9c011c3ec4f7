"""The supervised stage: it learns, it resumes, and training starts from what it left."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from trustax.cli.main import main
from trustax.errors import ConfigError
from trustax.experiment import run
from trustax.experiment.assemble import build_parts
from trustax.experiment.run import trained_params
from trustax.experiment.sft import sft


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["metrics"]["sft/loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_it_learns_resumes_and_is_taken_up(small_config, tmp_path: Path) -> None:
    config = small_config(steps=1, checkpoint_every=4)
    config = dataclasses.replace(config, supervised=dataclasses.replace(config.supervised, steps=12))
    sft(config, tmp_path / "whole")
    assert losses(tmp_path / "whole")[-1] < losses(tmp_path / "whole")[0] - 0.3
    # Take the last checkpoint away: the run goes on from the one before, to the same end.
    sft(config, tmp_path / "again")
    for step in (tmp_path / "again" / "checkpoints").iterdir():
        if step.name.endswith("12"):
            shutil.rmtree(step)
    sft(config, tmp_path / "again")
    assert losses(tmp_path / "again") == losses(tmp_path / "whole")
    # Training starts there.
    none = dataclasses.replace(config.supervised, steps=0)
    start = dataclasses.replace(config.policy, start=str(tmp_path / "whole"))
    after = dataclasses.replace(config, policy=start, supervised=none, train=dataclasses.replace(config.train, steps=1))
    parts = build_parts(after)
    found = run.evaluate(after, checkpoint=tmp_path / "whole")
    summary = run.train(after, tmp_path / "rl")
    assert summary.eval_before == found.sampled
    left = trained_params(parts, tmp_path / "whole")
    differs = jax.tree.map(lambda a, b: not np.array_equal(a, b), left, parts.params)
    assert any(jax.tree.leaves(differs))
    with pytest.raises(ConfigError, match="holds a run of `trustax sft`"):
        run.train(config, tmp_path / "whole")


def test_without_steps_there_is_nothing_to_do(small_config, tmp_path: Path, capsys) -> None:
    config = small_config()
    none = dataclasses.replace(config, supervised=dataclasses.replace(config.supervised, steps=0))
    with pytest.raises(ConfigError, match=r"supervised\.steps is 0"):
        sft(none, tmp_path / "run")
    assert main(["sft", str(tmp_path / "absent.py")]) == 2
