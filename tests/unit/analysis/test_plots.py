"""Figures from a run's metrics: drawn from what is there, with nothing made up for what is not."""

import json

import numpy as np
import pytest
from matplotlib import image

from trustax.analysis.plots import plot_run
from trustax.analysis.records import read_records, series
from trustax.errors import UserError


def train(step: int, **metrics: float) -> dict:
    return {
        "step": step,
        "kind": "train",
        "metrics": {k.replace("__", "/"): v for k, v in metrics.items()},
        "timing": {},
    }


def write(path, records) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_series_leave_out_absent_steps_and_other_kinds(tmp_path):
    records = [train(1, reward__mean=0.1), train(2), train(3, reward__mean=0.3)]
    records.append({"step": 3, "kind": "evaluation", "metrics": {"reward/mean": 9.0}})
    assert series(records, "reward/mean") == ([1, 3], [0.1, 0.3])
    assert series(records, "none") == ([], [])


def test_every_panel_with_numbers_and_an_overview_are_drawn(tmp_path):
    records = [
        train(i, reward__mean=i / 5, divergence__mean=0.01 * i, mask__fraction=0.1, mask__fraction_positive=0.2,
              mask__fraction_negative=0.0, entropy__mean=1.0 / i)
        for i in range(1, 6)
    ]  # fmt: skip
    write(tmp_path / "m.jsonl", records)
    written = plot_run(tmp_path / "m.jsonl", tmp_path / "plots", title="toy")
    assert [path.name for path in written] == [
        "reward.png",
        "divergence.png",
        "masked.png",
        "entropy.png",
        "overview.png",
    ]
    for path in written:
        pixels = image.imread(path)[..., :3]
        np.testing.assert_array_equal(pixels[0, 0], np.ones(3))  # a light ground
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 10  # and something on it
    assert image.imread(written[-1]).shape[0] > image.imread(written[0]).shape[0]


def test_a_panel_without_numbers_is_left_out(tmp_path):
    write(tmp_path / "m.jsonl", [train(1, reward__mean=2.5)])  # one step only, and a reward beyond 0..1
    assert [path.name for path in plot_run(tmp_path / "m.jsonl", tmp_path)] == ["reward.png", "overview.png"]
    write(tmp_path / "m.jsonl", [])
    assert plot_run(tmp_path / "m.jsonl", tmp_path) == []


def test_the_figure_follows_the_numbers(tmp_path):
    for name, values in (("a", [0.1, 0.9]), ("b", [0.9, 0.1])):
        write(tmp_path / f"{name}.jsonl", [train(i, reward__mean=value) for i, value in enumerate(values)])
        plot_run(tmp_path / f"{name}.jsonl", tmp_path / name)
    a, b = (image.imread(tmp_path / name / "reward.png") for name in "ab")
    assert a.shape == b.shape and not np.array_equal(a, b)


def test_a_broken_line_is_named_and_a_torn_last_line_is_not_a_record(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1, "text": "a\u2028b"}\n{"step": 2')
    assert read_records(path) == [{"step": 1, "text": "a\u2028b"}]
    path.write_text('{"step": 1}\nrubbish\n{"step": 2}\n')
    with pytest.raises(UserError, match=r"m.jsonl:2 is not JSON"):
        read_records(path)
