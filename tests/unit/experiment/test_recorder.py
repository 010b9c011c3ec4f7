"""What a run writes: strict, whole after every record, and the same after a resume."""

import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from trustax.errors import ConfigError, RunError
from trustax.experiment.progress import Progress
from trustax.experiment.recorder import Recorder, cut_back
from trustax.experiment.summary import Summary, read_summary
from trustax.types import Metric


def folder(path: Path) -> Any:
    return SimpleNamespace(
        metrics_file=path / "metrics.jsonl", samples_file=path / "samples.jsonl", tensorboard=path / "tensorboard"
    )


def strict(path: Path) -> list[dict]:
    def refuse(name: str):
        raise AssertionError(f"{name} is not strict JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def metric(total: float, weight: float) -> Metric:
    return Metric(total=jnp.float32(total), weight=jnp.float32(weight))


def test_numbers_are_strict_json_and_the_absent_are_absent(tmp_path):
    with Recorder(folder(tmp_path), total_steps=2) as recorder:
        recorder.step(
            1,
            {
                "mask/fraction": metric(3, 4),
                "mask/fraction_negative": metric(0, 0),  # no such token in this step
                "loss": float("nan"),
                "grad_norm": np.float32("inf"),
                "reward/mean": jnp.float32(0.5),
            },
            {"update_seconds": 1.5},
        )
        assert strict(tmp_path / "metrics.jsonl") == [  # on the disk before anything is closed
            {
                "step": 1,
                "kind": "train",
                "metrics": {"mask/fraction": 0.75, "reward/mean": 0.5},
                "nonfinite": ["loss", "grad_norm"],
                "timing": {"update_seconds": 1.5},
            }
        ]
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_samples_keep_their_tokens_and_lose_their_nans(tmp_path):
    record = {"phase": "eval", "tokens": ["4", "</s>"], "divergence": np.array([0.5, np.nan]), "kept": [True, False]}
    with Recorder(folder(tmp_path), total_steps=1) as recorder:
        recorder.samples(0, [record, record | {"tokens": ["é", "\n"]}])
        recorder.samples(1, [])
    assert strict(tmp_path / "samples.jsonl")[0] == {
        "step": 0, "kind": "eval", "phase": "eval", "tokens": ["4", "</s>"], "divergence": [0.5, None],
        "kept": [True, False],
    }  # fmt: skip
    assert len(strict(tmp_path / "samples.jsonl")) == 2


def record_steps(recorder: Recorder, steps: range) -> None:
    for step in steps:
        recorder.step(step, {"reward/mean": step / 10}, {"update_seconds": 0.0})
        recorder.samples(step, [{"phase": "train", "completion": f"answer {step}"}])


def test_a_resumed_run_writes_what_the_unbroken_one_does(tmp_path):
    for name in ("unbroken", "broken"):
        (tmp_path / name).mkdir()
    with Recorder(folder(tmp_path / "unbroken"), total_steps=6) as recorder:
        recorder.evaluation(0, {"eval/sampled": 0.1}, {})
        record_steps(recorder, range(1, 7))
        recorder.evaluation(6, {"eval/sampled": 0.9}, {})
    broken = folder(tmp_path / "broken")
    with Recorder(broken, total_steps=6) as recorder:
        recorder.evaluation(0, {"eval/sampled": 0.1}, {})
        record_steps(recorder, range(1, 5))
    with broken.metrics_file.open("a") as file:
        file.write('{"step": 5, "kin')  # killed in the middle of a line
    with Recorder(broken, total_steps=6, after_step=3) as recorder:  # the last checkpoint was of step 3
        record_steps(recorder, range(4, 7))
        recorder.evaluation(6, {"eval/sampled": 0.9}, {})
    with Recorder(broken, total_steps=6, after_step=6) as recorder:  # killed between the evaluation and the summary
        recorder.evaluation(6, {"eval/sampled": 0.9}, {})
    for name in ("metrics.jsonl", "samples.jsonl"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes()


def test_without_a_checkpoint_everything_is_started_over(tmp_path):
    with Recorder(folder(tmp_path), total_steps=6) as recorder:
        recorder.evaluation(0, {"eval/sampled": 0.1}, {})
        record_steps(recorder, range(1, 3))
    with Recorder(folder(tmp_path), total_steps=6):
        pass
    assert (tmp_path / "metrics.jsonl").read_text() == (tmp_path / "samples.jsonl").read_text() == ""


def test_cutting_back_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')

    def no_space(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_space)
    with pytest.raises(RunError, match="No space left"):
        cut_back(path, 1)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_a_full_disk_is_one_clear_line(tmp_path):
    places = folder(tmp_path)
    places.metrics_file = Path("/dev/full")
    if not places.metrics_file.exists():
        pytest.skip("no /dev/full here")
    recorder = Recorder(folder(tmp_path), total_steps=1)
    recorder._metrics_file = places.metrics_file
    with pytest.raises(RunError, match=r"cannot write /dev/full: No space left on device"):
        recorder.step(1, {"loss": 1.0}, {})
    recorder.close()


def test_plain_lines_where_there_is_no_terminal():
    out = io.StringIO()
    progress = Progress(14, console=Console(file=out, width=40))
    progress.step(3, {"reward/mean": 0.41234, "mask/fraction": 0.031}, {"tokens_per_second": 512.3})
    progress.evaluation(3, {"eval/sampled": 0.5, "eval/greedy": 0.75})
    progress.close()
    step, evaluation = out.getvalue().splitlines()
    assert step.startswith("step 3/14  reward 0.412  masked 3.1%  512 tok/s  ")
    assert evaluation == "evaluation after step 3: sampled 50.0%  greedy 75.0%"
    assert "\x1b" not in out.getvalue()


def test_a_progress_line_on_a_terminal():
    out = io.StringIO()
    progress = Progress(14, done=2, console=Console(file=out, force_terminal=True, width=120))
    progress.step(3, {"reward/mean": 0.41234}, {})
    progress.note("[b]not markup[/b]")
    progress.close()
    assert "3/14" in out.getvalue() and "reward 0.412" in out.getvalue()
    assert "[b]not markup[/b]" in out.getvalue()


def summary(**changes) -> Summary:
    values = {
        "name": "toy", "objective": "pdm_topk_kl", "seed": 0, "steps": 2, "eval_before": 0.1, "eval_after": 0.9,
        "greedy_before": 0.2, "greedy_after": 1.0, "wall_seconds": 3.0, "tokens_per_second": 100.0, "versions": {},
    }  # fmt: skip
    return Summary(**{**values, **changes})


def test_a_summary_is_read_back(tmp_path):
    summary().write(tmp_path / "summary.json")
    assert read_summary(tmp_path / "summary.json") == summary()
    with pytest.raises(ConfigError, match="not finished"):
        read_summary(tmp_path / "none.json")
    with pytest.raises(ValueError):
        summary(eval_after=math.nan).write(tmp_path / "bad.json")
    assert not (tmp_path / "bad.json").exists()
