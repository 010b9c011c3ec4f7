"""Means and stds of one step against the formulas written out, the ODE's limit, marginals, and refused end points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.flow import build_steps, sample, time_grid
from trustax.flow.samplers import cps, dance_sde, flow_sde, ode

T, U, NOISE = 0.6, 0.45, 0.7
X, V = np.array([0.3, -1.2, 2.0]), np.array([-0.5, 0.4, 0.1])


def published(sampler, x, v, t, u, noise, first=None):
    """Each sampler's mean and std as its source writes them, in x and v."""
    dt = u - t
    if sampler == "flow_sde":
        s = noise * np.sqrt(t / (1 - (u if first is None else first) if t == 1 else 1 - t))
        return x * (1 + s**2 / (2 * t) * dt) + v * (1 + s**2 * (1 - t) / (2 * t)) * dt, s * np.sqrt(-dt)
    if sampler == "dance_sde":
        score_like = (x - (1 - t) * (x - t * v)) / t**2
        return x + (v + noise**2 / 2 * score_like) * dt, noise * np.sqrt(-dt)
    if sampler == "cps":
        x0, x1 = x - t * v, x + (1 - t) * v
        return (1 - u) * x0 + u * np.cos(noise * np.pi / 2) * x1, u * np.sin(noise * np.pi / 2)
    return x + v * dt, 0.0


@pytest.mark.parametrize("sampler", ["flow_sde", "dance_sde", "cps", "ode"])
@pytest.mark.parametrize(("t", "u"), [(T, U), (1.0, 0.9), (0.2, 0.05)])
def test_mean_and_std_are_as_published(sampler, t, u):
    noise = {} if sampler == "ode" else {"noise": NOISE}
    found = {"flow_sde": flow_sde, "dance_sde": dance_sde, "cps": cps, "ode": ode}[sampler](t, u, **noise)
    mean, std = published(sampler, X, V, t, u, NOISE)
    np.testing.assert_allclose(found.state * X + found.velocity * V, mean, rtol=1e-13)
    np.testing.assert_allclose(found.std, std, rtol=1e-13)


def test_the_first_step_takes_the_next_time_or_a_number():
    """At t = 1 only the 1 − t of the noise is replaced: the drift's own 1 − t stays 0."""
    for first in (None, 0.99):
        found = flow_sde(1.0, 0.8, NOISE, first=first)
        mean, std = published("flow_sde", X, V, 1.0, 0.8, NOISE, first)
        np.testing.assert_allclose(found.state * X + found.velocity * V, mean, rtol=1e-13)
        np.testing.assert_allclose(found.std, std, rtol=1e-13)
    assert flow_sde(1.0, 0.8, NOISE).velocity == pytest.approx(-0.2)


@pytest.mark.parametrize("sampler", ["flow_sde", "dance_sde", "cps"])
def test_without_noise_it_is_the_ode(sampler):
    plain = build_steps("ode", time_grid(5), dtype=jnp.float32)
    almost = build_steps(sampler, time_grid(5), noise=1e-4, noisy=range(4))
    np.testing.assert_allclose(
        almost.state * 0.7 + almost.velocity * 1.3, plain.state * 0.7 + plain.velocity * 1.3, atol=1e-6
    )
    assert float(almost.std.max()) < 2e-4


def gaussian_moments(steps, mean, std, count):
    """Exact mean and variance of the samples where the data are N(mean, std²): the optimal velocity is linear in x."""
    m, var = 0.0, 1.0
    times, a, b, s = (np.asarray(x, np.float64) for x in (steps.times, steps.state, steps.velocity, steps.std))
    for k in range(count):
        t = times[k]
        total = (1 - t) ** 2 * std**2 + t**2
        gain = (t - (1 - t) * std**2) / total  # v = E[ε − x0 | x] = gain·(x − (1 − t)·mean) − mean
        slope, offset = a[k] + b[k] * gain, b[k] * (-gain * (1 - t) * mean - mean)
        m, var = slope * m + offset, slope**2 * var + s[k] ** 2
    return m, var


@pytest.mark.parametrize("sampler", ["flow_sde", "dance_sde", "cps", "ode"])
def test_every_sampler_draws_from_the_data_in_the_limit(sampler, x64):
    """The noise must not change the marginals: a drift with a wrong sign or a forgotten half would."""
    errors = []
    for count in (200, 400):
        grid = time_grid(count)
        noise = None if sampler == "ode" else 0.05 if sampler == "cps" else 0.7
        noisy = None if sampler == "ode" else range(count - 1)
        m, var = gaussian_moments(
            build_steps(sampler, grid, noise=noise, noisy=noisy, dtype=jnp.float64), 1.5, 0.5, count
        )
        errors.append(max(abs(m - 1.5), abs(np.sqrt(var) - 0.5)))
    assert errors[1] < 0.012
    assert errors[1] < 0.6 * errors[0] or errors[1] < 0.002, errors


def test_a_path_holds_what_was_sampled(setting):
    steps, path, _, _ = setting("flow_sde")
    for k in range(3):
        mean = steps.mean(k, path.states[:, k], path.velocity[:, k])
        np.testing.assert_allclose(mean + steps.std[k] * path.noise[:, k], path.states[:, k + 1], rtol=1e-12)
    last = steps.mean(3, path.states[:, 3], path.velocity[:, 3]) + steps.std[3] * path.noise[:, 3]
    np.testing.assert_allclose(last, path.samples, rtol=1e-12)
    assert not np.allclose(path.noise[:, 0], path.noise[:, 1])


def test_noise_at_some_steps_only():
    steps = build_steps("flow_sde", time_grid(4), noise=0.7, noisy=[2, 0])
    assert steps.noisy == (0, 2)
    assert np.asarray(steps.std > 0).tolist() == [True, False, True, False]
    assert float(steps.state[1]) == 1.0
    start = jnp.ones((2, 3))
    path = sample(lambda x, t, c: -x, steps, start, jnp.zeros(2, jnp.int32), jax.random.key(0))
    assert path.states.shape == (2, 2, 3)
    np.testing.assert_allclose(path.states[:, 1], _two_steps(steps, start, path.noise[:, 0]), rtol=1e-6)


def _two_steps(steps, x, noise):
    x = steps.mean(0, x, -x) + steps.std[0] * noise
    return steps.mean(1, x, -x)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"sampler": "sde"}, "expected one of flow_sde"),
        ({"noise": 0.0}, "zero std"),
        ({"noise": None}, "zero std"),
        ({"noise": float("nan")}, "zero std"),
        ({"sampler": "cps", "noise": 1.5, "noisy": [0]}, r"\(0, 1\]"),
        ({"sampler": "cps"}, "cps has zero std where a step ends at t = 0"),
        ({"sampler": "ode"}, "ode has no noise"),
        ({"times": [1.0, 0.5, 0.5]}, r"t\[1\] = 0.5 and t\[2\] = 0.5"),
        ({"times": [0.0, 0.5, 1.0]}, "a flow runs from 1 to 0"),
        ({"times": [1.2, 0.5]}, r"expected \[0, 1\]"),
        ({"times": [1.0]}, "at least one step"),
        ({"times": [1.0, float("nan")]}, r"expected \[0, 1\]"),
        ({"noisy": [0, 7]}, r"in \[0, 2\]"),
        ({"noisy": [0, 0]}, "different"),
        ({"noisy": []}, "one or more"),
        ({"first": 1.0}, r"a time in \[0, 1\)"),
        ({"sampler": "dance_sde", "first": 0.9}, "dance_sde was asked for"),
    ],
)
def test_bad_samplers_are_refused_with_the_reason(arguments, reason):
    good = {"sampler": "flow_sde", "times": time_grid(3), "noise": 0.7}
    with pytest.raises(ValueError, match=reason):
        build_steps(**(good | arguments))


@pytest.mark.parametrize("bad", [{"steps": 0}, {"steps": 4, "shift": 0.0}, {"steps": 4, "end": 1.0}])
def test_bad_grids_are_refused(bad):
    with pytest.raises(ValueError, match="expected"):
        time_grid(**bad)
