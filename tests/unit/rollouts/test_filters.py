"""Dynamic sampling and what is done about overlong completions, on rollouts made by hand."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from trustax.data import Example
from trustax.rollouts import RolloutConfig
from trustax.rollouts.collect import Completion
from trustax.rollouts.dynamic import collect_dynamically, informative
from trustax.rollouts.overlong import handle_overlong, length_penalty
from trustax.types import FinishReason, Rollout, TopK, Transform, Verdict

SIZE, LENGTH = 2, 4


def completion(reward: float, length: int, verdict: Verdict | None = None) -> Completion:
    finish = FinishReason.LENGTH if length == LENGTH else FinishReason.STOP
    judged = verdict if verdict is not None else Verdict.CORRECT if reward == 1 else Verdict.WRONG
    return Completion("p", "a", "t", [3] * length, judged, reward, finish)


class Collector:
    """Answers each example with the rewards and lengths that are written in it."""

    group_size = SIZE

    def __init__(self) -> None:
        self.rounds: list[int] = []

    def __call__(self, params, examples, *, step, version, round_number):
        self.rounds.append(round_number)
        told = [
            (float(reward), int(length))
            for e in examples
            for reward, length in (part.split(":") for part in e.answer.split())
        ]
        rows, width = len(told), 2 + round_number  # another bucket every round
        mask = np.arange(LENGTH)[None] < np.array([length for _, length in told])[:, None]
        groups = np.repeat([e.index for e in examples], SIZE).astype(np.int32)
        rollout = Rollout(
            prompt_tokens=jnp.broadcast_to(
                jnp.array([e.index for e in examples], jnp.int32)[:, None], (len(examples), width)
            ),
            prompt_valid=jnp.ones((len(examples), width), bool),
            prompt_index=jnp.asarray(np.repeat(np.arange(len(examples), dtype=np.int32), SIZE)),
            group_id=jnp.asarray(groups),
            sample_index=jnp.tile(jnp.arange(SIZE, dtype=jnp.int32), len(examples)),
            tokens=jnp.asarray(np.repeat(groups[:, None], LENGTH, axis=1)),
            token_mask=jnp.asarray(mask),
            log_mu=jnp.zeros((rows, LENGTH)),
            tail_log_mu=None,
            version=jnp.zeros((rows, LENGTH), jnp.int32),
            top_k=TopK(jnp.asarray(np.repeat(groups[:, None, None], LENGTH, axis=1)), jnp.zeros((rows, LENGTH, 1))),
            finish_reason=jnp.zeros(rows, jnp.int32),
            rewards=jnp.array([reward for reward, _ in told], jnp.float32),
            verdict=jnp.zeros(rows, jnp.int32),
            transform=Transform(),
        )
        return rollout, [completion(reward, length) for reward, length in told]


def collect(batches: list[list[str]], rounds: int):
    """Draw the batches in turn; returns what was kept, and how many rounds it took."""
    numbered = iter(
        [Example(10 * number + place, "p", text) for place, text in enumerate(batch)]
        for number, batch in enumerate(batches)
    )
    collector = Collector()
    found = collect_dynamically(collector, None, lambda: next(numbered), rounds=rounds, step=0, version=0)
    return *found, collector.rounds


DULL, USEFUL, ALSO = "0:1 0:3", "1:2 0:4", "0:1 1:1"


def test_groups_of_equal_reward_are_replaced() -> None:
    rollout, completions, told, rounds = collect([[DULL, USEFUL], [ALSO, DULL], [USEFUL, USEFUL]], rounds=3)
    assert rounds == [0, 1]
    assert rollout.group_id.tolist() == [1, 1, 10, 10] and rollout.prompt_index.tolist() == [0, 0, 1, 1]
    assert rollout.rewards.tolist() == [c.reward for c in completions] == [1, 0, 0, 1]
    assert rollout.tokens[:, 0].tolist() == rollout.top_k.ids[:, 0, 0].tolist() == [1, 1, 10, 10]
    assert rollout.prompt_valid.tolist() == [[False, True, True], [True, True, True]]
    assert rollout.prompt_tokens[:, -1].tolist() == [1, 10]
    assert told["dynamic/rounds"] == 2 and told["dynamic/informative_groups"] == 0.5
    assert told["dynamic/filled_groups"] == 0
    assert told["dynamic/length_bias"] == pytest.approx((2 + 4 + 1 + 1) / 4 - (1 + 3 + 2 + 4 + 1 + 1 + 1 + 3) / 8)


def test_where_rounds_run_out_the_batch_keeps_its_size() -> None:
    """J04: a step without anything to learn is still a step of the same shape."""
    rollout, _, told, rounds = collect([[DULL, DULL], [DULL, USEFUL]], rounds=2)
    assert rounds == [0, 1] and rollout.group_id.tolist() == [0, 0, 11, 11]
    assert told["dynamic/filled_groups"] == 0.5
    nothing, _, _, _ = collect([[DULL, DULL], [DULL, DULL]], rounds=2)
    assert nothing.group_id.tolist() == [0, 0, 1, 1]


def test_one_round_is_the_batch_as_it_is() -> None:
    rollout, completions, told, rounds = collect([[DULL, USEFUL]], rounds=1)
    assert rounds == [0] and told == {} and rollout.group_id.tolist() == [0, 0, 1, 1] and len(completions) == 4


def test_failed_gradings_make_no_difference() -> None:
    assert not informative([completion(1, 1), completion(0, 1, Verdict.TIMEOUT)])
    assert informative([completion(1, 1), completion(0, 1), completion(0, 1, Verdict.ERROR)])


def test_the_penalty_is_the_papers() -> None:
    """DAPO, eq. 13, with 16384 + 4096 tokens: none up to the first, all of it at the last."""
    lengths = np.array([0, 16384, 18432, 20480, 30000])
    assert length_penalty(lengths, limit=20480, buffer=4096).tolist() == [0, 0, -0.5, -1, -1]


def test_overlong_completions_leave_the_loss_or_pay() -> None:
    rollout, completions, _, _ = collect([[USEFUL, "1:3 0:4"]], rounds=1)
    config = RolloutConfig(max_new_tokens=LENGTH)
    same, told = handle_overlong(rollout, completions, config)
    assert same is rollout and told == {}
    filtered, told = handle_overlong(rollout, completions, dataclasses.replace(config, overlong="filter"))
    assert filtered.token_mask.sum(axis=1).tolist() == [2, 0, 3, 0] and filtered.rewards is rollout.rewards
    assert told == {"overlong/filtered": 0.5, "overlong/length_bias": 2.5 - 13 / 4}
    shape = dataclasses.replace(config, overlong="shape", overlong_buffer=2)
    shaped, told = handle_overlong(rollout, completions, shape)
    assert shaped.rewards.tolist() == [1, -1, 0.5, -1] and shaped.token_mask is rollout.token_mask
    assert told == {"overlong/penalty": -0.625, "overlong/penalised": 0.75}


def test_all_cut_off_is_a_step_without_loss() -> None:
    rollout, completions, _, _ = collect([["1:4 0:4"]], rounds=1)
    filtered, told = handle_overlong(rollout, completions, RolloutConfig(overlong="filter"))
    assert not filtered.token_mask.any() and told == {"overlong/filtered": 1.0}


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"needs overlong_buffer in 1..max_new_tokens = 12, got 0"):
        RolloutConfig(overlong="shape")
    with pytest.raises(ValueError, match="dynamic_rounds must be at least 1, got 0"):
        RolloutConfig(dynamic_rounds=0)
