"""PPO with a critic, and a reference that is renewed: real runs, which resume."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from trustax.checkpoint.checkpointer import Checkpointer
from trustax.errors import ConfigError
from trustax.experiment import ObjectiveConfig, run
from trustax.experiment.assemble import build_objective, build_parts
from trustax.policies import PolicyConfig, without_critic

from .conftest import run_files

PPO = ObjectiveConfig(recipe="ppo_clip", hyperparameters={"critic": True})


@pytest.mark.slow
@pytest.mark.parametrize("value_head", ["shared", "own"])
def test_ppo_with_a_critic_trains_it_and_resumes(small_config, tmp_path, value_head):
    config = dataclasses.replace(small_config(), policy=PolicyConfig(value_head=value_head), objective=PPO)
    run.train(config, tmp_path / "whole")
    metrics = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["metrics"]["value/loss"] for line in metrics if line["kind"] == "train"]
    assert len(losses) == 3 and all(np.isfinite(losses)) and losses[0] > 0
    head = run.trained_params(build_parts(config), tmp_path / "whole")["value"]
    assert np.any(head["kernel"]) and np.any(head["bias"])
    run.train(dataclasses.replace(config, train=dataclasses.replace(config.train, steps=2)), tmp_path / "parts")
    run.train(config, tmp_path / "parts")
    assert run_files(tmp_path / "parts")["summary"] == run_files(tmp_path / "whole")["summary"]
    again = run.trained_params(build_parts(config), tmp_path / "parts")["value"]
    jax.tree.map(np.testing.assert_array_equal, head, again)


@pytest.mark.slow
def test_a_renewed_reference_is_the_policy_of_its_step(small_config, tmp_path):
    config = small_config("grpo", steps=2, reference_every=2, checkpoint_every=1)
    run.train(config, tmp_path / "run")
    params = build_parts(config).params
    template = jax.eval_shape(lambda: {"params": params, "reference": without_critic(params)})
    with Checkpointer(tmp_path / "run" / "checkpoints") as checkpointer:
        early, late = (checkpointer.restore(step, template)[0] for step in (2, 4))  # in updates: steps 1 and 2
    jax.tree.map(np.testing.assert_array_equal, late["reference"], late["params"])
    assert np.any(early["reference"]["embedding"] != early["params"]["embedding"])


def test_a_critic_that_nothing_uses_is_refused(small_config):
    with pytest.raises(ConfigError, match="do not go together"):
        build_objective(dataclasses.replace(small_config(), policy=PolicyConfig(value_head="shared")))
    with pytest.raises(ConfigError, match=r"policy\.value_head=shared"):
        build_objective(dataclasses.replace(small_config(), objective=PPO))
