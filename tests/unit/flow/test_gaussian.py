"""Log-prob, ratio, KL and TV of a step against densities, autodiff and Monte Carlo."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from trustax.flow import build_steps, replay, step_stats, time_grid
from trustax.flow.gaussian import divergence_after_step, kl, log_prob, log_ratio, tv, tv_of_kl

RNG = np.random.default_rng(3)
STD = np.array([0.3, 0.05])
MEAN, SHIFT, NOISE = RNG.normal(size=(4, 2, 5)), 0.02 * RNG.normal(size=(4, 2, 5)), RNG.normal(size=(4, 2, 5))
X_NEXT = MEAN + STD[:, None] * NOISE
FACTOR = {"sum": 1.0, "mean": 1 / 5}


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_log_prob_is_the_density(reduction, x64):
    expected = scipy.stats.norm(MEAN, STD[:, None]).logpdf(X_NEXT).sum(-1) * FACTOR[reduction]
    found = log_prob(jnp.asarray(X_NEXT), jnp.asarray(MEAN), jnp.asarray(STD), reduction=reduction)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_log_ratio_is_the_difference_of_log_probs(reduction, x64):
    """``log r = ε·d/S − D``, exactly."""
    at = lambda mean: log_prob(jnp.asarray(X_NEXT), jnp.asarray(mean), jnp.asarray(STD), reduction=reduction)  # noqa: E731
    found = log_ratio(jnp.asarray(NOISE), jnp.asarray(SHIFT), jnp.asarray(STD), reduction=reduction)
    np.testing.assert_allclose(found, at(MEAN + SHIFT) - at(MEAN), rtol=1e-9, atol=1e-12)
    along = (NOISE * SHIFT).sum(-1) / STD
    square = (SHIFT**2).sum(-1) / (2 * STD**2)
    np.testing.assert_allclose(found, (along - square) * FACTOR[reduction], rtol=1e-12)


def test_log_ratio_keeps_its_digits_in_float32():
    """A difference of two float32 log-probs of the same size has no digit left at 1e-7."""
    shift = (1e-7 * SHIFT).astype(np.float32)
    exact = ((NOISE * shift).sum(-1) / STD - (shift.astype(float) ** 2).sum(-1) / (2 * STD**2)) / 5
    found = log_ratio(
        jnp.asarray(NOISE, jnp.float32), jnp.asarray(shift), jnp.asarray(STD, jnp.float32), reduction="mean"
    )
    assert np.max(np.abs(exact)) < 1e-7
    np.testing.assert_allclose(found, exact, rtol=2e-5, atol=1e-13)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_gradients_are_what_the_docstrings_say(reduction, x64):
    noise, shift, std = jnp.asarray(NOISE), jnp.asarray(SHIFT), jnp.asarray(STD)
    wide = STD[:, None]
    score = jax.grad(lambda d: jnp.sum(log_ratio(noise, d, std, reduction=reduction)))(shift)
    np.testing.assert_allclose(score, (wide * NOISE - SHIFT) / wide**2 * FACTOR[reduction], rtol=1e-12)
    outward = jax.grad(lambda d: jnp.sum(kl(d, std, reduction=reduction)))(shift)
    np.testing.assert_allclose(outward, SHIFT / wide**2 * FACTOR[reduction], rtol=1e-12)
    density = jax.grad(lambda m: jnp.sum(log_prob(jnp.asarray(X_NEXT), m, std, reduction=reduction)))(jnp.asarray(MEAN))
    np.testing.assert_allclose(density, NOISE / wide * FACTOR[reduction], rtol=1e-9)


def test_moments_of_log_r_under_the_old_policy(x64):
    """E[log r] = −D, Var[log r] = 2D, E[r] = 1, and KL by Monte Carlo, all within 3 standard errors."""
    count = 40_000
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(count, 1, 5)))
    std, shift = jnp.array([0.05]), jnp.asarray(SHIFT[:1, 1:])
    d = float(kl(shift, std, reduction="sum")[0, 0])
    assert 0.02 < d < 2
    found = np.asarray(log_ratio(noise, jnp.broadcast_to(shift, noise.shape), std, reduction="sum"))[:, 0]
    assert abs(found.mean() + d) < 3 * found.std() / math.sqrt(count)
    assert abs(found.var() - 2 * d) < 3 * 2 * d * math.sqrt(2 / count)
    assert abs(np.exp(found).mean() - 1) < 3 * np.exp(found).std() / math.sqrt(count)


def test_tv_is_half_the_l1_distance(x64):
    std = jnp.array([0.3])
    for d in (0.0, 0.01, 0.3, 2.0):
        grid = np.linspace(-6, 8, 400_001)
        apart = np.abs(scipy.stats.norm(0, 0.3).pdf(grid) - scipy.stats.norm(d, 0.3).pdf(grid))
        found = float(tv(jnp.array([[d, 0.0]]), std, reduction="sum")[0])
        assert found == pytest.approx(0.5 * np.trapezoid(apart, grid), abs=1e-8)
        assert found == pytest.approx(2 * scipy.stats.norm.cdf(d / 0.6) - 1, abs=1e-14)


def test_tv_has_a_finite_gradient_where_the_means_agree():
    assert float(jax.grad(lambda d: tv_of_kl(d))(jnp.array(0.0))) == 0.0
    assert not np.any(
        np.asarray(jax.grad(lambda d: jnp.sum(tv(d, jnp.array([1.0]), reduction="sum")))(jnp.zeros((1, 2))))
    )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_divergence_after_a_step_is_exact(reduction, x64):
    """Move the mean along the gradient of A·r by autodiff, and measure."""
    noise, shift, std = jnp.asarray(NOISE), jnp.asarray(SHIFT), jnp.asarray(STD)
    advantages = jnp.asarray(RNG.normal(size=(4, 2)))
    step = 3e-3

    def gain(d):
        return jnp.sum(advantages * jnp.exp(log_ratio(noise, d, std, reduction=reduction)))

    moved = kl(shift + step * jax.grad(gain)(shift), std, reduction=reduction)
    residual = jnp.asarray(np.sum(np.square(STD[:, None] * NOISE - SHIFT), axis=-1) * FACTOR[reduction])
    found = divergence_after_step(
        kl(shift, std, reduction=reduction),
        log_ratio(noise, shift, std, reduction=reduction),
        residual,
        advantages,
        std,
        step=step,
        size=5,
        reduction=reduction,
    )
    np.testing.assert_allclose(found, moved, rtol=1e-10)
    assert np.abs(np.asarray(moved / kl(shift, std, reduction=reduction)) - 1).max() > 0.05


@pytest.mark.parametrize("sampler", ["flow_sde", "dance_sde", "cps"])
def test_closed_forms_in_the_velocity(sampler, setting, stats_of, field):
    """D of a policy's path equals the formulas in ‖Δv‖² of the two families, worked out separately."""
    steps, path, _, new = setting(sampler)
    stats = stats_of(steps, path, new, reduction="sum")
    from_old = replay(field(new), steps, path) - path.velocity
    squares = np.sum(np.asarray(from_old) ** 2, axis=-1)
    t, u = (np.asarray(steps.times)[list(steps.noisy)], np.asarray(steps.times)[[k + 1 for k in steps.noisy]])
    if sampler == "cps":
        angle = 0.7 * np.pi / 2
        c = -(1 - u) * t + u * (1 - t) * np.cos(angle)
        expected = c**2 * squares / (2 * u**2 * np.sin(angle) ** 2)
    else:
        s = 0.7 if sampler == "dance_sde" else 0.7 * np.sqrt(t / (1 - np.where(t == 1, u, t)))
        expected = (t - u) / 2 * (1 / s + s * (1 - t) / (2 * t)) ** 2 * squares
    np.testing.assert_allclose(stats.divergence, expected, rtol=1e-10)


@pytest.mark.parametrize("reduction", ["mean", pytest.param("sum", marks=pytest.mark.slow)])
def test_log_r_of_a_path_against_two_densities_and_its_gradient(reduction, setting, stats_of, field):
    """Through the velocity field, in float64: values to 1e-9, gradients by autodiff of the plain densities to 1e-9."""
    steps, path, old, new = setting()

    def density(weights):
        velocity = replay(field(weights), steps, path)
        index = np.asarray(steps.noisy)
        mean = steps.state[index][:, None] * path.states + steps.velocity[index][:, None] * velocity
        before = steps.state[index][:, None] * path.states + steps.velocity[index][:, None] * path.velocity
        x_next = before + steps.std[index][:, None] * path.noise
        return log_prob(x_next, mean, steps.std[index], reduction=reduction)

    with jax.numpy_rank_promotion("allow"):
        plain, plain_gradient = density(new) - density(old), jax.grad(lambda w: jnp.sum(density(w)))(new)
    found = stats_of(steps, path, new, reduction=reduction).log_ratio
    np.testing.assert_allclose(found, plain, rtol=1e-9, atol=1e-12)
    gradient = jax.grad(lambda w: jnp.sum(stats_of(steps, path, w, reduction=reduction).log_ratio))(new)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), gradient, plain_gradient)


def test_the_same_weights_are_exactly_on_policy(setting, stats_of):
    """In float32 too: r is exactly 1 and D exactly 0, so that no mask can drop anything."""
    steps, path, old, _ = setting()
    stats = stats_of(steps, path, old)
    assert not np.any(np.asarray(stats.log_ratio)) or np.abs(np.asarray(stats.log_ratio)).max() < 1e-14
    assert np.abs(np.asarray(stats.divergence)).max() < 1e-28


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"std": jnp.array([0.3, 0.0])}, "zero std has no log-prob"),
        ({"std": jnp.array([0.3, float("nan")])}, "zero std"),
        ({"std": jnp.array([0.3, 0.1, 0.1])}, "same time grid"),
        ({"reduction": "total"}, "expected 'mean' or 'sum'"),
        ({"shift": jnp.zeros((4, 2, 7))}, "shapes differ"),
    ],
)
def test_bad_steps_are_refused_with_the_reason(change, reason):
    noise, shift, std = (jnp.asarray(x, jnp.float32) for x in (NOISE, SHIFT, STD))
    arguments = {"noise": noise, "shift": shift, "std": std, "reduction": "mean"} | change
    with pytest.raises(ValueError, match=reason):
        log_ratio(**arguments)


def test_another_grid_is_refused(setting, stats_of):
    _, path, old, _ = setting()
    other = build_steps("flow_sde", time_grid(4, shift=2.0), noise=0.7, dtype=jnp.float64)
    with pytest.raises(ValueError, match=r"time grids differ: the path has \[1, 0.75"):
        stats_of(other, path, old)
    shorter = build_steps("flow_sde", time_grid(3), noise=0.7, dtype=jnp.float64)
    with pytest.raises(ValueError, match="the path has 4 steps"):
        jax.jit(lambda p: stats_of(shorter, p, old))(path)
    fewer = build_steps("flow_sde", time_grid(4), noise=0.7, noisy=[0], dtype=jnp.float64)
    with pytest.raises(ValueError, match="4 noisy steps, the sampler has 1"):
        stats_of(fewer, path, old)


def test_a_path_without_noise_has_no_log_prob(setting):
    _, path, _, _ = setting()
    plain = build_steps("ode", time_grid(4), dtype=jnp.float64)
    with pytest.raises(ValueError, match="noisy"):
        step_stats(plain, path, path.velocity, jnp.ones(6))
