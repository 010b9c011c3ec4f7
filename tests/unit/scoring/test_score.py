import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import policies
from trustax.policies.policy import Policy
from trustax.sampling.keys import sample_keys
from trustax.sampling.sampler import Sampler
from trustax.scoring import score as plain_score
from trustax.types import Rollout, Transform

score = jax.jit(plain_score, static_argnums=0, static_argnames=("needs", "differentiable", "chunk_tokens"))

VOCAB, TOP_K, PROMPTS, GROUP, LENGTH = 23, 5, 3, 4, 6
NEEDS = frozenset({"support", "sum_sq_pi", "entropy"})


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policies.build(policies.tiny_config(VOCAB, hidden_size=32, num_layers=2, mlp_size=48))


@pytest.fixture(scope="module")
def params(policy: Policy):
    return jax.tree.map(lambda x: 3.0 * x if x.ndim > 1 else x, policy.init(jax.random.key(0)))


@pytest.fixture(scope="module")
def sampler(policy: Policy) -> Sampler:
    return Sampler(policy, max_new_tokens=LENGTH, top_k=TOP_K, eos_ids=frozenset({1, 4}), pad_id=0)


def roll_out(sampler: Sampler, params, temperature: float = 1.0) -> Rollout:
    tokens, valid = np.zeros((PROMPTS, 5), np.int32), np.zeros((PROMPTS, 5), bool)
    for row, prompt in enumerate([[5, 6, 7], [8, 9, 10, 11, 12], [13]]):
        tokens[row, 5 - len(prompt) :], valid[row, 5 - len(prompt) :] = prompt, True
    rows = jnp.repeat(jnp.arange(PROMPTS, dtype=jnp.int32), GROUP)
    samples = jnp.tile(jnp.arange(GROUP, dtype=jnp.int32), PROMPTS)
    transform = Transform(temperature=temperature)
    found = sampler(params, tokens, valid, rows, sample_keys(0, 0, rows, samples), transform)
    return Rollout(
        prompt_tokens=jnp.asarray(tokens),
        prompt_valid=jnp.asarray(valid),
        prompt_index=rows,
        group_id=rows,
        sample_index=samples,
        version=jnp.zeros(found.tokens.shape, jnp.int32),
        transform=transform,
        **found._asdict(),
    )


@pytest.fixture(scope="module")
def rollout(sampler: Sampler, params) -> Rollout:
    return roll_out(sampler, params)


@pytest.fixture(scope="module")
def plain_log_probs(policy: Policy, params, rollout: Rollout) -> np.ndarray:
    """log softmax of every completion position ``[B, T, V]``, one row at a time, prompt included, no cache."""
    table = np.full((*rollout.tokens.shape, VOCAB), np.nan)
    for row in range(rollout.tokens.shape[0]):
        p = int(rollout.prompt_index[row])
        prompt = np.asarray(rollout.prompt_tokens[p])[np.asarray(rollout.prompt_valid[p])]
        ids = jnp.asarray(np.concatenate([prompt, np.asarray(rollout.tokens[row])])[None])
        positions = jnp.arange(ids.shape[1], dtype=jnp.int32)[None]
        hidden, _, _ = policy.apply(params, ids, positions, jnp.ones(ids.shape, bool), None)
        table[row] = jax.nn.log_softmax(policy.head(params, hidden)[0, len(prompt) - 1 : -1])
    return table


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
def test_zero_update_identity(policy: Policy, sampler: Sampler, params, temperature: float) -> None:
    rollout = roll_out(sampler, params, temperature)
    stats = score(policy, params, rollout, needs=NEEDS)
    mask = np.asarray(rollout.token_mask)
    assert np.abs(np.asarray(stats.log_pi - rollout.log_mu))[mask].max() < 5e-6
    slots = np.asarray(stats.support.mask) & mask[..., None]
    assert np.abs(np.asarray(stats.support.log_pi - stats.support.log_mu))[slots].max() < 5e-6
    assert np.abs(np.asarray(stats.support.tail_log_pi - stats.support.tail_log_mu))[mask].max() < 5e-5


def test_every_statistic_equals_its_definition(policy: Policy, params, rollout: Rollout, plain_log_probs) -> None:
    stats = score(policy, params, rollout, needs=NEEDS)
    mask = np.asarray(rollout.token_mask)
    pi = np.exp(plain_log_probs)
    y = np.asarray(rollout.tokens)
    np.testing.assert_allclose(
        np.asarray(stats.log_pi)[mask], np.take_along_axis(plain_log_probs, y[..., None], -1)[..., 0][mask], atol=1e-5
    )
    np.testing.assert_allclose(np.asarray(stats.sum_sq_pi)[mask], (pi**2).sum(-1)[mask], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(stats.entropy)[mask], -(pi * plain_log_probs).sum(-1)[mask], rtol=1e-5)
    support = jax.device_get(stats.support)
    for row, t in zip(*np.nonzero(mask), strict=True):
        slots = support.mask[row, t]
        ids = support.ids[row, t][slots]
        assert len(set(ids)) == len(ids) and support.ids[row, t, support.sampled_slot[row, t]] == y[row, t]
        assert set(ids) == set(np.asarray(rollout.top_k.ids[row, t])) | {y[row, t]}
        np.testing.assert_allclose(support.log_pi[row, t][slots], plain_log_probs[row, t, ids], atol=1e-5)
        tail = np.delete(pi[row, t], ids)
        assert support.tail_log_pi[row, t] == pytest.approx(np.log(tail.sum()), abs=1e-4)
        assert support.tail_log_sum_sq_pi[row, t] == pytest.approx(np.log((tail**2).sum()), abs=1e-4)


def gradient(policy: Policy, params, rollout: Rollout, **kwargs):
    def loss(params):
        log_pi = score(policy, params, rollout, **kwargs).log_pi
        weights = jnp.arange(log_pi.size, dtype=jnp.float32).reshape(log_pi.shape) / log_pi.size
        return jnp.sum(weights * log_pi, where=rollout.token_mask)

    return jax.jit(jax.grad(loss))(params)


def assert_close(one, other, rtol: float = 1e-5) -> None:
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        scale = float(jnp.abs(theirs).max()) + 1e-12
        assert float(jnp.abs(mine - theirs).max()) <= rtol * scale


def test_gradient_of_the_shared_prompt_equals_that_of_separate_sequences(policy: Policy, params, rollout) -> None:
    def loss(params):
        total = jnp.float32(0)
        width = rollout.prompt_tokens.shape[1]
        prompts, valid = rollout.prompt_tokens[rollout.prompt_index], rollout.prompt_valid[rollout.prompt_index]
        ids = jnp.concatenate([prompts, rollout.tokens], axis=1)
        exists = jnp.concatenate([valid, rollout.token_mask], axis=1)
        positions = jnp.maximum(jnp.cumsum(exists, axis=1, dtype=jnp.int32) - 1, 0)
        hidden, _, _ = policy.apply(params, ids, positions, exists, None)
        log_probs = jax.nn.log_softmax(policy.head(params, hidden[:, width - 1 : -1]))
        log_pi = jnp.take_along_axis(log_probs, rollout.tokens[..., None], -1)[..., 0]
        weights = jnp.arange(log_pi.size, dtype=jnp.float32).reshape(log_pi.shape) / log_pi.size
        return total + jnp.sum(weights * log_pi, where=rollout.token_mask)

    assert_close(gradient(policy, params, rollout), jax.jit(jax.grad(loss))(params))


def test_chunks_change_neither_values_nor_gradients(policy: Policy, params, rollout: Rollout) -> None:
    whole, parts = (score(policy, params, rollout, needs=NEEDS, chunk_tokens=size) for size in (512, 7))
    np.testing.assert_allclose(whole.log_pi, parts.log_pi, atol=1e-6)
    np.testing.assert_allclose(whole.support.tail_log_pi, parts.support.tail_log_pi, atol=1e-5)
    assert_close(gradient(policy, params, rollout), gradient(policy, params, rollout, chunk_tokens=7))


def test_what_stands_behind_the_end_of_a_row_changes_nothing(policy: Policy, params, rollout: Rollout) -> None:
    garbage = dataclasses.replace(rollout, tokens=jnp.where(rollout.token_mask, rollout.tokens, 17))
    one, other = (score(policy, params, r).log_pi for r in (rollout, garbage))
    mask = np.asarray(rollout.token_mask)
    np.testing.assert_array_equal(np.asarray(one)[mask], np.asarray(other)[mask])
    for mine, theirs in zip(
        jax.tree.leaves(gradient(policy, params, rollout)),
        jax.tree.leaves(gradient(policy, params, garbage)),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_entropy_is_differentiable_only_where_asked(policy: Policy, params, rollout: Rollout) -> None:
    def mean_entropy(params, differentiable: frozenset[str]):
        found = score(policy, params, rollout, needs=frozenset({"entropy"}), differentiable=differentiable)
        return jnp.mean(found.entropy, where=rollout.token_mask)

    detached = jax.grad(mean_entropy)(params, frozenset())
    assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(detached))
    attached = jax.grad(mean_entropy)(params, frozenset({"entropy"}))
    direction = jax.tree.map(lambda g: g / 10, attached)
    step = 1e-2
    up, down = (
        mean_entropy(jax.tree.map(lambda p, d, s=s: p + s * d, params, direction), frozenset()) for s in (step, -step)
    )
    slope = sum(
        float(jnp.vdot(g, d)) for g, d in zip(jax.tree.leaves(attached), jax.tree.leaves(direction), strict=True)
    )
    assert float(up - down) / (2 * step) == pytest.approx(slope, rel=2e-2)


def test_a_missing_top_k_and_a_missing_version_are_refused(policy: Policy, params, rollout: Rollout) -> None:
    with pytest.raises(ValueError, match="the rollout holds no top-K"):
        score(policy, params, dataclasses.replace(rollout, top_k=None), needs=frozenset({"support"}))
    with pytest.raises(ValueError, match="pass score the version"):
        score(policy, params, rollout, needs=frozenset({"policy_staleness"}))


def test_staleness_counts_versions(policy: Policy, params, rollout: Rollout) -> None:
    found = score(policy, params, rollout, needs=frozenset({"policy_staleness"}), version=3)
    assert (found.policy_staleness == 3).all()
