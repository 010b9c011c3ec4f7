import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.testing.rollouts import random_rollout
from trustax.training.gradients import Batch, Fates
from trustax.training.state import Pending, TrainState, from_checkpoint, to_checkpoint
from trustax.types import Metric


def metric(total: float, weight: float, *reduction: str) -> Metric:
    return Metric(np.float32(total), np.float32(weight), *reduction)


def pending() -> Pending:
    rollout = random_rollout(prompts=2, group_size=3, prompt_tokens=4, new_tokens=5, vocab_size=11, top_k=3, seed=0)
    mask = rollout.token_mask
    return Pending(
        batch=Batch(rollout, jnp.arange(6.0), log_anchor=jnp.full(mask.shape, -0.1)),
        stream_after={"step": 4},
        done=1,
        fates=[Fates(mask[:3], jnp.where(mask[:3], 0.25, jnp.nan))],
        update_metrics=[
            {"a": Metric(jnp.float32(0.1), jnp.float32(3.0)), "b": Metric(jnp.float32(7), jnp.float32(1), "max")}
        ],
        rollout_metrics={"reward/mean": 1 / 3},
        samples=[{"prompt": "1 + 1", "tokens": ["2"]}],
    )


def state(in_progress: Pending | None) -> TrainState:
    return TrainState(
        params={"w": jnp.arange(3.0)},
        opt_state=(jnp.zeros(3),),
        stream={"step": 3},
        step=3,
        updates=7,
        pending=in_progress,
        evaluations={"0": {"sampled": 0.25, "greedy": 0.5}},
        tokens=99,
        seconds=1.5,
    )


@pytest.mark.parametrize("in_progress", [None, pending()], ids=["between steps", "between updates"])
def test_a_state_survives_its_checkpoint_bit_for_bit(in_progress: Pending | None) -> None:
    before = state(in_progress)
    arrays, record = to_checkpoint(before)
    after = from_checkpoint(jax.tree.map(np.asarray, arrays), json.loads(json.dumps(record, allow_nan=False)))
    one, other = to_checkpoint(before), to_checkpoint(after)
    assert one[1] == other[1]
    assert jax.tree.structure(one[0]) == jax.tree.structure(other[0])
    for mine, theirs in zip(jax.tree.leaves(one[0]), jax.tree.leaves(other[0]), strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))
        assert mine.dtype == theirs.dtype
