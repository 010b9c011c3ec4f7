import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trustax.data import (
    ArithmeticConfig,
    DataConfig,
    JsonlConfig,
    ReasoningGymConfig,
    arithmetic,
    load,
    prepare,
    sources,
)
from trustax.data.sources import fingerprint

COUNTDOWN = ReasoningGymConfig("countdown", options={"min_numbers": 3, "max_numbers": 3}, train_size=12, test_size=5)


@pytest.mark.parametrize("split", ["train", "test"])
def test_files_give_back_what_was_generated(data_folder: Path, split: str) -> None:
    config = ArithmeticConfig(operation="chain", terms=2)
    source = load(DataConfig(config, folder=str(data_folder)), split)  # type: ignore[arg-type]
    assert [source[i] for i in range(len(source))] == arithmetic.split(config)[split]
    with pytest.raises(IndexError):
        source[len(source)]


def test_files_are_array_records_made_without_tensorflow(data_folder: Path) -> None:
    folder = prepare(ArithmeticConfig(operation="chain", terms=2), data_folder)
    assert len(list(folder.glob("*.array_record-*"))) == 2
    assert "tensorflow" not in sys.modules


def test_reasoning_gym_questions(data_folder: Path) -> None:
    train, test = (load(DataConfig(COUNTDOWN, folder=str(data_folder)), split) for split in ("train", "test"))
    assert (len(train), len(test)) == (12, 5)
    examples = [source[i] for source in (train, test) for i in range(len(source))]
    assert len({example.prompt for example in examples}) == 17
    for example in examples:
        record = json.loads(example.metadata)["reasoning_gym"]
        assert record["task"] == "countdown" and "'numbers'" in record["entry"]


def test_a_small_task_keeps_held_out_questions_out_of_training(data_folder: Path) -> None:
    config = ReasoningGymConfig("coin_flip", options={"min_trials": 3, "max_trials": 3}, train_size=20, test_size=200)
    with pytest.raises(ValueError, match="are not among the 200 held-out ones"):
        prepare(config, data_folder)
    assert not list(data_folder.glob("*coin_flip*")) and not list(data_folder.glob(".*coin_flip*"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ReasoningGymConfig("countdwn"), "no task 'countdwn'; it has: .*countdown"),
        (ReasoningGymConfig("countdown", options={"min_number": 3}), "refuses options.*min_number"),
        (ReasoningGymConfig("countdown", options={"min_numbers": 9, "max_numbers": 3}), "refuses options"),
    ],
)
def test_unknown_tasks_and_options_are_refused(tmp_path: Path, config: ReasoningGymConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(config, tmp_path)


def test_options_cannot_hold_what_the_config_sets() -> None:
    with pytest.raises(ValueError, match="options must not hold seed, size"):
        ReasoningGymConfig("countdown", options={"seed": 1, "size": 2})


def test_every_setting_is_part_of_the_key() -> None:
    """A changed setting never reads stale files (open-instruct#1518)."""
    config = ArithmeticConfig()
    changed = {
        "operation": "product", "digits": 2, "terms": 4, "train_size": 5, "test_size": 6, "test_fraction": 0.5,
        "split_by": "problem", "seed": 1,
    }  # fmt: skip
    assert changed.keys() == {field.name for field in dataclasses.fields(config)} - {"kind"}
    keys = {fingerprint(dataclasses.replace(config, **{name: value}), "1.0.0") for name, value in changed.items()}
    keys |= {fingerprint(config, "1.0.0"), fingerprint(config, "1.0.1")}
    assert len(keys) == len(changed) + 2
    assert fingerprint(COUNTDOWN, "1") != fingerprint(dataclasses.replace(COUNTDOWN, options={}), "1")


def test_an_interrupted_preparation_leaves_nothing_that_could_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trustax.data import builders

    def interrupted(self: builders.Arithmetic, examples: list) -> object:
        yield 0, dataclasses.asdict(examples[0])
        raise KeyboardInterrupt

    config = ArithmeticConfig(seed=3)
    with monkeypatch.context() as patched:
        patched.setattr(builders.Arithmetic, "_generate_examples", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(config, tmp_path)
    assert not list(tmp_path.iterdir())
    # A killed process can't tidy up; what it leaves has another name.
    (tmp_path / f".arithmetic-sum-1-{fingerprint(config, '1.0.0')}.killed").mkdir()
    assert len(load(DataConfig(config, folder=str(tmp_path)), "test")) == 24


def test_two_processes_may_prepare_the_same_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower one finds the folder in place when it wants to rename its own."""
    config = ArithmeticConfig(seed=4)
    rename = os.rename

    def faster_process_first(source: str, destination: Path) -> None:
        monkeypatch.setattr(os, "rename", rename)
        prepare(config, tmp_path)
        rename(source, destination)

    monkeypatch.setattr(os, "rename", faster_process_first)
    folder = prepare(config, tmp_path)
    assert list(tmp_path.iterdir()) == [folder]
    assert len(load(DataConfig(config, folder=str(tmp_path)), "train")) == 76


def test_preparing_is_quiet_and_done_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare(ArithmeticConfig(seed=5), tmp_path)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(sources.tempfile, "mkdtemp", None)  # would be called to prepare anew
    assert prepare(ArithmeticConfig(seed=5), tmp_path) == folder


def test_jsonl_splits(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"p{i}", "answer": i}) + "\n" for i in range(5)))
    with pytest.raises(ValueError, match="no test split: set test_path or test_size"):
        load(DataConfig(JsonlConfig(str(path))), "test")
    held_out = DataConfig(JsonlConfig(str(path), test_size=2))
    assert (len(load(held_out, "train")), len(load(held_out, "test"))) == (3, 2)


def test_the_package_imports_without_the_heavy_libraries() -> None:
    """The core has to import on machines that lack grain, tfds and reasoning-gym, and say so when they are needed."""
    code = """
import sys
for name in ("grain", "tensorflow_datasets", "reasoning_gym", "array_record"):
    sys.modules[name] = None
from trustax import data, verifiers
source = data.ListSource("s", [data.Example(0, "1", "1")])
for call in (
    lambda: data.PromptStream(source, batch_size=1, seed=0),
    lambda: data.load(data.DataConfig(), "train"),
    lambda: verifiers.build("reasoning_gym"),
):
    try:
        call()
    except ImportError as error:
        assert "pip install" in str(error), error
    else:
        raise AssertionError("no ImportError")
"""
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
