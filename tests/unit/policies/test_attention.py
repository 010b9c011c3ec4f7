"""Attention: the grouping of heads, masks, and a softmax over nothing."""

import jax
import jax.numpy as jnp
import numpy as np

from trustax.policies.attention import KeyValues, attend, masked_softmax


def test_query_heads_share_kv_heads_in_blocks():
    """Four query heads, two kv heads: the map is [0, 0, 1, 1], not [0, 1, 0, 1]."""
    values = jnp.asarray([0.0, 1.0])[None, None, :, None] * jnp.ones((1, 1, 2, 4))
    part = KeyValues(jnp.ones((1, 1, 2, 4)), values, jnp.ones((1, 1, 1), bool))
    out = attend(jnp.ones((1, 1, 4, 4)), [part], scale=1.0, soft_cap=None)
    np.testing.assert_array_equal(out[0, 0, :, 0], [0, 0, 1, 1])


def test_parts_are_one_softmax():
    rng = np.random.default_rng(0)
    queries = jnp.asarray(rng.normal(size=(2, 3, 4, 8)), jnp.float32)
    keys, values = (jnp.asarray(rng.normal(size=(2, 7, 2, 8)), jnp.float32) for _ in range(2))
    mask = jnp.asarray(rng.random((2, 3, 7)) < 0.6)
    whole = attend(queries, [KeyValues(keys, values, mask)], scale=0.5, soft_cap=None)
    halves = [KeyValues(keys[:, s], values[:, s], mask[:, :, s]) for s in (slice(0, 4), slice(4, 7))]
    np.testing.assert_allclose(attend(queries, halves, scale=0.5, soft_cap=None), whole, atol=1e-6)
    scores = np.einsum("blhd,bshd->bhls", queries, np.repeat(keys, 2, axis=2)) * 0.5
    exponentials = np.exp(scores) * np.asarray(mask)[:, None]
    weights = exponentials / np.maximum(exponentials.sum(-1, keepdims=True), 1e-30)
    expected = np.einsum("bhls,bshd->blhd", weights, np.repeat(values, 2, axis=2))
    np.testing.assert_allclose(whole, expected, atol=1e-6)


def test_soft_cap_of_scores():
    """Two slots with scores 60 and 0 under a cap of 30: 28.9208 and 0, so the other slot keeps e^-28.9."""
    keys = jnp.asarray([60.0, 0.0])[None, :, None, None] * jnp.ones((1, 2, 1, 2)) / 2.0
    values = jnp.asarray([0.0, 1.0])[None, :, None, None] * jnp.ones((1, 2, 1, 2))
    part = KeyValues(keys, values, jnp.ones((1, 1, 2), bool))
    out = attend(jnp.ones((1, 1, 1, 2)), [part], scale=1.0, soft_cap=30.0)
    np.testing.assert_allclose(np.log(out[0, 0, 0, 0]), -28.9208, atol=1e-3)


def test_softmax_over_nothing_is_zero_in_value_and_gradient():
    scores = jnp.asarray([[jnp.nan, jnp.inf, -jnp.inf], [0.0, jnp.log(3.0), jnp.nan]])
    mask = jnp.asarray([[False, False, False], [True, True, False]])
    np.testing.assert_allclose(masked_softmax(scores, mask), [[0, 0, 0], [0.25, 0.75, 0]], atol=1e-6)
    gradient = jax.grad(lambda x: jnp.sum(masked_softmax(x, mask)[..., 0]))(scores)
    np.testing.assert_allclose(gradient, [[0, 0, 0], [0.1875, -0.1875, 0]], atol=1e-6)
