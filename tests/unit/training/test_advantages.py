import dataclasses

import jax.numpy as jnp
import numpy as np

from trustax.testing.rollouts import random_rollout
from trustax.training.loop import _advantages
from trustax.types import Verdict


def test_a_failed_grading_is_no_wrong_answer() -> None:
    rollout = random_rollout(prompts=1, group_size=4, prompt_tokens=2, new_tokens=3, vocab_size=7, top_k=2, seed=0)
    rollout = dataclasses.replace(
        rollout,
        rewards=jnp.array([1.0, 0.0, 0.0, 1.0]),
        verdict=jnp.array([Verdict.CORRECT, Verdict.ERROR, Verdict.WRONG, Verdict.CORRECT]),
    )
    kept, advantages = _advantages("group_centered", rollout)
    np.testing.assert_allclose(advantages, [1 / 3, 0, -2 / 3, 1 / 3], atol=1e-6)
    assert not kept.token_mask[1].any()
    np.testing.assert_array_equal(kept.token_mask[0], rollout.token_mask[0])


def test_estimators_that_weigh_by_length_are_given_the_lengths() -> None:
    rollout = random_rollout(prompts=1, group_size=2, prompt_tokens=2, new_tokens=4, vocab_size=7, top_k=2, seed=0)
    mask = jnp.arange(4)[None] < jnp.array([[1], [3]])
    rollout = dataclasses.replace(rollout, rewards=jnp.array([1.0, 0.0]), token_mask=mask)
    _, advantages = _advantages("length_weighted_baseline", rollout)
    np.testing.assert_allclose(advantages, [0.75, -0.25], atol=1e-6)
