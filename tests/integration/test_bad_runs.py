"""A run that fails says where, and leaves the last good checkpoint alone."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from trustax.checkpoint.checkpointer import Checkpointer
from trustax.errors import ConfigError, RunError
from trustax.experiment import run
from trustax.experiment.overrides import apply_overrides
from trustax.training import loop


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_the_run(small_config, tmp_path: Path, monkeypatch) -> None:
    real = loop._update

    def poisoned(trainer, state) -> None:
        if state.updates == 4:
            state.params = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), state.params)
        real(trainer, state)

    monkeypatch.setattr(loop, "_update", poisoned)
    with pytest.raises(RunError, match=r"step 2, update 4: .* not finite"):
        run.train(small_config(checkpoint_every=1), tmp_path / "run")
    with Checkpointer(tmp_path / "run" / "checkpoints") as checkpointer:
        assert checkpointer.latest_step() == 4
        arrays, record = checkpointer.restore(4, {"params": None})
    assert record["step"] == 2
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(arrays))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rollout.top_k=5000", r"rollout.top_k = 5000 is more than the vocabulary's 98 tokens"),
        ("rollout.max_prompt_tokens=2", r"renders to \d+ tokens, the limit is 2"),
        ("rollout.max_new_tokens=900", r"beyond the policy's context of 256 tokens"),
        ("objective.recipe=pdm_topk_k", "did you mean|pdm_topk_kl"),
        ("objective.hyperparameters.detla=0.1", "delta"),
        ("objective.hyperparameters.delta=-1", "threshold is not negative"),
        ("policy.source=no/such/folder", "no/such/folder"),
        ("verifier.name=numbr", "number"),
        ("data.template={question}", r"names \{question\}"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    small_config, tmp_path: Path, override: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run.train(apply_overrides(small_config(), [override]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
