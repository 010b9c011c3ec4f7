"""Long-run estimators and their nuisances on three states, where every expectation is a sum."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ope import average_reward, discounted_reward, estimate
from trustax.ope.nuisance import average_value, discounted_state_ratio, linear_value, state_ratio

GAMMA = 0.8


class Known(NamedTuple):
    """All transitions of a small process with their probability in the behaviour's long run, and what is true of π."""

    probability: np.ndarray
    state: np.ndarray
    following: np.ndarray
    reward: np.ndarray
    action_ratio: np.ndarray
    start: np.ndarray
    average: float
    differential: np.ndarray
    omega: np.ndarray
    discounted: np.ndarray
    visits: np.ndarray

    @property
    def features(self) -> tuple[jax.Array, jax.Array]:
        return jnp.eye(3)[self.state], jnp.eye(3)[self.following]


def long_run(transition: np.ndarray) -> np.ndarray:
    matrix = np.vstack([transition.T - np.eye(3), np.ones(3)])
    return np.linalg.lstsq(matrix, np.array([0, 0, 0, 1.0]), rcond=None)[0]


@pytest.fixture(scope="module")
def known() -> Known:
    rng = np.random.default_rng(5)
    moves = rng.dirichlet(np.ones(3), (3, 2))  # [state, action, next]
    mu, pi = rng.dirichlet(np.ones(2) * 2, 3), rng.dirichlet(np.ones(2) * 2, 3)
    pay, start = rng.normal(size=(3, 2)), np.array([0.5, 0.3, 0.2])
    under_mu, under_pi = (np.einsum("sa,san->sn", p, moves) for p in (mu, pi))
    stationary, target = long_run(under_mu), long_run(under_pi)
    mean_pay = (pi * pay).sum(-1)
    average = float(target @ mean_pay)
    differential = np.linalg.lstsq(np.eye(3) - under_pi, mean_pay - average, rcond=None)[0]
    visits = (1 - GAMMA) * np.linalg.solve((np.eye(3) - GAMMA * under_pi).T, start)
    state, action, following = (x.reshape(-1) for x in np.indices((3, 2, 3)))
    return Known(
        probability=(stationary[:, None, None] * mu[:, :, None] * moves).reshape(-1),
        state=state,
        following=following,
        reward=pay[state, action],
        action_ratio=(pi / mu)[state, action],
        start=start,
        average=average,
        differential=differential,
        omega=target / stationary,
        discounted=np.linalg.solve(np.eye(3) - GAMMA * under_pi, mean_pay),
        visits=visits / stationary,
    )


def expected(terms, known: Known) -> float:
    return float(estimate(terms, jnp.asarray(known.probability)))


@pytest.mark.parametrize("tau", [0.3, 1.0, np.inf])
def test_average_reward_is_exact_with_the_exact_value_at_any_tau(x64, known, tau):
    q = known.differential
    terms = average_reward(
        *map(jnp.asarray, (known.reward, q[known.state], q[known.following], known.omega[known.state])),
        jnp.asarray(known.action_ratio),
        tau=tau,
    )
    assert expected(terms, known) == pytest.approx(known.average, abs=1e-12)


def test_average_reward_is_exact_with_the_exact_ratio_and_any_value(x64, known):
    for q in (np.zeros(3), np.array([1.0, -2.0, 5.0])):
        given = (known.reward, q[known.state], q[known.following], known.omega[known.state], known.action_ratio)
        assert expected(average_reward(*map(jnp.asarray, given)), known) == pytest.approx(known.average, abs=1e-12)
        assert abs(expected(average_reward(*map(jnp.asarray, given), tau=0.9), known) - known.average) > 1e-3


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("tau", [0.3, np.inf])
def test_discounted_reward_is_exact_where_it_should_be(x64, known, tau, normalize):
    truth = (1 - GAMMA) * known.start @ known.discounted
    for value in (known.discounted, known.discounted + np.array([0.5, -1.0, 2.0])):
        given = (known.reward, value[known.state], value[known.following], known.visits[known.state])
        terms = discounted_reward(
            *map(jnp.asarray, (*given, known.action_ratio)),
            gamma=GAMMA, initial_value=float(known.start @ value), tau=tau, normalize=normalize,
        )  # fmt: skip
        if value is known.discounted or tau == np.inf:
            assert expected(terms, known) == pytest.approx(truth, abs=1e-12)
        else:
            assert abs(expected(terms, known) - truth) > 1e-3


def test_linear_nuisances_find_what_is_true(x64, known):
    given = (*known.features, jnp.asarray(known.action_ratio), jnp.asarray(known.probability))
    exact = {"ridge": 1e-13}
    np.testing.assert_allclose(state_ratio(*given, **exact), known.omega, atol=1e-6)
    visits = discounted_state_ratio(*given, gamma=GAMMA, initial_features=jnp.asarray(known.start), **exact)
    np.testing.assert_allclose(visits, known.visits, atol=1e-6)
    features, following, ratio, weights = given
    rewards = jnp.asarray(known.reward)
    value = linear_value(features, following, rewards, ratio, weights, gamma=GAMMA, **exact)
    np.testing.assert_allclose(value, known.discounted, atol=1e-6)
    # One state is left out: the differential value is known up to a constant.
    theta, average = average_value(features[:, 1:], following[:, 1:], rewards, ratio, weights, **exact)
    np.testing.assert_allclose(theta, known.differential[1:] - known.differential[0], atol=1e-6)
    assert float(average) == pytest.approx(known.average, abs=1e-6)


def test_rows_without_weight_teach_nothing(x64, known):
    features, following = known.features
    rewards, ratio, weights = map(jnp.asarray, (known.reward, known.action_ratio, known.probability))
    whole = linear_value(features, following, rewards, ratio, weights, gamma=GAMMA)
    double = [jnp.concatenate([x, x]) for x in (features, following, rewards, ratio)]
    double[2] = double[2].at[len(rewards) :].set(1e6)
    found = linear_value(*double, jnp.concatenate([weights, jnp.zeros_like(weights)]), gamma=GAMMA)
    np.testing.assert_allclose(found, whole, atol=1e-9)
