"""Rotary embeddings against numbers worked out by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from trustax.policies import RopeConfig
from trustax.policies.rope import inverse_frequencies, rope_tables, rotate

LLAMA3 = RopeConfig(
    theta=1e4,
    scaling="llama3",
    factor=8.0,
    low_frequency_factor=1.0,
    high_frequency_factor=4.0,
    original_context_length=64,
)


def test_llama3_frequencies():
    """Head size 8: waves of 6, 63, 628 and 6283 positions in a context of 64; the second lies between the bounds."""
    np.testing.assert_allclose(inverse_frequencies(RopeConfig(1e4), 8), [1, 0.1, 0.01, 0.001], rtol=1e-6)
    np.testing.assert_allclose(inverse_frequencies(LLAMA3, 8), [1, 0.01304226, 0.00125, 0.000125], rtol=1e-6)


def test_linear_frequencies():
    rope = RopeConfig(1e4, scaling="linear", factor=4.0)
    np.testing.assert_allclose(inverse_frequencies(rope, 8), [0.25, 0.025, 0.0025, 0.00025], rtol=1e-6)


def test_scores_depend_on_the_distance_only():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 1, 1, 8)), jnp.float32)

    def score(query_position: int, key_position: int) -> float:
        turned = [
            rotate(x, *rope_tables(RopeConfig(1e4), 8, jnp.asarray([[position]], jnp.int32)))
            for position in (query_position, key_position)
        ]
        return float(jnp.sum(turned[0] * turned[1]))

    assert score(9, 4) == pytest.approx(score(25, 20), abs=1e-5)
    assert score(9, 4) != pytest.approx(score(9, 7), abs=1e-2)


def test_position_zero_is_the_identity():
    x = jnp.ones((1, 1, 2, 8))
    np.testing.assert_array_equal(rotate(x, *rope_tables(LLAMA3, 8, jnp.zeros((1, 1), jnp.int32))), x)
