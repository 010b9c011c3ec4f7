"""Run folders: new, resumed or refused, and nothing is lost in any case."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trustax.errors import ConfigError, RunError
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.files import write_atomically
from trustax.experiment.run_folder import RunFolder, default_folder, read_config
from trustax.training.config import OptimizerConfig, TrainConfig

SRC = Path(__file__).parents[3] / "src"


def config(steps: int = 10, **changes) -> ExperimentConfig:
    return ExperimentConfig(name="toy", train=TrainConfig(steps=steps), **changes)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def finished_run(folder: Path, config_: ExperimentConfig) -> None:
    with RunFolder(folder, config_) as run:
        run.metrics_file.write_text('{"step": 1}\n')
        run.checkpoints.mkdir()
        (run.checkpoints / "5").mkdir()
        (run.checkpoints / "5" / "data").write_bytes(b"params")
        run.summary_file.write_text("{}")


def refusal(*arguments, **keywords) -> str:
    with pytest.raises(ConfigError) as caught:
        RunFolder(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("exists", [False, True], ids=["absent", "empty"])
def test_a_new_run_records_its_config_and_versions(tmp_path, exists):
    folder = tmp_path / "deep" / "run"
    if exists:
        folder.mkdir(parents=True)
    with RunFolder(folder, config()) as run:
        assert not run.resumed
    assert read_config(folder) == config()
    document = json.loads((folder / "config.json").read_text())
    assert {"trustax", "jax", "python"} <= document["versions"].keys()
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "config.json"]


def test_the_same_config_resumes_and_may_run_longer(tmp_path):
    finished_run(tmp_path, config(10))
    before = contents(tmp_path)
    with RunFolder(tmp_path, config(10)) as run:
        assert run.resumed and run.version_changes == []
    assert contents(tmp_path) == before
    with RunFolder(tmp_path, config(20)) as run:
        assert run.resumed
    assert read_config(tmp_path).train.steps == 20  # config.json tells what was really run
    assert "train.steps: 20 → 10" in refusal(tmp_path, config(10))


def test_another_config_is_refused_with_the_difference_and_nothing_is_touched(tmp_path):
    finished_run(tmp_path, config())
    before = contents(tmp_path)
    text = refusal(tmp_path, config(20, seed=1, optimizer=OptimizerConfig(learning_rate=1e-3)))
    assert "seed: 0 → 1; optimizer.learning_rate: 2e-05 → 0.001" in text
    assert "--overwrite" in text
    assert "train.steps" not in text  # that alone would be no obstacle
    assert contents(tmp_path) == before


def test_overwrite_removes_the_run_and_nothing_else(tmp_path):
    finished_run(tmp_path, config())
    (tmp_path / "notes.txt").write_text("mine")
    with RunFolder(tmp_path, config(seed=1), overwrite=True) as run:
        assert not run.resumed
    assert sorted(contents(tmp_path)) == ["config.json", "notes.txt"]
    assert read_config(tmp_path).seed == 1


def test_overwrite_does_not_follow_links_out_of_the_folder(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    with RunFolder(tmp_path / "run", config()) as run:
        run.checkpoints.symlink_to(elsewhere)
    RunFolder(tmp_path / "run", config(), overwrite=True).close()
    assert (elsewhere / "precious").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_foreign_files_is_refused_even_with_overwrite(tmp_path, overwrite):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "thesis.tex" in refusal(tmp_path, config(), overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("text", ["{", "{}", '{"trustax_run": 99}', "[1]", '{"name": "some tool\'s"}'])
def test_a_config_json_that_is_not_ours_is_refused_even_with_overwrite(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    refusal(tmp_path, config(), overwrite=True)
    assert (tmp_path / "config.json").read_text() == text


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("x")
    assert "is a file" in refusal(tmp_path / "run", config())


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises((ConfigError, RunError), match="file/run"):
        RunFolder(tmp_path / "file" / "run", config())


HOLD = """
import sys
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.run_folder import RunFolder
from trustax.training.config import TrainConfig
run = RunFolder(sys.argv[1], ExperimentConfig(name="toy", train=TrainConfig(steps=10)))
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_cannot_use_one_folder_and_a_dead_one_does_not_count(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            text = refusal(tmp_path, config(), overwrite=True)
            assert "in use by another run" in text and f"process {holder.pid}" in text
        finally:
            holder.kill()
    with RunFolder(tmp_path, config()) as run:  # the lock file is still there, its owner is not
        assert run.resumed


def test_versions_that_changed_are_told(tmp_path):
    finished_run(tmp_path, config())
    document = json.loads((tmp_path / "config.json").read_text())
    document["versions"]["jax"] = "0.0.1"
    (tmp_path / "config.json").write_text(json.dumps(document))
    with RunFolder(tmp_path, config()) as run:
        assert len(run.version_changes) == 1 and run.version_changes[0].startswith("jax: 0.0.1 → ")


def test_a_process_that_died_while_writing_the_first_file_leaves_an_empty_folder(tmp_path):
    (tmp_path / ".config.json.tmp").write_text('{"half')
    with RunFolder(tmp_path, config()) as run:
        assert not run.resumed


def test_the_default_folder_is_named_after_the_run():
    assert default_folder(config(seed=3)) == Path("runs/toy-seed3")


def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_atomically(path, "old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(RunError, match=r"cannot write .*summary.json: No space left on device"):
        write_atomically(path, "new")
    assert path.read_text() == "old"


def test_reading_a_folder_without_a_run_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"no config\.json"):
        read_config(tmp_path)
