"""The second-order prediction against second differences, and the guaranteed descent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops.directions import predictive_direction, predictive_direction_full, tv_tie_rate_full
from trustax.ops.divergences import DIVERGENCES
from trustax.ops.second_order import (
    descent_step_limit,
    predicted_divergence,
    predictive_curvature,
    predictive_curvature_full,
)
from trustax.testing import oracles
from trustax.testing.tokens import random_tokens

curvature = jax.jit(predictive_curvature, static_argnames="divergence")
curvature_full = jax.jit(predictive_curvature_full, static_argnames="divergence")
limit = jax.jit(descent_step_limit)
predict = jax.jit(predictive_direction, static_argnames="divergence")


def log_cube(t):
    return np.log((t.pi**3 * ~t.inside).sum(-1))


def lumped_after(t, name, size):
    return oracles.lumped(name, oracles.step(t.pi, t.ids, size), t.mu, t.inside)


def second_difference(function, size=1e-3):
    return (function(size) - 2 * function(0.0) + function(-size)) / size**2


def crosses(t, name, size, *, full):
    """Whether TV has a kink within the step: a cell that is heavier than μ's before and lighter after, or reverse."""

    def signs(s):
        pi, mu = oracles.step(t.pi, t.ids, s), t.mu
        return np.sign(pi - mu) if full else np.sign(oracles.lump(pi, t.inside) - oracles.lump(mu, t.inside))

    return (signs(size) != signs(-size)).any(-1) if name == "tv" else np.zeros(len(t.ids), bool)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_curvature_is_the_second_derivative(x64, name):
    t = random_tokens(0, 2000)
    found = curvature(t.log_pi, t.log_mu, t.mask, t.slot, divergence=name, tail_log_sum_cube_pi=log_cube(t), **t.tails)
    expected = second_difference(lambda s: lumped_after(t, name, s))
    smooth = ~crosses(t, name, 1e-3, full=False)
    np.testing.assert_allclose(found[smooth], expected[smooth], atol=2e-6, rtol=1e-5)

    full = curvature_full(np.log(t.pi), np.log(t.mu), t.ids, divergence=name)
    expected = second_difference(lambda s: oracles.DIVERGENCES[name](oracles.step(t.pi, t.ids, s), t.mu))
    smooth = ~crosses(t, name, 1e-3, full=True)
    assert smooth.mean() > 0.95
    np.testing.assert_allclose(full[smooth], expected[smooth], atol=2e-6, rtol=1e-5)


def test_curvature_without_a_tail_is_the_written_out_formula(x64):
    t = random_tokens(1, 200, vocab_size=5, k=5)
    rows = np.arange(200)
    pi_y, sum_sq, sum_cube = t.pi[rows, t.ids], (t.pi**2).sum(-1), (t.pi**3).sum(-1)
    expected = pi_y - 2 * pi_y**2 + sum_cube - (pi_y - sum_sq) ** 2
    found = curvature(t.log_pi, t.log_mu, t.mask, t.slot, sum_sq_pi=sum_sq)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_the_lumped_kl_is_convex_where_the_policy_has_the_heavier_tail(x64):
    """C is the full KL's minus μ_T [T3/π_T − (T2/π_T)²], which is ≥ 0 wherever π_T ≥ μ_T."""
    for seed, spread in enumerate([0.5, 1.5, 4.0]):
        t = random_tokens(seed, 2000, spread=spread)
        found = curvature(t.log_pi, t.log_mu, t.mask, t.slot, tail_log_sum_cube_pi=log_cube(t), **t.tails)
        outside = ~t.inside
        mass, square, cube = ((t.pi**n * outside).sum(-1) for n in (1, 2, 3))
        tail_mu = (t.mu * outside).sum(-1)
        full = np.asarray(curvature_full(np.log(t.pi), np.log(t.mu), t.ids))
        np.testing.assert_allclose(found, full - tail_mu * (cube / mass - (square / mass) ** 2), atol=1e-12)
        assert (full >= -1e-15).all() and (np.asarray(found)[mass >= tail_mu] >= -1e-15).all()


@pytest.mark.parametrize("name", DIVERGENCES)
def test_an_unknown_cube_takes_the_tail_as_even(x64, name):
    t = random_tokens(2, 200)
    args = t.log_pi, t.log_mu, t.mask, t.slot
    even = 2 * t.tails["tail_log_sum_sq_pi"] - t.tails["tail_log_pi"]
    with_even = curvature(*args, divergence=name, tail_log_sum_cube_pi=even, **t.tails)
    np.testing.assert_allclose(curvature(*args, divergence=name, **t.tails), with_even, atol=1e-12)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_prediction_is_of_third_order(x64, name):
    t = random_tokens(3, 500)
    args = t.log_pi, t.log_mu, t.mask, t.slot
    now = lumped_after(t, name, 0.0)
    c = curvature(*args, divergence=name, tail_log_sum_cube_pi=log_cube(t), **t.tails)
    g = predict(*args, divergence=name, **t.tails)

    def error(size):
        return np.abs(lumped_after(t, name, size) - predicted_divergence(jnp.asarray(now), g, c, jnp.full(500, size)))

    clear = (error(0.2) > 1e-6) & ~crosses(t, name, 0.2, full=False)
    ratios = (error(0.2) / np.maximum(error(0.1), 1e-300))[clear]
    assert clear.mean() > 0.3 and np.median(ratios) == pytest.approx(8, rel=0.1)


def test_tied_cells_of_tv_enter_the_prediction_by_their_rate(x64):
    t = random_tokens(4, 300, vocab_size=6)
    mu = t.mu.copy()
    mu[:, 0] = t.pi[:, 0]  # tied on the first token; the last one takes up the difference
    mu[:, -1] += 1 - mu.sum(-1)
    ok = (mu > 1e-2).all(-1) & ((np.abs(mu - t.pi) > 1e-2) | (np.arange(6) == 0)).all(-1)
    pi, mu, ids = np.log(t.pi[ok]), np.log(mu[ok]), t.ids[ok]
    mu[:, 0] = pi[:, 0]
    g = predictive_direction_full(pi, mu, ids, divergence="tv")
    c, r = curvature_full(pi, mu, ids, divergence="tv"), tv_tie_rate_full(pi, mu, ids)
    now = oracles.DIVERGENCES["tv"](np.exp(pi), np.exp(mu))
    assert ok.sum() > 30 and (np.asarray(r) > 1e-4).mean() > 0.5
    for size in (1e-4, -1e-4):
        after = oracles.DIVERGENCES["tv"](oracles.step(np.exp(pi), ids, size), np.exp(mu))
        with_ties = predicted_divergence(jnp.asarray(now), g, c, jnp.full(ok.sum(), size), r)
        np.testing.assert_allclose(with_ties, after, atol=1e-8)
        without = predicted_divergence(jnp.asarray(now), g, c, jnp.full(ok.sum(), size))
        assert (np.asarray(with_ties) >= np.asarray(without)).all()


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


@pytest.mark.parametrize("name", ["reverse_kl", "chi2", "tv"])
def test_the_limit_is_not_one_of_the_other_divergences(x64, name):
    """Asked of the others, the KL's limit is exceeded: that is why it is offered for the KL only."""
    rng = np.random.default_rng(5)
    pi, mu = (oracles.softmax(spread * rng.normal(size=(3000, 4))) for spread in (1.0, 8.0))
    ids = rng.integers(0, 4, 3000)
    g = np.asarray(predictive_direction_full(np.log(pi), np.log(mu), ids, divergence=name))
    norm_sq = ((np.arange(4) == ids[:, None]) - pi) ** 2
    size = -np.sign(g) * 0.9 * 4 * np.abs(g) / norm_sq.sum(-1)
    grown = oracles.DIVERGENCES[name](oracles.step(pi, ids, size), mu) > oracles.DIVERGENCES[name](pi, mu) + 1e-9
    assert grown.any()


@pytest.mark.parametrize("name", DIVERGENCES)
def test_extreme_masses_stay_finite(name):
    log_pi = jnp.array([[0.0, -40.0, -100.0], [-100.0, 0.0, -jnp.inf], [-jnp.inf, -0.5, -0.9]], jnp.float32)
    mask, slot = jnp.ones((3, 3), bool), jnp.array([0, 1, 1])
    for log_mu in (log_pi, log_pi[::-1], jnp.full((3, 3), -1.1)):
        tails = {n: jnp.full(3, -200.0) for n in ("tail_log_pi", "tail_log_mu", "tail_log_sum_sq_pi")}
        found = curvature(
            log_pi, log_mu, mask, slot, divergence=name, tail_log_sum_cube_pi=jnp.full(3, -600.0), **tails
        )
        assert np.isfinite(found).all()


def test_padding_and_problems():
    junk, slot = jnp.full((2, 4), jnp.nan), jnp.full(2, 3)
    for function in (curvature, limit):
        assert not function(junk, junk, jnp.zeros((2, 4), bool), slot, sum_sq_pi=junk[:, 0]).any()
    ok = jnp.zeros((2, 3)), jnp.zeros((2, 3)), jnp.ones((2, 3), bool), jnp.zeros(2, jnp.int32)
    with pytest.raises(ValueError, match=r"tail_log_sum_cube_pi has shape \(3,\)"):
        predictive_curvature(*ok, sum_sq_pi=jnp.zeros(2), tail_log_sum_cube_pi=jnp.zeros(3))
    with pytest.raises(ValueError, match="divergence is 'k', expected one of 'kl'"):
        predictive_curvature(*ok, sum_sq_pi=jnp.zeros(2), divergence="k")
    with pytest.raises(TypeError, match="tail_log_sum_sq"):
        descent_step_limit(*ok, tail_log_sum_sq=jnp.zeros(2))
    with pytest.raises(ValueError, match=r"curvature has shape \(3,\), expected \(2,\) as divergence"):
        predicted_divergence(jnp.zeros(2), jnp.zeros(2), jnp.zeros(3), jnp.zeros(2))
