"""Metrics: by hand on a small batch, the sign of the entropy change, and exact merging."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.objectives import RECIPES, build
from trustax.objectives.telemetry import entropy_direction
from trustax.objectives.view import view_of
from trustax.testing.full_vocabulary import token_stats
from trustax.types import TokenStats


def batch():
    """mu, pi, A of the truth table: two of six dropped, both outward; the last token is padding."""
    mu = jnp.array([[0.3, 0.3, 0.6, 0.6, 0.3, 0.3, 0.5]])
    pi = jnp.array([[0.6, 0.6, 0.3, 0.3, 0.45, 0.6, 0.5]])
    a = jnp.array([[1.0, -1.0, 1.0, -1.0, 1.0, 0.0, 1.0]])
    return TokenStats(jnp.log(pi), jnp.log(mu), a, jnp.arange(7)[None] < 6)


def test_by_hand():
    seen = {k: float(v) for k, v in build(RECIPES["dppo_binary_tv"](delta=0.2, cap=1.7))(batch()).metrics.items()}
    expected = {
        "mask/fraction": 2 / 6,
        "mask/fraction_positive": 1 / 3,
        "mask/fraction_negative": 1 / 2,
        "mask/fraction_zero": 0.0,
        "mask/fraction_above": 1 / 4,
        "mask/fraction_below": 1 / 2,
        "mask/far": 5 / 6,
        "mask/outward": 3 / 6,
        "mask/fraction_of_far": 2 / 5,
        # |A| min(r, 1.7): 1.7, 1.7, .5, .5, 1.5, 0, of which the first and the fourth are dropped
        "mask/dropped_mass": 2.2 / 5.9,
        "divergence/mean": (5 * 0.3 + 0.15) / 6,
        "divergence/max": 0.3,
        "divergence/p95": 0.3,
        "prob_gap/max": 0.3,
        "weight/mean": (1.7 + 0.5 + 1.5 + 1.7) / 4,
        "weight/max": 1.7,
        "weight/min": 0.5,
        "weight/cap_hits": 2 / 4,
        "weight/ess": 5.4**2 / (4 * (1.7**2 + 0.25 + 2.25 + 1.7**2)),
        "log_ratio/max_abs": np.log(2),
        "direction/disagreement": 0.0,
        "tokens/valid": 6.0,
        "sequences/valid": 1.0,
    }
    for name, value in expected.items():
        assert seen[name] == pytest.approx(value, abs=1e-6), name


def test_the_dropped_share_by_position_counts_valid_tokens():
    """Twenty tokens, two to a decile, of which the last four are dropped; padding and an empty row move nothing."""
    keep, width = 16, 25
    log_mu = jnp.full((2, width), -1.0)
    valid = jnp.arange(width)[None] % 5 != 4  # twenty of them: padding in between
    log_pi = jnp.where(jnp.cumsum(valid, axis=-1) > keep, -0.1, -1.0) + jnp.zeros((2, 1))
    stats = TokenStats(log_pi, log_mu, jnp.ones((2, width)), valid & jnp.array([[True], [False]]))
    seen = build(RECIPES["dppo_binary_tv"]())(stats).metrics
    deciles = [seen[f"mask/fraction_decile_{n}"] for n in range(1, 11)]
    assert [(float(d.weight), float(d)) for d in deciles] == [(2, 0)] * 8 + [(2, 1)] * 2


@pytest.mark.parametrize("length", [3, 10])
def test_every_valid_token_stands_in_one_decile(length):
    stats = TokenStats(*[jnp.full((1, length), -1.0)] * 3, jnp.ones((1, length), bool))
    seen = build(RECIPES["pg_is"]())(stats).metrics
    weights = [float(seen[f"mask/fraction_decile_{n}"].weight) for n in range(1, 11)]
    want = np.bincount([min(int(np.ceil((10 * t) / length)), 10) for t in range(1, length + 1)], minlength=11)[1:]
    assert weights == want.tolist() and sum(weights) == length


def test_an_absent_category_has_weight_zero():
    metrics = build(RECIPES["pg_is"]())(batch().replace(advantages=jnp.ones((1, 7)))).metrics
    assert float(metrics["mask/fraction_negative"].weight) == 0
    assert float(metrics["mask/fraction_negative"]) == 0.0


@pytest.fixture(scope="module")
def full():
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        mu = jnp.asarray(rng.normal(size=(3, 4, 7)))
        pi = jax.nn.log_softmax(mu + 0.8 * jnp.asarray(rng.normal(size=(3, 4, 7))))
        tokens = jnp.asarray(rng.integers(0, 7, (3, 4)))
        a = jnp.asarray(rng.choice([-1.0, 1.0], (3, 4)))
        return pi, token_stats(pi, jax.nn.log_softmax(mu), tokens, a, jnp.ones((3, 4), bool), top_k=6), tokens


def test_entropy_direction_is_the_derivative_along_the_softmax_step(full):
    """With K = V − 1 the tail holds at most one token, so nothing is approximated."""
    pi, stats, tokens = full
    with jax.enable_x64(True):
        view = view_of(stats, frozenset())
        got = np.asarray(entropy_direction(view, view.support, view.entropy))
    z, h = np.asarray(pi), 1e-6
    step = np.eye(7)[np.asarray(tokens)] - np.exp(z)

    def entropy(x):
        p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        return -(p * np.log(p)).sum(-1)

    np.testing.assert_allclose(got, (entropy(z + h * step) - entropy(z - h * step)) / (2 * h), atol=1e-8)


def test_disagreement_counts_far_tokens_that_the_two_directions_judge_differently(full):
    _, stats, _ = full
    with jax.enable_x64(True):
        predictive = build(RECIPES["pdm_topk_kl"](delta=0.05))
        fates, ratio = predictive.per_token(stats), build(RECIPES["dppo_topk_kl"](delta=0.05)).per_token(stats)
        far = np.asarray(fates.far)
        want = np.mean(np.asarray(fates.outward != ratio.outward)[far])
        got = float(predictive(stats).metrics["direction/disagreement"])
    assert got == pytest.approx(want) and 0 < want < 1


def test_a_certificate_reports_how_much_it_proved(full):
    _, stats, _ = full
    with jax.enable_x64(True):
        objective = build(RECIPES["pdm_certified"](delta=0.05))
        metric = objective(stats).metrics["direction/certified"]
        proven = np.asarray(objective.per_token(stats).direction) != 0
        far = np.asarray(objective.per_token(stats).far)
        assert float(metric) == pytest.approx(proven[far].mean()) and far.any()


def test_tails_say_whether_they_come_from_the_logits(full):
    _, stats, _ = full
    with jax.enable_x64(True):
        bare = dataclasses.replace(stats.support, tail_log_mu=None, tail_log_pi=None, tail_log_sum_sq_pi=None)
        objective = build(RECIPES["pdm_topk_kl"]())
        stored, foreign = objective(stats).metrics, objective(stats.replace(support=bare)).metrics
        assert float(stored["tail/from_logits"]) == 1.0 and float(foreign["tail/from_logits"]) == 0.0
        for name in ("tail/mu_mean", "tail/pi_max"):
            assert float(stored[name]) == pytest.approx(float(foreign[name]), abs=1e-12)
