"""The second-order prediction against second differences, and the guaranteed descent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops.directions import predictive_direction
from trustax.ops.second_order import descent_step_limit, lumped_kl_curvature, predicted_divergence
from trustax.testing import oracles
from trustax.testing.tokens import random_tokens

curvature = jax.jit(lumped_kl_curvature)
limit = jax.jit(descent_step_limit)
predict = jax.jit(predictive_direction)


def log_cube(t):
    return np.log((t.pi**3 * ~t.inside).sum(-1))


def test_curvature_is_the_second_derivative(x64):
    t, size = random_tokens(0, 2000), 1e-3
    found = curvature(t.log_pi, t.log_mu, t.mask, t.slot, tail_log_sum_cube_pi=log_cube(t), **t.tails)
    up, now, down = (oracles.lumped("kl", oracles.step(t.pi, t.ids, s), t.mu, t.inside) for s in (size, 0.0, -size))
    np.testing.assert_allclose(found, (up - 2 * now + down) / size**2, atol=1e-6)


def test_curvature_without_a_tail_is_the_written_out_formula(x64):
    t = random_tokens(1, 200, vocab_size=5, k=5)
    rows = np.arange(200)
    pi_y, sum_sq, sum_cube = t.pi[rows, t.ids], (t.pi**2).sum(-1), (t.pi**3).sum(-1)
    expected = pi_y - 2 * pi_y**2 + sum_cube - (pi_y - sum_sq) ** 2
    found = curvature(t.log_pi, t.log_mu, t.mask, t.slot, sum_sq_pi=sum_sq)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_an_unknown_cube_takes_the_tail_as_even(x64):
    t = random_tokens(2, 200)
    even = 2 * t.tails["tail_log_sum_sq_pi"] - t.tails["tail_log_pi"]
    with_even = curvature(t.log_pi, t.log_mu, t.mask, t.slot, tail_log_sum_cube_pi=even, **t.tails)
    np.testing.assert_allclose(curvature(t.log_pi, t.log_mu, t.mask, t.slot, **t.tails), with_even, atol=1e-12)


def test_prediction_is_of_third_order(x64):
    t = random_tokens(3, 500)
    args = t.log_pi, t.log_mu, t.mask, t.slot
    now = oracles.lumped("kl", t.pi, t.mu, t.inside)
    c = curvature(*args, tail_log_sum_cube_pi=log_cube(t), **t.tails)
    g = predict(*args, **t.tails)

    def error(size):
        after = oracles.lumped("kl", oracles.step(t.pi, t.ids, size), t.mu, t.inside)
        return np.abs(after - predicted_divergence(jnp.asarray(now), g, c, jnp.full(500, size)))

    clear = error(0.2) > 1e-6
    ratios = (error(0.2) / np.maximum(error(0.1), 1e-300))[clear]
    assert np.median(ratios) == pytest.approx(8, rel=0.1)


def test_a_predicted_decrease_within_the_limit_happens(x64):
    """The limit holds for the lumped KL with the exact tail's G; it is sharp within a factor."""
    wrong_beyond = 0
    for seed, (spread, shift) in enumerate([(1.5, 0.7), (4.0, 2.0), (0.5, 0.3)]):
        t = random_tokens(seed, 2000, spread=spread, shift=shift)
        args = t.log_pi, t.log_mu, t.mask, t.slot
        before = oracles.lumped("kl", t.pi, t.mu, t.inside)
        g, most = np.asarray(predict(*args, **t.tails)), np.asarray(limit(*args, **t.tails))
        assert (most >= 0).all() and (most > 0).mean() > 0.99
        for fraction in (0.01, 0.5, 0.999):
            after = oracles.lumped("kl", oracles.step(t.pi, t.ids, -np.sign(g) * most * fraction), t.mu, t.inside)
            assert (after <= before + 1e-12).all()
        after = oracles.lumped("kl", oracles.step(t.pi, t.ids, -np.sign(g) * most * 6), t.mu, t.inside)
        wrong_beyond += (after > before).sum()
    assert wrong_beyond > 100


def test_padding_and_problems():
    junk, slot = jnp.full((2, 4), jnp.nan), jnp.full(2, 3)
    for function in (curvature, limit):
        assert not function(junk, junk, jnp.zeros((2, 4), bool), slot, sum_sq_pi=junk[:, 0]).any()
    ok = jnp.zeros((2, 3)), jnp.zeros((2, 3)), jnp.ones((2, 3), bool), jnp.zeros(2, jnp.int32)
    with pytest.raises(ValueError, match=r"tail_log_sum_cube_pi has shape \(3,\)"):
        lumped_kl_curvature(*ok, sum_sq_pi=jnp.zeros(2), tail_log_sum_cube_pi=jnp.zeros(3))
    with pytest.raises(ValueError, match=r"curvature has shape \(3,\), expected \(2,\) as divergence"):
        predicted_divergence(jnp.zeros(2), jnp.zeros(2), jnp.zeros(3), jnp.zeros(2))
