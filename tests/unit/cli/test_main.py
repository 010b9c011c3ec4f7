"""The command line: what it passes on, what it prints, and its exit codes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trustax.cli import commands
from trustax.cli.main import main
from trustax.errors import CheckpointError, RunError, RunInterrupted
from trustax.experiment.summary import Summary

SRC = Path(__file__).parents[3] / "src"

CONFIG = """
from trustax.experiment.config import ExperimentConfig
from trustax.training.config import TrainConfig

def get_config():
    return ExperimentConfig(name="toy", train=TrainConfig(steps=2))
"""


@pytest.fixture
def config(tmp_path) -> str:
    path = tmp_path / "toy.py"
    path.write_text(CONFIG)
    return str(path)


@pytest.fixture
def jobs(monkeypatch) -> SimpleNamespace:
    """The three jobs, replaced by ones that note how they were called."""
    calls = SimpleNamespace(train=[], sample=[], evaluate=[])

    def train(config, folder, *, overwrite=False):
        calls.train.append((config, folder, overwrite))
        return Summary("toy", "pdm_topk_kl", config.seed, 2, 0.125, 0.75, 0.5, 1.0, 3.0, 100.0, {})

    def sample(config, **keywords):
        calls.sample.append(keywords)
        return [
            {"prompt": "3+4=", "completion": "7", "verdict": "correct"},
            {"prompt": "3+4=", "completion": "1\n\x1b[31m2", "verdict": "wrong"},
        ]

    def evaluate(config, **keywords):
        calls.evaluate.append(keywords)
        return SimpleNamespace(sampled=0.25, greedy=0.5, estimates={"avg@8": (0.25, 0.1, 0.4)})

    monkeypatch.setattr(commands, "run", SimpleNamespace(train=train, sample=sample, evaluate=evaluate))
    return calls


def complaint(capsys) -> str:
    """What was said on stderr: one line."""
    captured = capsys.readouterr()
    assert captured.err.startswith("trustax: ") and captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    return captured.err


def test_train_passes_on_config_overrides_and_folder(jobs, config, tmp_path, capsys):
    folder = tmp_path / "out"
    arguments = ["train", config, "seed=3", "--output", str(folder), "optimizer.learning_rate=1e-5", "--overwrite"]
    assert main(arguments) == 0
    ((seen, where, overwrite),) = jobs.train
    assert (seen.seed, seen.optimizer.learning_rate, where, overwrite) == (3, 1e-5, folder, True)
    out = capsys.readouterr().out
    assert "12.5%" in out and "75.0%" in out and "+62.5 points" in out and str(folder) in out


def test_train_has_a_default_folder_and_does_not_overwrite(jobs, config):
    assert main(["train", config, "seed=4"]) == 0
    assert jobs.train[0][1:] == (Path("runs/toy-seed4"), False)


def test_sample_prints_each_prompt_once_and_nothing_that_steers_the_terminal(jobs, config, tmp_path, capsys):
    arguments = ["sample", config, "--checkpoint", str(tmp_path), "--prompt", "3+4=", "--prompt", "x", "--count", "2"]
    assert main([*arguments, "--greedy"]) == 0
    assert jobs.sample == [{"checkpoint": tmp_path, "prompts": ["3+4=", "x"], "count": 2, "greedy": True}]
    assert capsys.readouterr().out.splitlines() == ["3+4=", "  7", "  1⏎\\x1b[31m2"]
    assert main(["sample", config]) == 0  # held-out prompts have an answer, so there is a verdict to show
    assert jobs.sample[1] == {"checkpoint": None, "prompts": None, "count": 4, "greedy": False}
    assert "  7  (correct)" in capsys.readouterr().out.splitlines()


def test_eval_prints_both_accuracies(jobs, config, capsys):
    assert main(["eval", config]) == 0
    assert jobs.evaluate == [{"checkpoint": None}]
    out = capsys.readouterr().out
    assert out.startswith("sampled: 25.0%\ngreedy:  50.0%\n") and "10.0% … 40.0%" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "COMMAND; see trustax --help"),
        (["trian", "{config}"], "invalid choice: 'trian'"),
        (["train"], "CONFIG; see trustax train --help"),
        (["train", "{folder}/none.py"], "no config file"),
        (["train", "{config}", "--outptu", "x"], "unknown option --outptu; see trustax train --help"),
        (["train", "{config}", "--out", "x"], "unknown option --out;"),  # no silent abbreviations
        (["train", "{config}", "learning_rte=1"], "unknown key learning_rte"),
        (["train", "{config}", "optimizer.learning_rte=1"], "did you mean optimizer.learning_rate?"),
        (["train", "{config}", "optimizer.learning_rate=abc"], "must be a number, got 'abc'"),
        (["train", "{config}", "rollout.prompts_per_step=7"], "= 7 does not divide into train.minibatches = 2"),
        (["sample", "{config}", "--count", "0"], "at least 1, got '0'"),
        (["sample", "{config}", "--checkpoint", "{folder}/none"], "no folder"),
        (["eval", "{config}", "--checkpoint", "{config}"], "no folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(jobs, config, tmp_path, capsys, arguments, expected):
    filled = [argument.format(config=config, folder=tmp_path) for argument in arguments]
    assert main(filled) == 2
    assert expected in complaint(capsys)
    assert jobs == SimpleNamespace(train=[], sample=[], evaluate=[])


def test_a_config_file_that_exits_is_bad_input(jobs, tmp_path, capsys):
    """Exit code 0 would say that the job was done."""
    path = tmp_path / "leaves.py"
    path.write_text("import sys\nsys.exit(0)\n")
    assert main(["train", str(path)]) == 2
    assert "leaves.py" in complaint(capsys)


def fails_with(monkeypatch, error: BaseException) -> None:
    def train(*_, **__):
        raise error

    monkeypatch.setattr(commands, "run", SimpleNamespace(train=train))


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (RunError("step 3: loss not finite;\n the last good checkpoint is step 2"), 1, "step 3: loss not finite; the"),
        (CheckpointError("checkpoint of step 5 could not be written"), 1, "step 5"),
        (RunInterrupted("stopped after step 4; the state is saved"), 130, "stopped after step 4"),
        (RunInterrupted("stopped", signal_number=signal.SIGTERM), 143, "stopped"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device", "runs/x"), 1, "runs/x: No space left on device"),
        (FileNotFoundError(2, "No such file or directory", "model.gguf"), 2, "model.gguf: No such file"),
    ],
)
def test_each_end_has_its_exit_code_and_one_line(monkeypatch, config, capsys, error, code, expected):
    fails_with(monkeypatch, error)
    assert main(["train", config]) == code
    assert expected in complaint(capsys)


def test_a_value_error_of_our_own_layers_is_bad_input(monkeypatch, config, capsys):
    from trustax.typed import parse

    monkeypatch.setattr(commands, "run", SimpleNamespace(train=lambda *_, **__: parse("x", int)))
    assert main(["train", config]) == 2
    assert "a whole number, got 'x'" in complaint(capsys)


@pytest.mark.parametrize("error", [ValueError("from a library"), TypeError("ours"), OSError("nameless")])
def test_a_fault_of_ours_keeps_its_traceback(monkeypatch, config, error):
    fails_with(monkeypatch, error)
    with pytest.raises(type(error)):
        main(["train", config])


@pytest.mark.parametrize("command", [[], ["train"], ["sample"], ["eval"]], ids=["top", "train", "sample", "eval"])
def test_help_has_an_example_and_exit_code_0(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert "usage: trustax" in out
    if command:
        assert f"example:\n  trustax {command[0]} configs/" in out


def test_help_answers_without_importing_what_is_slow():
    code = (
        "import sys, trustax.cli.main as m\n"
        "try: m.main(['train', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('jax', 'numpy', 'flax', 'orbax', 'matplotlib', 'rich') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and result.stdout.splitlines()[-1] == "[]", result.stdout + result.stderr
