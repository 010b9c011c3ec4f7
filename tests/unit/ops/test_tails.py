"""The pass over the logits: against float64 sums, over chunks and shards, and in its gradients."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops import tails
from trustax.testing import oracles
from trustax.testing.tokens import random_tokens

statistics = jax.jit(tails.tail_statistics)
FIELDS = tails.TailStatistics._fields


def expected(logits, ids, mask):
    """Everything by plain float64 sums over probabilities."""
    logits = np.asarray(logits, np.float64)
    p = oracles.softmax(logits)
    inside = np.zeros(p.shape, bool)
    for row, (slots, valid) in enumerate(zip(ids, mask, strict=True)):
        inside[row, slots[valid]] = True
    tail = np.where(inside, 0, p)
    with np.errstate(divide="ignore", invalid="ignore"):
        return tails.TailStatistics(
            log_probs=np.where(mask, np.log(np.take_along_axis(p, ids, -1)), np.nan),
            lse=np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1),
            tail_log_mass=np.log(tail.sum(-1)),
            tail_log_sum_sq=np.log((tail**2).sum(-1)),
            tail_log_sum_cube=np.log((tail**3).sum(-1)),
            tail_log_max=np.log(tail.max(-1)),
            log_sum_sq=np.log((p**2).sum(-1)),
            entropy=-np.where(p > 0, p * np.log(p), 0).sum(-1),
        )


def assert_close(found, target, **tolerance):
    for name in FIELDS:
        np.testing.assert_allclose(getattr(found, name), getattr(target, name), err_msg=name, **tolerance)


@pytest.fixture
def case():
    t = random_tokens(0, 50, vocab_size=40, k=5, spread=3.0)
    return np.log(t.pi) + 7.0, t.support_ids, t.mask


def test_float64_equals_plain_sums(x64, case):
    assert_close(statistics(*case), expected(*case), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("scale", [1.0, 8.0, 20.0])
def test_float32_keeps_every_logarithm(case, scale):
    logits, ids, mask = (case[0] * scale).astype(np.float32), case[1], case[2]
    assert_close(statistics(logits, ids, mask), expected(logits, ids, mask), rtol=3e-6, atol=2e-6)


def test_a_token_with_nearly_all_mass_keeps_its_log_probability():
    """log π = −1e-10 and an entropy of 2.4e-9: log(Σ e^z) of float32 would make both 0."""
    logits = np.array([[0.0, np.log(1e-10), -60.0]], np.float32)
    found = statistics(logits, np.array([[0]]))
    assert float(found.log_probs[0, 0]) == pytest.approx(-1e-10, rel=1e-5)
    assert float(found.entropy[0]) == pytest.approx(1e-10 * (1 + np.log(1e10)), rel=1e-5)
    assert float(found.log_sum_sq[0]) == pytest.approx(-2e-10, rel=1e-5)


def test_large_vocabulary_in_float32():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(4, 50_000)).astype(np.float32)
    ids = np.argsort(-logits, -1)[:, :20]
    assert_close(statistics(logits, ids), expected(logits, ids, np.ones_like(ids, bool)), rtol=2e-6, atol=1e-6)


def test_bfloat16_is_widened(case):
    rough = jnp.asarray(case[0], jnp.bfloat16)
    found = statistics(rough, *case[1:])
    assert found.lse.dtype == jnp.float32
    assert_close(found, expected(rough.astype(jnp.float32), *case[1:]), rtol=3e-6, atol=2e-6)


@pytest.mark.parametrize("cuts", [(20,), (1, 2, 39), (0, 40)], ids=str)
def test_chunks_merge_to_the_whole_in_any_order(x64, case, cuts):
    logits, ids, mask = case
    edges = [0, *cuts, 40]
    states = [tails.tail_state(logits[:, low:high], ids, mask, offset=low) for low, high in itertools.pairwise(edges)]
    for ordered in (states, states[::-1]):
        whole = tails.finish(functools.reduce(tails.merge_tail_states, ordered), mask)
        assert_close(whole, expected(*case), rtol=1e-12, atol=1e-13)


def test_shards_merge_to_the_whole(case):
    logits, ids, mask = (jnp.asarray(x, jnp.float32) if x.dtype == float else jnp.asarray(x) for x in case)
    parts = jnp.stack([logits[:, :20], logits[:, 20:]])

    def shard(part, index):
        state = tails.tail_state(part, ids, mask, offset=20 * index)
        return tails.finish(tails.merge_tail_states_over(state, "v"), mask)

    found = jax.vmap(shard, axis_name="v")(parts, jnp.arange(2, dtype=ids.dtype))
    for s in range(2):
        assert_close(jax.tree.map(lambda x, s=s: x[s], found), statistics(logits, ids, mask), rtol=2e-6, atol=1e-6)


def test_ids_on_blank_slots_are_never_read(case):
    logits, ids, mask = case
    for junk in (-1, 40, 2**31 - 1, -(2**31)):
        found = statistics(logits, np.where(mask, ids, junk), mask)
        jax.tree.map(np.testing.assert_array_equal, found, statistics(logits, ids, mask))


def test_an_empty_tail_and_absent_tokens():
    logits = np.log(
        np.array([[0.5, 0.25, 0.25, 0.0]]), where=np.array([[1, 1, 1, 0]], bool), out=np.full((1, 4), -np.inf)
    )
    found = statistics(logits, np.array([[0, 1, 2]]))
    for name in ("tail_log_mass", "tail_log_sum_sq", "tail_log_sum_cube", "tail_log_max"):
        assert float(getattr(found, name)[0]) == -np.inf
    np.testing.assert_allclose(np.exp(found.log_probs), [[0.5, 0.25, 0.25]], rtol=1e-6)
    assert float(found.entropy[0]) == pytest.approx(1.5 * np.log(2), rel=1e-6)
    covered = statistics(logits, np.array([[3, 2, 1, 0]]))
    assert float(covered.tail_log_mass[0]) == -np.inf and float(covered.log_probs[0, 0]) == -np.inf


def test_entropy_of_absent_tokens_has_a_finite_gradient():
    logits = jnp.array([0.0, 1.0, -jnp.inf])
    value, grad = jax.value_and_grad(lambda z: -tails.tail_statistics(z, jnp.array([0])).entropy)(logits)
    assert -float(value) == pytest.approx(0.582203, abs=1e-6)
    np.testing.assert_allclose(grad, [-0.196612, 0.196612, 0], atol=1e-6)


@pytest.mark.parametrize("name", FIELDS)
def test_gradients_equal_finite_differences(x64, name):
    """Ties included: logits 0, 1 and 4 are equal and the largest, inside and outside the support."""
    logits = np.array([[1.0, 1.0, 0.3, -0.5, 1.0, -np.inf]])
    ids, mask = np.array([[0, 2, 0]]), np.array([[True, True, False]])

    def total(z, ids=ids):
        return jnp.nansum(getattr(tails.tail_statistics(z, ids, mask), name))

    if name == "tail_log_max":  # a maximum has no derivative at a tie
        logits[0, 4] = 0.8
    grad = jax.grad(total)(jnp.asarray(logits))
    assert np.isfinite(grad).all() and grad[0, 5] == 0
    for a in range(5):
        bump = 1e-5 * (np.arange(6) == a)
        numeric = (total(logits + bump) - total(logits - bump)) / 2e-5
        assert float(grad[0, a]) == pytest.approx(float(numeric), abs=1e-8)


def test_gradients_survive_an_empty_tail_and_a_merge_of_ties():
    logits = jnp.array([[1.0, 1.0, 1.0]])
    everything = jnp.array([[0, 1, 2]])

    def total(z, ids):
        found = tails.tail_statistics(z, ids)
        return found.lse[0] + jnp.where(found.tail_log_mass > -jnp.inf, found.tail_log_mass, 0).sum()

    np.testing.assert_allclose(jax.grad(total)(logits, everything), jnp.full((1, 3), 1 / 3), rtol=1e-6)
    np.testing.assert_allclose(
        jax.grad(lambda z: tails.tail_statistics(z, everything[:, :1]).lse[0])(logits), 1 / 3, rtol=1e-6
    )


def test_a_non_finite_logit_is_not_hidden():
    for bad in (np.nan, np.inf):
        logits = np.array([[0.0, 1.0, bad, 2.0]], np.float32)
        assert np.isnan(statistics(logits, np.array([[0]])).log_probs).all()


def test_problems_are_reported_at_once():
    with pytest.raises(ValueError) as error:
        tails.tail_statistics(jnp.zeros((2, 5)), jnp.zeros((3, 2)), jnp.zeros((3, 1)))
    for part in (
        "ids has shape (3, 2), expected (2,) + [S]",
        "mask has shape (3, 1)",
        "ids is float32",
        "mask is float32",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_no_tokens_have_no_statistics(shape):
    found = statistics(jnp.zeros((*shape, 5)), jnp.zeros((*shape, 2), jnp.int32))
    assert found.log_probs.shape == (*shape, 2) and found.tail_log_mass.shape == shape
