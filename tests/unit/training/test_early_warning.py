"""What is told of the updated policy after a step, and what is not."""

import jax.numpy as jnp
import numpy as np
import pytest

from trustax.testing.rollouts import random_rollout
from trustax.training.early_warning import early_warning


@pytest.fixture
def rollout():
    return random_rollout(prompts=6, group_size=4, prompt_tokens=2, new_tokens=3, vocab_size=7, top_k=0, seed=0)


def test_an_unchanged_policy_is_worth_its_rollouts(rollout):
    told = early_warning(rollout.log_mu, rollout)
    assert told["ope/estimate"] == pytest.approx(float(rollout.rewards.mean()))
    assert told["ope/effective"] == pytest.approx(24) and told["ope/low"] < told["ope/estimate"] < told["ope/high"]


def test_a_policy_that_left_its_rollouts_behind_has_no_estimate(rollout):
    far = rollout.log_mu.at[3:, 0].add(-20.0)
    assert set(early_warning(far, rollout)) == {"ope/effective"}


def test_completions_whose_grading_failed_are_left_out(rollout):
    failed = rollout.replace(token_mask=rollout.token_mask.at[0].set(False), rewards=rollout.rewards.at[0].set(jnp.nan))
    assert early_warning(rollout.log_mu, failed)["ope/estimate"] == pytest.approx(float(rollout.rewards[1:].mean()))
    nothing = rollout.replace(token_mask=jnp.zeros_like(rollout.token_mask))
    assert early_warning(np.asarray(rollout.log_mu), nothing) == {}
