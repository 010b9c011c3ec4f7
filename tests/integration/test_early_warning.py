"""A run that was asked for it writes the estimate beside its other metrics."""

import json

import pytest

from trustax.experiment import run


@pytest.mark.slow
def test_the_estimate_is_recorded_after_every_step(small_config, tmp_path):
    run.train(small_config(early_warning=True, steps=2, checkpoint_every=0), tmp_path / "run")
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [record["metrics"] for record in records if record["kind"] == "train"]
    assert len(steps) == 2 and all(0 < step["ope/effective"] <= 16 for step in steps)
    assert all(step["ope/low"] <= step["ope/estimate"] <= step["ope/high"] for step in steps if "ope/estimate" in step)
