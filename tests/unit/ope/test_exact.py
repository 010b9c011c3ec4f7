"""Expectations by listing every completion of a small tree: what is unbiased is so exactly, and what isn't, isn't."""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ope import (
    doubly_robust,
    estimate,
    importance_sampling,
    per_decision,
    self_normalized,
    truncated_doubly_robust,
)

TAUS = (0.1, 0.7, 1.0, 3.0, np.inf)


class Listed(NamedTuple):
    """Every completion with its probability under μ; scores are paid as they come."""

    probability: np.ndarray
    scores: np.ndarray
    values: np.ndarray
    log_ratios: np.ndarray
    mask: np.ndarray


@pytest.fixture(scope="module")
def listed(tree) -> Listed:
    to_come = tree.to_come(tree.log_pi)
    rows = []
    for tokens in itertools.product(range(2), repeat=tree.length):
        state, log_mu, parts = 0, 0.0, []
        for t, token in enumerate(tokens):
            log_mu += tree.log_mu[state, token]
            ratio = tree.log_pi[state, token] - tree.log_mu[state, token]
            parts.append((tree.score[state, token], to_come[t, state], ratio))
            state = tree.following[state, token]
        rows.append((np.exp(log_mu), *np.array(parts).T))
    probability, scores, values, ratios = (np.array(part) for part in zip(*rows, strict=True))
    return Listed(probability, scores, values, ratios, np.ones(scores.shape, bool))


def expectation(terms, listed: Listed) -> float:
    return float(estimate(terms, jnp.asarray(listed.probability)))


def arrays(listed: Listed):
    return jnp.asarray(listed.scores), jnp.asarray(listed.log_ratios), jnp.asarray(listed.mask)


def test_the_list_is_complete(listed, tree):
    assert listed.probability.sum() == pytest.approx(1)
    returns = listed.scores.sum(-1)
    assert listed.probability @ returns == pytest.approx(tree.value(tree.log_mu))
    assert abs(tree.value(tree.log_mu) - tree.value(tree.log_pi)) > 0.3  # or there would be nothing to correct


@pytest.mark.parametrize("estimator", [importance_sampling, self_normalized, per_decision])
def test_weighting_is_unbiased(x64, listed, tree, estimator):
    assert expectation(estimator(*arrays(listed)), listed) == pytest.approx(tree.value(tree.log_pi), abs=1e-12)


def test_doubly_robust_is_unbiased_with_any_value(x64, listed, tree):
    scores, ratios, mask = arrays(listed)
    for values in (listed.values, np.full_like(listed.values, 3.0), -listed.values):
        for normalize in (False, True):
            terms = doubly_robust(scores, jnp.asarray(values), ratios, mask, normalize=normalize)
            assert expectation(terms, listed) == pytest.approx(tree.value(tree.log_pi), abs=1e-12)


@pytest.mark.parametrize("tau", TAUS)
def test_with_the_exact_value_no_truncation_is_biased(x64, listed, tree, tau):
    scores, ratios, mask = arrays(listed)
    terms = truncated_doubly_robust(scores, jnp.asarray(listed.values), ratios, mask, tau=tau)
    assert expectation(terms, listed) == pytest.approx(tree.value(tree.log_pi), abs=1e-12)


def test_with_another_value_truncation_is_biased_and_the_bias_vanishes_with_tau(x64, listed, tree):
    scores, ratios, mask = arrays(listed)
    zeros = jnp.zeros_like(scores)
    bias = [
        expectation(truncated_doubly_robust(scores, zeros, ratios, mask, tau=tau), listed) - tree.value(tree.log_pi)
        for tau in (0.7, 1.0, 1e4)
    ]
    assert abs(bias[0]) > abs(bias[1]) > 0.05 and bias[2] == pytest.approx(0, abs=1e-12)


def test_truncating_the_whole_product_is_biased_even_with_the_exact_value(listed, tree):
    after = np.concatenate([listed.values[:, 1:], np.zeros((len(listed.values), 1))], axis=1)
    weights = np.minimum(np.exp(listed.log_ratios.cumsum(-1)), 1.0)
    whole = listed.values[:, 0] + (weights * (listed.scores + after - listed.values)).sum(-1)
    assert abs(listed.probability @ whole - tree.value(tree.log_pi)) > 0.1


def test_the_other_form_gains_nothing(x64, listed):
    """``P_t (R + V') − P_{t−1} V``, untruncated, is plain weighting of each completion, whatever V is."""
    after = np.concatenate([listed.values[:, 1:], np.zeros((len(listed.values), 1))], axis=1)
    through = np.exp(listed.log_ratios.cumsum(-1))
    before = np.concatenate([np.ones((len(through), 1)), through[:, :-1]], axis=1)
    other = listed.values[:, 0] + (through * (listed.scores + after) - before * listed.values).sum(-1)
    np.testing.assert_allclose(other, per_decision(*arrays(listed)).numerator[:, 0], atol=1e-12)


def by_hand(rewards, values, log_ratios, mask, tau, gamma):
    """One episode at a time, as the formula reads."""
    found = []
    for row in range(len(rewards)):
        places = np.flatnonzero(mask[row])
        total, state_ratio = values[row, places[0]] if len(places) else 0.0, 1.0
        for n, t in enumerate(places):
            later = values[row, places[n + 1]] if n + 1 < len(places) else 0.0
            ratio = np.exp(log_ratios[row, t])
            error = rewards[row, t] + gamma * later - values[row, t]
            total += gamma**n * min(state_ratio, tau) * ratio * error
            state_ratio *= ratio
        found.append(total)
    return np.mean(found)


@pytest.mark.parametrize("junk", [np.nan, np.inf, -np.inf, 1e30])
def test_masks_and_discount_against_the_formula(x64, junk):
    rng = np.random.default_rng(0)
    shape = (7, 5)
    mask = rng.random(shape) > 0.3
    mask[0] = False
    rewards, values, ratios = (np.where(mask, rng.normal(size=shape), junk) for _ in range(3))
    for tau in (0.8, np.inf):
        terms = truncated_doubly_robust(*map(jnp.asarray, (rewards, values, ratios, mask)), tau=tau, gamma=0.9)
        assert float(estimate(terms)) == pytest.approx(by_hand(rewards, values, ratios, mask, tau, 0.9), abs=1e-12)
    plain = importance_sampling(*map(jnp.asarray, (rewards, ratios, mask)), gamma=0.9)
    clean, weights = np.where(mask, rewards, 0), np.exp(np.where(mask, ratios, 0).sum(-1))
    returns = (clean * 0.9 ** np.maximum(mask.cumsum(-1) - 1, 0)).sum(-1)
    assert float(estimate(plain)) == pytest.approx(np.mean(weights * returns), abs=1e-12)


def test_step_wise_weights_are_divided_by_their_mean_over_all_episodes(x64):
    """An episode that has ended keeps its weight, or the mean would not be that of a martingale."""
    mask = np.array([[True, False], [True, True]])
    ratios = jnp.log(jnp.array([[2.0, 1.0], [0.5, 3.0]]))
    rewards = jnp.array([[1.0, 0.0], [0.0, 2.0]])
    found = estimate(per_decision(rewards, ratios, jnp.asarray(mask), normalize=True))
    assert float(found) == pytest.approx(2 * 1 / 2.5 + 1.5 * 2 / (2 + 1.5))


def test_a_state_ratio_that_overflows_before_an_impossible_action_is_no_nan(x64):
    ratios = jnp.array([[800.0, -jnp.inf]])
    found = estimate(per_decision(jnp.ones((1, 2)), ratios, jnp.ones((1, 2), bool)))
    assert not np.isnan(found)
