"""``trustax eval --off-policy`` and ``trustax sample --rollouts``: words to arguments, and complaints in one line."""

import json
import math
from types import SimpleNamespace

import pytest

from trustax.cli import commands
from trustax.cli.main import main
from trustax.ope.completions import AtTau, Report

REPORT = Report(
    rollouts=40, prompts=10, behavior=0.25, estimate=0.3125, low=0.2, high=0.4, level=0.9, tau=2.0, normalized=0.3,
    effective=30.0, truncated=0.125, importance=0.5, self_normalized=0.375,
    sweep=[AtTau(2.0, 0.3125, 0.2, 0.4, 0.3, 0.125), AtTau(math.inf, 0.5, 0.1, 0.9, 0.375, 0.0)],
)  # fmt: skip


@pytest.fixture
def config(tmp_path) -> str:
    path = tmp_path / "toy.py"
    path.write_text(
        "from trustax.experiment.config import ExperimentConfig\n"
        "from trustax.training.config import TrainConfig\n"
        "def get_config():\n    return ExperimentConfig(name='toy', train=TrainConfig(steps=2))\n"
    )
    return str(path)


@pytest.fixture
def seen(monkeypatch) -> SimpleNamespace:
    calls = SimpleNamespace(off_policy=[], log=[])
    jobs = SimpleNamespace(
        off_policy=lambda config, **keywords: calls.off_policy.append(keywords) or REPORT,
        log_rollouts=lambda config, **keywords: calls.log.append(keywords) or [{"tokens": [1], "reward": 1.0}],
    )
    monkeypatch.setattr(commands, "run", jobs)
    return calls


def test_every_word_is_passed_on_and_the_report_is_printed_and_written(seen, config, tmp_path, capsys):
    out = tmp_path / "report.json"
    words = ["--off-policy", "r.jsonl", "--checkpoint", str(tmp_path), "--tau", "2", "--value", "linear"]
    words += ["--ess-floor", "5", "--layout", "vllm", "--skip-bad", "--json", str(out)]
    assert main(["eval", config, *words]) == 0
    (call,) = seen.off_policy
    assert (str(call["rollouts"]), call["checkpoint"], call["layout"], call["skip_bad"]) == (
        "r.jsonl", tmp_path, "vllm", True,
    )  # fmt: skip
    assert (call["options"].tau, call["options"].value, call["options"].floor) == (2.0, "linear", 5.0)
    shown = capsys.readouterr().out
    for text in ("0.3125", "90% interval 0.2 to 0.4", "30.0 (75.0%)", "12.5% of the tokens truncated", "inf"):
        assert text in shown
    written = json.loads(out.read_text())
    assert written["estimate"] == 0.3125 and written["sweep"][1]["tau"] == "Infinity"


def test_what_is_left_out_has_its_default(seen, config):
    assert main(["eval", config, "--off-policy", "r.jsonl"]) == 0
    options = seen.off_policy[0]["options"]
    assert (options.tau, options.value, options.floor) == (None, "group", 10.0)


def test_rollouts_are_written_one_a_line(seen, config, tmp_path, capsys):
    out = tmp_path / "r.jsonl"
    assert main(["sample", config, "--rollouts", str(out), "--count", "3"]) == 0
    assert seen.log == [{"checkpoint": None, "count": 3}]
    assert out.read_text() == '{"tokens": [1], "reward": 1.0}\n' and "1 completions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["eval", "{config}", "--tau", "2"], "--tau belongs to --off-policy ROLLOUTS, which is not given"),
        (["eval", "{config}", "--skip-bad"], "--skip-bad belongs to --off-policy"),
        (["eval", "{config}", "--off-policy", "r.jsonl", "--tau", "0"], "tau must be above 0, got 0"),
        (["eval", "{config}", "--off-policy", "r.jsonl", "--ess-floor", "-1"], "floor must be at least 0, got -1"),
        (["eval", "{config}", "--off-policy", "r.jsonl", "--value", "critic"], "invalid choice: 'critic'"),
        (["sample", "{config}", "--rollouts", "r.jsonl", "--greedy"], "no --prompt, --greedy"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(seen, config, capsys, words, expected):
    assert main([word.format(config=config) for word in words]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("trustax: ") and complaint.count("\n") == 1 and expected in complaint
