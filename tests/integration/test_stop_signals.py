"""SIGTERM in any phase of a step: one complete checkpoint, a prompt end, and an exact resume.

The loop is a small one with the phases of a real one; what is real is the signal, the compilation and the checkpoint.
"""

import signal
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from trustax.checkpoint import Checkpointer
from trustax.errors import RunInterrupted
from trustax.experiment.interrupts import Interrupts

STEPS = 4

Phase = Callable[[str, int], None]


def run(folder: Path, phase: Phase = lambda name, step: None) -> float:
    """Take the steps that are left; ``phase`` is called inside each phase of each step."""

    @jax.jit
    def update(x, key):
        phase("compilation", -1)  # runs while the function is traced
        return x * jnp.float32(0.9) + jax.random.normal(key)

    with Interrupts() as interrupts, Checkpointer(folder, keep=1) as checkpointer:
        x, step = jnp.float32(0), 0
        last = checkpointer.latest_step()
        if last is not None:
            arrays, record = checkpointer.restore(last, {"x": x})
            x, step = arrays["x"], record["step"]

        def stop_if_asked() -> None:
            if interrupts.stop_requested():
                checkpointer.save(step, {"x": x, "ballast": jnp.ones(300_000)}, {"step": step})
                phase("save", step)
                checkpointer.wait()
                raise RunInterrupted("stopped", signal_number=interrupts.signal_number or 0)

        while step < STEPS:
            phase("generation", step)
            stop_if_asked()
            after = update(x, jax.random.fold_in(jax.random.key(0), step))
            stop_if_asked()  # the unfinished step is given up, and made again later
            x, step = after, step + 1
            phase("evaluation", step)
            stop_if_asked()
    return float(x)


@pytest.mark.parametrize(
    ("where", "saved"),
    [(("compilation", -1), 0), (("generation", 2), 2), (("evaluation", 2), 2)],
    ids=["first compilation", "generation", "evaluation"],
)
@pytest.mark.parametrize("again", [False, True], ids=["once", "again during the save"])
def test_a_signal_in_any_phase_ends_with_one_checkpoint_and_an_exact_resume(tmp_path, where, saved, again):
    def phase(name: str, step: int) -> None:
        if (name, step) == where:
            signal.raise_signal(signal.SIGTERM)
        if name == "save" and again:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(RunInterrupted) as stopped:
        run(tmp_path / "run", phase)
    assert stopped.value.signal_number == signal.SIGTERM
    assert [path.name for path in (tmp_path / "run").iterdir()] == [str(saved)]
    assert run(tmp_path / "run") == run(tmp_path / "unbroken")  # bit for bit
