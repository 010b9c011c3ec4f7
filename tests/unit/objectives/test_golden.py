"""Golden per-token weights and masks: one sequence, five tokens, the third masked (its π would exceed 1)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.objectives import RECIPES, build
from trustax.objectives.masks import TrustRegion
from trustax.objectives.proximity import K2, K3, Absolute, BinaryKL, BinaryTV, RatioDeviation, SequenceMax, SequenceMean
from trustax.objectives.ratio import BEHAVIOR, policy_ratio
from trustax.objectives.thresholds import PowerOfPosition, PrefixBudget
from trustax.objectives.view import view_of
from trustax.types import TokenStats

L = np.array([0.10, -0.20, 0.30, -0.05, 0.02])
MASK = np.array([True, True, False, True, True])
MU = np.array([0.5, 0.4, 0.9, 0.05, 0.8])
SEEN = [0, 1, 3, 4]


def stats(sign, dtype=jnp.float32):
    log_mu = jnp.asarray(np.log(MU), dtype)[None]
    log_pi = jnp.asarray(np.log(MU) + L, dtype)[None]
    return TokenStats(
        log_pi=log_pi,
        log_mu=log_mu,
        advantages=jnp.full((1, 5), sign, dtype),
        token_mask=jnp.asarray(MASK)[None],
        log_anchor=log_mu,
    )


def fates(name, sign, **hyperparameters):
    return build(RECIPES[name](**hyperparameters)).per_token(stats(sign))


def at_seen(values):
    return np.asarray(values)[0, SEEN]


RATIO = [1.105171, 0.818731, 0.951229, 1.020201]
PREFIX = [1.105171, 0.904837, 0.860708, 0.878095]


@pytest.mark.parametrize(
    ("name", "options", "sign", "expected"),
    [
        ("pg_is", {}, 1.0, RATIO),
        ("pg_is", {"level": "prefix"}, 1.0, PREFIX),
        ("pg_is", {"level": "sequence_sum"}, 1.0, [0.878095] * 4),
        ("minpro", {}, 1.0, [1.105171, 0.904837, 0.8, 0.835270]),
        ("minpro", {"cap_at_one": True}, 1.0, [1.105171, 0.818731, 0.8, 0.835270]),
        ("gspo", {"eps_low": 0.1, "eps_high": 0.1}, 1.0, [0.968022] * 4),
        ("sapo_soft", {}, 1.0, [1.102120, 0.812042, 0.950664, 1.020097]),
        ("sapo_soft", {}, -1.0, [1.101808, 0.811360, 0.950606, 1.020087]),
        ("ctpo", {}, 1.0, [0, 0.904837, 0.860708, 0.878095]),
        ("ctpo", {}, -1.0, [0, 0, 0, 0]),
        ("gmpo", {"eps_low": 0.1, "eps_high": 0.11}, 1.0, [0.968022] * 4),
        ("gmpo", {"eps_low": 0.1, "eps_high": 0.1}, -1.0, [0.992528, 0, 0.992528, 0.992528]),
        ("gmpo", {"eps_low": 0.1, "eps_high": 0.09}, 1.0, [0, *[0.965605] * 3]),
        ("dppo_binary_tv", {"delta": 0.05}, 1.0, [0, *RATIO[1:]]),
        ("dppo_binary_tv", {"delta": 0.05}, -1.0, [RATIO[0], 0, *RATIO[2:]]),
        ("trm_max", {}, 1.0, RATIO),
        ("trm_max", {"delta": 0.019}, 1.0, [0] * 4),
        ("trm_avg", {"delta": 0.0064}, -1.0, RATIO),
        ("trm_avg", {"delta": 0.0063}, -1.0, [0] * 4),
    ],
)
def test_weights(name, options, sign, expected):
    np.testing.assert_allclose(at_seen(fates(name, sign, **options).weight), expected, atol=2e-6)
    assert not fates(name, sign, **options).keep[0, 2]


def test_ctpo_bands():
    view = view_of(stats(1.0), frozenset({"log_anchor"}))
    prefix = policy_ratio("anchor", "prefix")(view)
    np.testing.assert_allclose(prefix[0], [0.10, -0.10, -0.10, -0.15, -0.13], atol=1e-6)
    bounds = PowerOfPosition(0.025, 0.05)(view, prefix)
    np.testing.assert_allclose(at_seen(bounds.upper), [0.05, 0.070711, 0.086603, 0.10], atol=1e-6)
    np.testing.assert_allclose(at_seen(bounds.lower), [-0.025, -0.035355, -0.043301, -0.05], atol=1e-6)


def test_divergences_and_sequence_statistics():
    view = view_of(stats(1.0), frozenset())
    np.testing.assert_allclose(at_seen(BinaryTV()(view)), [0.052585, 0.072508, 0.002439, 0.016161], atol=1e-6)
    np.testing.assert_allclose(at_seen(BinaryKL()(view)), [0.005561, 0.011550, 0.000065, 0.000851], atol=1e-6)
    for proximity, value in [
        (SequenceMax(K2(BEHAVIOR)), 0.02),
        (SequenceMean(K3(BEHAVIOR)), 0.006333),
        (SequenceMean(Absolute(RatioDeviation(BEHAVIOR))), 0.088853),
    ]:
        np.testing.assert_allclose(proximity(view), np.full((1, 5), value), atol=1e-6)


class Given(BinaryTV):
    """A divergence handed over instead of computed."""

    def __call__(self, view):
        return jnp.asarray([[0.05, 0.10, 7.0, 0.18, 0.02]], view.dtype)


@pytest.mark.parametrize("column", [False, True], ids=["valid index", "column index"])
def test_cppo_budget(column):
    from trustax.objectives.proximity import PositionWeighted

    position = "column" if column else "valid"
    view = view_of(stats(1.0), frozenset())
    weighted = PositionWeighted(Given(), 0.8, position)
    statistic = weighted(view)
    budget = PrefixBudget(Given(), 0.15, 0.02, 0.8, position=position)
    if column:  # wp is 1, .95, -, .85, .8 over five columns
        np.testing.assert_allclose(at_seen(statistic), [0.05, 0.095, 0.153, 0.016], atol=1e-6)
        return
    np.testing.assert_allclose(at_seen(statistic), [0.05, 0.093333, 0.156, 0.016], atol=1e-6)
    spent, weight = budget.prefixes(view, statistic)
    np.testing.assert_allclose(at_seen(spent), [0, 0.05, 0.143333, 0.299333], atol=1e-6)
    np.testing.assert_allclose(at_seen(weight), [0, 1, 1.933333, 2.8], atol=1e-6)
    np.testing.assert_allclose(at_seen(budget(view, statistic).upper), [0.15, 0.12, 0.045333, -0.093333], atol=1e-6)
    from trustax.objectives.directions import Always

    assert at_seen(TrustRegion(weighted, budget, Always())(view).keep).tolist() == [True, True, False, False]


def test_cppo_adaptive_budget_is_the_clipped_quantile():
    view = view_of(stats(1.0), frozenset())
    quantile = np.quantile([0.05, 0.10, 0.18, 0.02], 0.9)
    for ceiling, want in ((2.0, 0.04), (100.0, quantile)):
        budget = PrefixBudget(Given(), 0.15, 0.02, 0.8, quantile=0.9, ceiling=ceiling)
        np.testing.assert_allclose(budget.budget(view), np.full((1, 5), want), atol=1e-6)


def test_cppo_without_weights_and_with_a_large_budget_is_dppo():
    for sign in (1.0, -1.0):
        ours = fates("cppo", sign, divergence="binary_tv", delta=0.05, w_min=1.0, adaptive=False, delta_b=1e6)
        dppo = fates("dppo_binary_tv", sign, delta=0.05)
        np.testing.assert_array_equal(ours.keep, dppo.keep)


def test_vespo_peaks_at_k_over_lambda_and_is_one_at_one():
    log_w = jnp.log(jnp.array([[1.0, 2 / 3, 0.6, 0.75]]))
    one = TokenStats(
        log_pi=log_w[..., None] - 3.0,
        log_mu=jnp.full((1, 4, 1), -3.0),
        advantages=jnp.ones((1, 4, 1)),
        token_mask=jnp.ones((1, 4, 1), bool),
    )
    phi = build(RECIPES["vespo"](anchor="behavior")).per_token(one).weight[0, :, 0]
    np.testing.assert_allclose(phi[0], 1.0, atol=1e-6)
    w = np.exp(log_w[0])
    np.testing.assert_allclose(phi, np.exp(3) * w**2 * np.exp(-3 * w), rtol=1e-5)
    assert phi[1] > phi[2] and phi[1] > phi[3]


def test_minpro_equals_cispo_for_a_prefix_of_ratios_above_one():
    up = stats(1.0).replace(log_pi=jnp.asarray(np.log(MU) + np.abs(L) / 4)[None].astype(jnp.float32))
    mine = build(RECIPES["minpro"](eps_low=1.0, eps_high=4.0, cap_at_one=True)).per_token(up).weight
    theirs = build(RECIPES["cispo"]()).per_token(up).weight
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_float64_keeps_its_digits():
    with jax.enable_x64(True):
        got = build(RECIPES["pg_is"]()).per_token(stats(1.0, jnp.float64)).weight
        assert got.dtype == jnp.float64
        np.testing.assert_allclose(at_seen(got), np.exp(L)[SEEN], rtol=1e-12)
