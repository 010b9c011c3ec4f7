"""Masks: truth tables, algebra, overflow, and the equality of PDM and DPPO on binary divergences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.objectives import RECIPES, ObjectiveSpec, build
from trustax.objectives.directions import Always, NegativeAdvantage, RatioSign
from trustax.objectives.masks import ForSign, KeepAll, TrustRegion, WholeSequence
from trustax.objectives.proximity import BinaryTV, LumpedDivergence, PredictedDivergence
from trustax.objectives.thresholds import ByAdvantageSign, Constant
from trustax.objectives.view import view_of
from trustax.ops.masked import masked_sum
from trustax.ops.ratios import log_ratio
from trustax.testing.full_vocabulary import token_stats
from trustax.types import TokenStats

# mu, pi, A
ROWS = [(0.3, 0.6, 1), (0.3, 0.6, -1), (0.6, 0.3, 1), (0.6, 0.3, -1), (0.3, 0.45, 1), (0.3, 0.6, 0)]


def stats_of(rows):
    mu, pi, a = (jnp.asarray(column, jnp.float32)[None] for column in zip(*rows, strict=True))
    return TokenStats(log_pi=jnp.log(pi), log_mu=jnp.log(mu), advantages=a, token_mask=jnp.ones(a.shape, bool))


def kept(mask, rows=ROWS):
    return np.asarray(mask(view_of(stats_of(rows), frozenset())).keep)[0].tolist()


def region(direction, delta=0.2):
    return TrustRegion(BinaryTV(), Constant(delta), direction)


def test_dppo_truth_table():
    out = build(RECIPES["dppo_binary_tv"](delta=0.2)).per_token(stats_of(ROWS))
    assert np.asarray(out.keep)[0].tolist() == [False, True, True, False, True, True]

    def loss(log_pi):
        return build(RECIPES["dppo_binary_tv"](delta=0.2))(stats_of(ROWS).replace(log_pi=log_pi)).sum

    gradient = np.asarray(jax.grad(loss)(stats_of(ROWS).log_pi))[0]
    np.testing.assert_allclose(gradient, [0, 2.0, -0.5, 0, -1.5, 0], rtol=1e-5)


def test_symmetric_and_sign_restricted_masks_have_their_own_tables():
    assert kept(region(Always())) == [False, False, False, False, True, False]
    assert kept(region(NegativeAdvantage())) == [True, False, True, False, True, True]
    assert kept(ForSign(region(Always()), -1)) == [True, False, True, False, True, True]
    assert kept(ForSign(region(Always()), 1)) == [False, True, False, True, True, True]


def test_asymmetric_thresholds_by_the_advantages_sign():
    both = TrustRegion(BinaryTV(), ByAdvantageSign(positive=0.5, negative=0.2), RatioSign())
    assert kept(both) == [True, True, True, False, True, True]


def test_algebra():
    a, b = region(RatioSign()), region(NegativeAdvantage())
    first, second = np.array(kept(a)), np.array(kept(b))
    assert kept(a & b) == (first & second).tolist()
    assert kept(a | b) == (first | second).tolist()
    assert kept(~a) == (~first).tolist()
    assert kept(KeepAll()) == [True] * 6


def test_whole_sequence_rejection():
    assert kept(WholeSequence(region(RatioSign()))) == [False] * 6
    assert kept(WholeSequence(region(RatioSign()), share=0.4)) == [True] * 6  # 2 of 6 are dropped


def test_on_the_threshold_is_kept_and_raising_it_never_drops_more():
    rows = [(0.25, 0.5, 1)]
    assert kept(region(RatioSign(), 0.25), rows) == [True]
    assert kept(region(RatioSign(), 0.2499), rows) == [False]
    before = np.zeros(6, bool)
    for delta in (0.0, 0.1, 0.2, 0.4, 1.0):
        now = np.array(kept(region(RatioSign(), delta)))
        assert not np.any(before & ~now)
        before = now


def test_a_stale_token_that_overflows_leaves_a_finite_loss():
    """Log-ratio 900 on a dropped token; exponentiating first and multiplying by 0 gives NaN."""
    objective = build(RECIPES["dppo_binary_tv"](aggregation="token_mean"))
    log_mu = jnp.array([[-900.0, -0.5]])

    def loss(log_pi):
        stats = TokenStats(log_pi, log_mu, jnp.ones((1, 2)), jnp.ones((1, 2), bool))
        return objective(stats).loss

    value, gradient = jax.value_and_grad(loss)(jnp.array([[0.0, -0.5]]))
    np.testing.assert_allclose(value, 0.25, rtol=1e-6)  # −(0 + 1·log π)/2 with log π = −.5
    np.testing.assert_array_equal(gradient, [[0.0, -0.5]])


def test_the_surrogate_of_an_overflowing_dropped_token_is_the_others():
    """A = [1, 1], log-ratio [900, 0], keep [0, 1]: −½ with gradient [0, −½]; inf·0 makes both NaN."""
    log_mu, keep = jnp.array([-900.0, -0.5]), jnp.array([False, True])

    def surrogate(log_pi):
        ratio = jnp.exp(log_ratio(log_pi, log_mu, keep))
        return masked_sum(-ratio, keep) / 2

    def faulty(log_pi):
        return jnp.sum(-jnp.exp(log_pi - log_mu) * keep.astype(jnp.float32)) / 2

    log_pi = jnp.array([0.0, -0.5])
    value, gradient = jax.value_and_grad(surrogate)(log_pi)
    assert float(value) == -0.5 and gradient.tolist() == [0.0, -0.5]
    assert np.isnan(faulty(log_pi)) and np.isnan(jax.grad(faulty)(log_pi)[0])
    # The objective's loss has the same gradient: its mask drops the token itself.
    stats = TokenStats(log_pi[None], log_mu[None], jnp.ones((1, 2)), jnp.ones((1, 2), bool))
    objective = build(RECIPES["dppo_binary_tv"](aggregation="token_mean"))
    found = jax.grad(lambda x: objective(stats.replace(log_pi=x)).loss)(stats.log_pi)
    np.testing.assert_array_equal(found, gradient[None])


@pytest.mark.parametrize("kind", ["kl", "tv"])
@pytest.mark.slow
def test_the_predicted_divergence_is_that_after_the_step(kind):
    """Over distributions with one tail token at most, where nothing is taken as even."""
    rng = np.random.default_rng(2)
    mu = rng.normal(size=(3, 40, 6))
    pi, mu = (jax.nn.log_softmax(jnp.asarray(z, jnp.float32)) for z in (mu + 0.7 * rng.normal(size=mu.shape), mu))
    y, a = jnp.asarray(rng.integers(0, 6, (3, 40))), jnp.asarray(rng.choice([-1.0, 1.0], (3, 40)), jnp.float32)
    stats = token_stats(pi, mu, y, a, jnp.ones((3, 40), bool), top_k=5)
    step = 0.05 * a * jnp.minimum(jnp.exp(stats.log_pi - stats.log_mu), 5.0)
    moved = jax.nn.log_softmax(pi + step[..., None] * (jax.nn.one_hot(y, 6) - jnp.exp(pi)))
    now, after = (
        LumpedDivergence(kind)(view_of(token_stats(x, mu, y, a, stats.token_mask, top_k=5), frozenset()))
        for x in (pi, moved)
    )
    found = PredictedDivergence(0.05, kind)(view_of(stats, frozenset()))
    error, change = np.abs(found - after), np.abs(now - after)
    assert np.quantile(error, 0.9) < 2e-4 and np.quantile(change, 0.9) > 5e-3

    mask = TrustRegion(PredictedDivergence(0.05, kind), Constant(0.1), Always())
    keep = build(ObjectiveSpec(mask=mask)).per_token(stats).keep
    np.testing.assert_array_equal(keep, np.asarray(found) <= 0.1)
    assert 0.1 < np.mean(keep) < 0.9


def test_pdm_is_dppo_bit_for_bit_on_binary_divergences():
    """The step moves π_y by c·π_y(1 − 2π_y + Σπ²), of c's sign: Bernoulli divergences have the ratio's direction."""
    rng = np.random.default_rng(0)
    logits_mu, shift = rng.normal(size=(200, 6)) * 2, rng.normal(size=(200, 6))
    mu, pi = np.exp(logits_mu), np.exp(logits_mu + shift)
    mu, pi = mu / mu.sum(-1, keepdims=True), pi / pi.sum(-1, keepdims=True)
    y, a = rng.integers(0, 6, 200), rng.choice([-1.0, 1.0], 200)
    rows = np.arange(200)
    step = a * pi[rows, y] * (1 - 2 * pi[rows, y] + (pi**2).sum(-1))
    grows = step * (pi[rows, y] - mu[rows, y]) > 0  # d|π−μ| and dKL have the sign of (π−μ)·dπ
    far = np.abs(pi[rows, y] - mu[rows, y]) > 0.1
    want = ~(far & grows)
    got = kept(region(RatioSign(), 0.1), list(zip(mu[rows, y], pi[rows, y], a, strict=True)))
    assert got == want.tolist()
    assert 10 < np.sum(~want) < 190


@pytest.mark.parametrize("name", ["dppo_binary_tv", "dppo_binary_kl"])
def test_no_gradient_flows_through_the_mask_or_the_weight(name):
    """Near the threshold a differentiable mask or weight would add to −A·w."""
    objective = build(RECIPES[name](delta=0.1, cap=1.5))
    stats = stats_of(ROWS)
    gradient = jax.grad(lambda lp: objective(stats.replace(log_pi=lp)).sum)(stats.log_pi)
    want = -stats.advantages * objective.per_token(stats).weight
    np.testing.assert_array_equal(gradient, want)


def test_own_composition_in_ten_lines():
    spec = ObjectiveSpec(mask=region(RatioSign()) & region(Always(), 0.29), name="mine")
    out = build(spec)(stats_of(ROWS))
    assert float(out.metrics["mask/fraction"].total) == 5 and float(out.metrics["mask/fraction"].weight) == 6
