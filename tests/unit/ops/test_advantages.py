"""Advantages: by group id, exact in constant groups, indifferent to unscorable rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops import advantages
from trustax.ops.advantages import ADVANTAGES, gae, group_centered, group_normalized, leave_one_out

GROUPS = np.array([7, 7, 9, 9, 7, -3])
REWARDS = np.array([1.0, 0.0, 5.0, 4.0, 1.0, 2.0], np.float32)


def oracle(name, rewards, groups, valid):
    """Group loops in float64."""
    out = np.zeros(len(rewards))
    for g in set(groups.tolist()):
        rows = (groups == g) & valid
        r = rewards[rows].astype(np.float64)
        if len(r) == 0:
            continue
        if name == "group_centered":
            out[rows] = r - r.mean()
        elif name == "group_normalized":
            out[rows] = (r - r.mean()) / (r.std() + 1e-6)
        elif name == "leave_one_out":
            out[rows] = [x - np.delete(r, i).mean() if len(r) > 1 else 0.0 for i, x in enumerate(r)]
        elif name == "mean_normalized":
            out[rows] = (r - r.mean()) / r.mean()
    return out


@pytest.mark.parametrize("name", ["group_centered", "group_normalized", "leave_one_out", "mean_normalized"])
def test_equals_a_loop_over_groups(name):
    valid = np.array([True, True, True, True, False, True])
    rewards = np.where(valid, REWARDS, np.nan).astype(np.float32)
    got = jax.jit(ADVANTAGES[name])(jnp.asarray(rewards), jnp.asarray(GROUPS), valid=jnp.asarray(valid))
    np.testing.assert_allclose(got, oracle(name, rewards, GROUPS, valid), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_permutes_with_the_rows(name):
    order = np.array([3, 0, 5, 4, 1, 2])
    rewards, groups = jnp.asarray(REWARDS), jnp.asarray(GROUPS)
    whole = ADVANTAGES[name](rewards, groups)
    np.testing.assert_allclose(ADVANTAGES[name](rewards[order], groups[order]), whole[order], atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_constant_groups_are_exactly_zero(name, dtype):
    for size in (1, 2, 3, 7, 16):
        rewards = jnp.full(size, 0.1 if dtype != jnp.int32 else 3).astype(dtype)
        got = ADVANTAGES[name](rewards, jnp.full(size, 4))
        assert np.array_equal(got, np.zeros(size)), (size, got)


def test_constant_groups_are_exactly_zero_in_float64():
    with jax.enable_x64(True):
        for name, estimate in ADVANTAGES.items():
            assert np.array_equal(estimate(jnp.full(3, 0.1), jnp.zeros(3, jnp.int32)), np.zeros(3)), name


def test_a_constant_group_beside_a_varied_one_is_exactly_zero():
    """Groups [1, 1], [0, 1]: only the first has no variance (a batch std would hide it)."""
    rewards, groups = jnp.array([0.1, 0.1, 0.1, 0.0, 1.0]), jnp.array([0, 0, 0, 1, 1])
    for name in ("group_centered", "group_normalized", "leave_one_out", "reinforce_plus_plus_baseline"):
        got = ADVANTAGES[name](rewards, groups)
        assert np.array_equal(got[:3], np.zeros(3)), name
        assert np.all(got[3:] != 0), name
    assert advantages.dynamic_sampling_keep(rewards, groups).tolist() == [False, False, False, True, True]


def test_a_partial_group_is_not_normalised_against_another():
    """A fixed stride would give the lone row 600000."""
    got = group_normalized(jnp.array([2.0, 4.0, 6.0]), jnp.array([0, 0, 1]), eps=1e-5)
    np.testing.assert_allclose(got, [-1, 1, 0], atol=2e-5)
    assert got[2] == 0


def test_an_unscorable_row_leaves_the_baseline_alone():
    """Zero-filling would give a baseline of 0.5 instead of 2/3."""
    rewards = jnp.array([1.0, jnp.nan, 0.0, 1.0])
    valid = jnp.array([True, False, True, True])
    got = group_centered(rewards, jnp.zeros(4, jnp.int32), valid=valid)
    np.testing.assert_allclose(got, [1 / 3, 0, -2 / 3, 1 / 3], rtol=1e-6)
    alone = jnp.array([False, False, True, False])
    for name, estimate in ADVANTAGES.items():
        for ddof in (0, 1) if name == "group_normalized" else (None,):
            extra = {} if ddof is None else {"ddof": ddof}
            assert np.array_equal(estimate(rewards, jnp.zeros(4, jnp.int32), valid=alone, **extra), np.zeros(4)), name


def test_unbiased_std_and_loo_identity():
    rewards, groups = jnp.array([1.0, 2.0, 6.0]), jnp.zeros(3, jnp.int32)
    got = group_normalized(rewards, groups, eps=0.0, ddof=1)
    np.testing.assert_allclose(got, (np.array([1, 2, 6]) - 3) / np.std([1, 2, 6], ddof=1), rtol=1e-6)
    np.testing.assert_allclose(leave_one_out(rewards, groups), 1.5 * group_centered(rewards, groups), rtol=1e-6)


def test_normalised_advantages_are_bounded_and_ignore_a_shift():
    rng = np.random.default_rng(0)
    rewards, groups = jnp.asarray(rng.normal(size=12), jnp.float32), jnp.asarray(rng.integers(0, 3, 12))
    got = group_normalized(rewards, groups)
    sizes = np.array([(groups == g).sum() for g in groups])
    assert np.all(np.abs(got) <= np.sqrt(sizes - 1) + 1e-5)
    np.testing.assert_allclose(group_normalized(rewards + 64.0, groups), got, atol=1e-4)


def test_global_whitening_counts_tokens():
    got = ADVANTAGES["reinforce_plus_plus"](
        jnp.array([1.0, 3.0]), jnp.array([0, 1]), lengths=jnp.array([3.0, 1.0]), eps=0.0
    )
    tokens = np.array([1, 1, 1, 3.0])
    want = (np.array([1, 3]) - tokens.mean()) / tokens.std()
    np.testing.assert_allclose(got, want, rtol=1e-6)


def gae_loop(rewards, values, mask, gamma, lam):
    out = np.zeros(rewards.shape)
    for b in range(rewards.shape[0]):
        next_value = next_advantage = 0.0
        for t in reversed(range(rewards.shape[1])):
            if mask[b, t]:
                delta = rewards[b, t] + gamma * next_value - values[b, t]
                next_advantage = delta + gamma * lam * next_advantage
                next_value = values[b, t]
                out[b, t] = next_advantage
    return out


def test_gae_skips_masked_tokens_and_does_not_read_them():
    rng = np.random.default_rng(1)
    rewards, values = rng.normal(size=(2, 3, 7)).astype(np.float32)
    mask = rng.random((3, 7)) > 0.3
    mask[2] = False
    want = gae_loop(rewards, values, mask, 0.9, 0.8)
    dirty = [jnp.asarray(np.where(mask, x, np.nan)) for x in (rewards, values)]
    got = jax.jit(gae)(*dirty, jnp.asarray(mask), gamma=0.9, lam=0.8)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_gae_with_lambda_one_is_return_minus_value():
    rewards, values = jnp.array([[1.0, 2.0, 4.0]]), jnp.array([[0.5, 0.25, 0.125]])
    got = gae(rewards, values, jnp.ones((1, 3), bool), gamma=0.5, lam=1.0)
    np.testing.assert_allclose(got, [[3.0 - 0.5, 4.0 - 0.25, 4.0 - 0.125]])


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"shape \[B\]"):
        group_centered(jnp.zeros((2, 2)), jnp.zeros(2, jnp.int32))
    with pytest.raises(ValueError, match="booleans"):
        group_centered(jnp.zeros(2), jnp.zeros(2, jnp.int32), valid=jnp.ones(2))
    with pytest.raises(ValueError, match="ddof"):
        group_normalized(jnp.zeros(2), jnp.zeros(2, jnp.int32), ddof=2)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_no_completions_have_no_advantages(name):
    assert ADVANTAGES[name](jnp.zeros(0), jnp.zeros(0, jnp.int32)).shape == (0,)
