"""Packed rows have the losses and the gradients of unpacked ones, and of the scorer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import policies
from trustax.policies.config import tiny_config
from trustax.scoring.score import score
from trustax.training.packing import loss_sum, pack
from trustax.training.supervised import teacher_rollout

RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(1, 11, size=n).tolist() for n in (3, 5, 1, 4, 2)]
ANSWERS = [RNG.integers(1, 11, size=n).tolist() for n in (2, 4, 1, 3, 6)]


@pytest.fixture(scope="module")
def policy():
    return policies.build(tiny_config(11, hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, mlp_size=16))


@pytest.fixture(scope="module")
def loss_and_grads(policy):
    params = policy.init(jax.random.key(0))
    return lambda batch: jax.jit(jax.value_and_grad(lambda p, b: loss_sum(policy, p, b), has_aux=True))(params, batch)


@pytest.fixture(scope="module")
def unpacked(loss_and_grads):
    return loss_and_grads(pack(PROMPTS, ANSWERS, length=10, pad_id=0, packed=False))


def close(one, other) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5, rtol=2e-5), one, other)


@pytest.mark.parametrize("length", [10, 16, 64])
def test_packed_is_unpacked(loss_and_grads, unpacked, length: int) -> None:
    batch = pack(PROMPTS, ANSWERS, length=length, pad_id=0)
    assert batch.target_mask.sum() == sum(map(len, ANSWERS)) and batch.valid.sum() == sum(map(len, PROMPTS + ANSWERS))
    close(loss_and_grads(batch), unpacked)


@pytest.mark.slow
def test_unpacked_is_what_the_scorer_says(policy, unpacked) -> None:
    rollout = teacher_rollout(PROMPTS, ANSWERS, max_prompt_tokens=8, max_new_tokens=6, pad_id=0)
    params = policy.init(jax.random.key(0))

    def loss(params):
        return -jnp.sum(score(policy, params, rollout).log_pi, where=rollout.token_mask)

    (total, weight), grads = unpacked
    assert int(weight) == int(rollout.token_mask.sum())
    close((total, grads), jax.value_and_grad(loss)(params))


def test_a_neighbour_in_the_row_changes_nothing(policy) -> None:
    params = policy.init(jax.random.key(0))
    batch = pack(PROMPTS[:2], ANSWERS[:2], length=16, pad_id=0)
    other = pack([PROMPTS[0], [7, 7, 7, 7, 7]], [ANSWERS[0], [1, 2, 3, 4]], length=16, pad_id=0)
    first = len(PROMPTS[0]) + len(ANSWERS[0])
    seen = [policy.apply(params, b.tokens, b.positions, b.valid, None)[0][0, :first] for b in (batch, other)]
    np.testing.assert_array_equal(seen[0], seen[1])


def test_rows_are_filled_first_fit_and_counted_in_powers_of_two() -> None:
    assert pack(PROMPTS, ANSWERS, length=16, pad_id=0).tokens.shape == (2, 16)
    assert pack(PROMPTS, ANSWERS, length=16, pad_id=0, packed=False).tokens.shape == (8, 16)
    with pytest.raises(ValueError, match="sequence 1 has 9 tokens, a row holds 8"):
        pack(PROMPTS, ANSWERS, length=8, pad_id=0)
    with pytest.raises(ValueError, match="sequence 0 has a prompt of 2 tokens and 0 to learn"):
        pack([[1, 2]], [[]], length=8, pad_id=0)
