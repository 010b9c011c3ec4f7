"""Runs that filter: by difficulty before them, by reward and length in them; and they resume bit for bit."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests.integration.conftest import run_files
from trustax.data import DifficultyConfig
from trustax.errors import ConfigError
from trustax.experiment import run


@pytest.mark.slow
def test_filters_report_and_resume(small_config, tmp_path: Path) -> None:
    config = small_config(steps=2, checkpoint_every=1)
    rollout = dataclasses.replace(config.rollout, dynamic_rounds=2, overlong="shape", overlong_buffer=2)
    # An untrained policy writes the right characters now and then, never all of them right.
    data = dataclasses.replace(config.data, difficulty=DifficultyConfig(samples=2, low=0.0, high=0.4))
    config = dataclasses.replace(config, rollout=rollout, data=data)
    run.train(config, tmp_path / "whole")
    found = json.loads((tmp_path / "whole" / "difficulty.json").read_text())
    assert found["of"] == 76 and 0 < found["kept"] < 76 and len(found["measured"]) == 76
    records = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    step = next(record["metrics"] for record in records if record["kind"] == "train")
    assert {"dynamic/rounds", "dynamic/length_bias", "overlong/penalty"} <= step.keys()
    one = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=1))
    run.train(one, tmp_path / "parts")
    (tmp_path / "parts" / "summary.json").unlink()
    run.train(config, tmp_path / "parts")
    assert trained(tmp_path / "parts") == trained(tmp_path / "whole")


def trained(folder: Path) -> list[str]:
    """Without the evaluation that a run of one step ends with."""
    return [line for line in run_files(folder)["samples"].splitlines() if '"kind": "train"' in line]


def test_a_filter_that_empties_the_split_says_what_did(small_config, tmp_path: Path) -> None:
    config = small_config()
    impossible = DifficultyConfig(samples=1, low=0.5, high=0.5)
    with pytest.raises(
        ConfigError, match=r"none of 76 prompts has a pass rate in 0.5..0.5 \(\d+ too hard, \d+ too easy\)"
    ):
        run.train(
            dataclasses.replace(config, data=dataclasses.replace(config.data, difficulty=impossible)), tmp_path / "run"
        )
