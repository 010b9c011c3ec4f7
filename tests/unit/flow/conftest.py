"""A velocity field with one parameter vector, and a path in float64: what most of these tests compute on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.flow import build_steps, replay, sample, step_stats, time_grid

SIZE = 3


def velocity_of(weights):
    """v = W·x + c·t + the condition: linear, so that its gradient is known."""

    def velocity(x, t, condition):
        bend = jnp.sin(x @ weights["W"]) + t[:, None] * weights["c"][None, :]
        return bend + 0.1 * condition[:, None].astype(x.dtype)

    return velocity


def make_weights(seed, scale=0.5):
    rng = np.random.default_rng(seed)
    return {"W": jnp.asarray(scale * rng.normal(size=(SIZE, SIZE))), "c": jnp.asarray(scale * rng.normal(size=SIZE))}


@pytest.fixture
def field():
    """``field(weights)`` is a velocity field."""
    return velocity_of


@pytest.fixture
def x64():
    """Float64 for the length of one test."""
    with jax.enable_x64(True):
        yield


@jax.jit
def _draw(steps, weights, start, condition, key):
    return sample(velocity_of(weights), steps, start, condition, key)


@jax.jit
def _replay(weights, steps, path):
    return replay(velocity_of(weights), steps, path)


@pytest.fixture
def setting(x64):
    """Steps, a path of the old weights, the old and the new weights."""

    @functools.cache
    def build(sampler="flow_sde", batch=6, seed=0, move=0.05, noise=0.7):
        noisy = [0, 1, 2] if sampler == "cps" else None
        steps = build_steps(sampler, time_grid(4), noise=noise, noisy=noisy, dtype=jnp.float64)
        old = make_weights(seed)
        new = jax.tree.map(lambda a, b: a + move * b, old, make_weights(seed + 1, 1.0))
        start = jnp.asarray(np.random.default_rng(seed + 2).normal(size=(batch, SIZE)))
        path = _draw(steps, old, start, jnp.arange(batch) % 2, jax.random.key(seed))
        return steps, path, old, new

    return build


@pytest.fixture
def stats_of():
    def compute(steps, path, weights, advantages=None, reduction="mean", reference=None):
        velocity = replay(velocity_of(weights), steps, path)
        advantages = jnp.ones(len(path.samples), path.samples.dtype) if advantages is None else jnp.asarray(advantages)
        other = None if reference is None else replay(velocity_of(reference), steps, path)
        return step_stats(steps, path, velocity, advantages, reference=other, reduction=reduction)

    return compute
