"""Whatever stops a run, and whenever: the same command ends where the uninterrupted run would have."""

import json
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.integration.conftest import run_files
from trustax.checkpoint.checkpointer import Checkpointer
from trustax.errors import RunInterrupted
from trustax.experiment import ExperimentConfig, run
from trustax.experiment.interrupts import Interrupts
from trustax.training import loop


class Crash(BaseException):
    """Stands for a process that is gone: nothing below may catch it."""


def final_arrays(folder: Path) -> list[np.ndarray]:
    with Checkpointer(folder / "checkpoints") as checkpointer:
        last = checkpointer.latest_step()
        assert last is not None
        arrays, _ = checkpointer.restore(last, {"params": None, "opt_state": None})
    return jax.tree.leaves(arrays)


@pytest.fixture(scope="module")
def uninterrupted(small_config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run.train(small_config(), folder)
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    norms = [step["metrics"]["update/grad_norm"] for step in steps if step["kind"] == "train"]
    assert len(norms) == 3 and min(norms) > 1e-3  # there is something to lose
    return folder


def assert_equal_runs(one: Path, other: Path) -> None:
    assert run_files(one) == run_files(other)
    for mine, theirs in zip(final_arrays(one), final_arrays(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("updates", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_crash_in_an_update(
    updates: int, small_config: Callable[..., ExperimentConfig], uninterrupted: Path, tmp_path: Path, monkeypatch
) -> None:
    real, calls = loop._update, []

    def crash_later(*args) -> None:
        real(*args)
        calls.append(None)
        if len(calls) == updates:
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_update", crash_later)
        with pytest.raises(Crash):
            run.train(small_config(), tmp_path / "run")
    run.train(small_config(), tmp_path / "run")
    assert_equal_runs(tmp_path / "run", uninterrupted)


@pytest.mark.parametrize("poll", [4, *(pytest.param(poll, marks=pytest.mark.slow) for poll in (1, 2, 6, 9))])
def test_a_stop_request_in_any_phase(
    poll: int, small_config: Callable[..., ExperimentConfig], uninterrupted: Path, tmp_path: Path, monkeypatch
) -> None:
    polls = []

    def stop_requested(self: Interrupts) -> bool:
        polls.append(None)
        return len(polls) >= poll

    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "stop_requested", stop_requested)
        with pytest.raises(RunInterrupted):
            run.train(small_config(), tmp_path / "run")
    run.train(small_config(), tmp_path / "run")
    assert_equal_runs(tmp_path / "run", uninterrupted)


@pytest.mark.slow
def test_stopping_at_every_opportunity(
    small_config: Callable[..., ExperimentConfig], uninterrupted: Path, tmp_path: Path, monkeypatch
) -> None:
    for _ in range(40):
        polls = []

        def stop_requested(self: Interrupts, polls: list = polls) -> bool:
            polls.append(None)
            return len(polls) >= 5

        with monkeypatch.context() as patch:
            patch.setattr(Interrupts, "stop_requested", stop_requested)
            try:
                run.train(small_config(), tmp_path / "run")
                break
            except RunInterrupted:
                continue
    assert_equal_runs(tmp_path / "run", uninterrupted)


@pytest.mark.slow
def test_a_reference_and_an_anchor_come_back_too(
    small_config: Callable[..., ExperimentConfig], tmp_path: Path, monkeypatch
) -> None:
    run.train(small_config("grpo"), tmp_path / "whole")

    polls = []

    def stop_requested(self: Interrupts) -> bool:
        polls.append(None)
        return len(polls) >= 8

    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "stop_requested", stop_requested)
        with pytest.raises(RunInterrupted):
            run.train(small_config("grpo"), tmp_path / "run")
    run.train(small_config("grpo"), tmp_path / "run")
    assert_equal_runs(tmp_path / "run", tmp_path / "whole")


def test_a_finished_run_is_not_done_again(small_config, uninterrupted: Path) -> None:
    before = run_files(uninterrupted)
    run.train(small_config(), uninterrupted)
    assert run_files(uninterrupted) == before


@pytest.mark.slow
def test_more_steps_go_on_from_the_end(small_config, tmp_path: Path) -> None:
    run.train(small_config(steps=2), tmp_path / "run")
    with Checkpointer(tmp_path / "run" / "checkpoints") as checkpointer:
        record = checkpointer.read_record(4)  # two minibatch updates a batch
    assert record["step"] == 2 and record["stream"]["step"] == 2  # the next batch is b2, not b4
    run.train(small_config(steps=4), tmp_path / "run")
    assert run_files(tmp_path / "run")["metrics"].count('"train"') == 4
