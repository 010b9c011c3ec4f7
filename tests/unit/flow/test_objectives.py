"""Masks and objectives against loops in numpy: what is dropped, what gradient is left, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.flow import RECIPES, build
from trustax.flow.masks import FullPredictive, RatioClip, TrustRegion
from trustax.flow.objectives import FlowObjective
from trustax.flow.paths import StepStats

SCALES = {
    "flow_grpo": {"clip": 0.02},
    "grpo_guard": {"clip": 0.002},
    "flow_dppo": {"delta": 0.01},
    "flow_dppo_symmetric": {"delta": 0.01},
    "flow_dppo_predictive": {"delta": 0.01},
    "flow_dppo_predictive_full": {"delta": 0.02, "step": 3e-3},
    "policy_gradient": {},
}
ADVANTAGES = np.array([1.3, -0.7, 0.4, -2.0, 0.0, 0.9])


def oracle(name, s):
    """Which entries a recipe keeps, one at a time."""
    log_r, guard, d, residual, a, std = (
        np.asarray(x, np.float64) for x in (s.log_ratio, s.guard, s.divergence, s.residual, s.advantages, s.std)
    )
    keep = np.ones(log_r.shape, bool)
    for i in np.ndindex(*log_r.shape):
        sign, r = np.sign(a[i]), np.exp(log_r[i])
        if name == "flow_grpo":
            keep[i] = not ((sign > 0 and r > 1.02) or (sign < 0 and r < 0.98))
        elif name == "grpo_guard":
            keep[i] = not ((sign > 0 and np.exp(guard[i]) > 1.002) or (sign < 0 and np.exp(guard[i]) < 0.998))
        elif name == "flow_dppo":
            keep[i] = not ((sign > 0 and r > 1 and d[i] > 0.01) or (sign < 0 and r < 1 and d[i] > 0.01))
        elif name == "flow_dppo_symmetric":
            keep[i] = d[i] <= 0.01
        elif name == "flow_dppo_predictive":
            keep[i] = not (a[i] * (log_r[i] - d[i]) > 0 and d[i] > 0.01)
        elif name == "flow_dppo_predictive_full":
            eta = 3e-3 / (s.size if s.reduction == "mean" else 1)
            pace = eta * a[i] * r / std[i[1]] ** 2
            keep[i] = d[i] + pace * (log_r[i] - d[i]) + pace**2 * residual[i] / (2 * std[i[1]] ** 2) <= 0.02
    return keep


@pytest.mark.parametrize("reduction", ["mean", pytest.param("sum", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", RECIPES)
def test_drops_and_gradient_equal_the_oracle(name, reduction, setting, stats_of):
    """The gradient is the mean of A·r·keep·∇score, from autodiff of the score alone."""
    steps, path, _, new = setting(move=0.2)
    objective = build(name, **SCALES[name])

    def stats(weights):
        return stats_of(steps, path, weights, ADVANTAGES, reduction)

    now = stats(new)
    score = "guard" if name == "grpo_guard" else "log_ratio"
    keep = oracle(name, now)
    if name != "policy_gradient":
        assert 0 < keep.sum() < keep.size, "an oracle that keeps or drops everything shows nothing"
    value = np.asarray(getattr(now, score))
    np.testing.assert_array_equal(objective.mask(now, jnp.asarray(value)).keep, keep)
    weight = jnp.asarray(keep * np.exp(value) * np.asarray(now.advantages) / keep.size)
    expected = jax.grad(lambda w: -jnp.sum(weight * getattr(stats(w), score)))(new)
    found = jax.grad(lambda w: objective(stats(w)).loss)(new)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14), found, expected)


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_is_dropped_on_policy(name, setting, stats_of):
    """With one update a batch every mask is idle, and all but GRPO-Guard have one and the same gradient."""
    steps, path, old, _ = setting()
    objective, plain = build(name, **SCALES[name]), build("policy_gradient")
    if name == "flow_dppo_predictive_full":
        objective = build(name, delta=1.0, step=3e-3)
    gradient = [jax.grad(lambda w, f=f: f(stats_of(steps, path, w, ADVANTAGES)).loss)(old) for f in (objective, plain)]
    assert float(objective(stats_of(steps, path, old, ADVANTAGES)).metrics["mask/fraction"]) == 0
    same = [np.allclose(a, b, rtol=1e-9, atol=1e-15) for a, b in zip(*map(jax.tree.leaves, gradient), strict=True)]
    assert all(same) == (name != "grpo_guard")


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_predictive_and_base_masks_differ_exactly_where_log_r_is_between_0_and_d(reduction, setting, stats_of):
    steps, path, _, new = setting(move=0.5, batch=200)
    advantages = np.random.default_rng(0).normal(size=200)
    stats = stats_of(steps, path, new, advantages, reduction)
    base, predictive = (build(f"flow_dppo{end}", delta=0.0).mask(stats, stats.log_ratio) for end in ("", "_predictive"))
    between = (np.asarray(stats.log_ratio) > 0) & (np.asarray(stats.log_ratio) < np.asarray(stats.divergence))
    assert 10 < between.sum() < between.size / 2
    np.testing.assert_array_equal(np.asarray(base.keep != predictive.keep), between)
    kept_more = np.asarray(predictive.keep & ~base.keep)
    np.testing.assert_array_equal(kept_more, between & (advantages > 0)[:, None])


def test_the_predictive_direction_is_the_sign_of_the_true_change(setting, stats_of):
    """A small free step of every mean: D grows exactly where the predictive mask says outward."""
    steps, path, _, new = setting(move=0.5, batch=100)
    advantages = np.random.default_rng(1).normal(size=100)
    stats = stats_of(steps, path, new, advantages, "sum")
    full = build("flow_dppo_predictive_full", delta=0.0, step=1e-9).mask(stats, stats.log_ratio)
    predictive = build("flow_dppo_predictive", delta=0.0).mask(stats, stats.log_ratio)
    np.testing.assert_array_equal(full.outward, predictive.outward)
    base = build("flow_dppo", delta=0.0).mask(stats, stats.log_ratio)
    assert np.mean(np.asarray(base.outward != predictive.outward)) > 0.02


def test_thresholds_of_the_two_reductions_differ_by_the_dimension(setting, stats_of):
    steps, path, _, new = setting(move=0.3)
    mean, total = (stats_of(steps, path, new, ADVANTAGES, reduction) for reduction in ("mean", "sum"))
    delta = float(np.median(mean.divergence))
    keep = build("flow_dppo", delta=delta).mask(mean, mean.log_ratio).keep
    np.testing.assert_array_equal(keep, build("flow_dppo", delta=3 * delta).mask(total, total.log_ratio).keep)
    assert not np.array_equal(keep, build("flow_dppo", delta=delta).mask(total, total.log_ratio).keep)


def test_a_tv_threshold_is_the_kl_threshold_of_its_divergence(setting, stats_of):
    import math

    steps, path, _, new = setting(move=0.3)
    stats = stats_of(steps, path, new, ADVANTAGES, "sum")
    by_kl = TrustRegion(0.02)(stats, stats.log_ratio).keep
    by_tv = TrustRegion(math.erf(math.sqrt(0.02) / 2), divergence="tv")(stats, stats.log_ratio).keep
    np.testing.assert_array_equal(by_kl, by_tv)


def test_infinite_thresholds_switch_masks_off(setting, stats_of):
    steps, path, _, new = setting(move=0.5)
    stats = stats_of(steps, path, new, ADVANTAGES)
    inf = float("inf")
    for mask in (RatioClip(1.0, inf), TrustRegion(inf), FullPredictive(inf, 1.0)):
        assert np.all(np.asarray(mask(stats, stats.log_ratio).keep))


def test_the_kl_to_the_reference_has_its_own_gradient(setting, stats_of):
    """β·D(π‖ρ): value and gradient by autodiff of ½‖b·(v − v_ref)‖²/S², at a step that the mask drops too."""
    steps, path, old, new = setting(move=0.5)
    objective = build("flow_dppo_symmetric", delta=0.0, beta=0.3)  # everything is dropped but the KL

    def penalty(weights):
        stats = stats_of(steps, path, weights, ADVANTAGES, reference=old)
        return objective(stats).loss, jnp.mean(stats.reference_kl)

    loss, divergence = penalty(new)
    assert float(loss) == pytest.approx(0.3 * float(divergence), rel=1e-12)
    stats = stats_of(steps, path, new, ADVANTAGES, reference=old)
    np.testing.assert_allclose(stats.reference_kl, stats.divergence, rtol=1e-9)  # here the reference is the old policy
    gradient = jax.grad(lambda w: penalty(w)[0])(new)
    expected = jax.grad(lambda w: 0.3 * penalty(w)[1])(new)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), gradient, expected)


def test_thresholds_are_arguments_and_do_not_recompile(setting, stats_of):
    steps, path, _, new = setting()
    stats = stats_of(steps, path, new, ADVANTAGES)
    traces = []

    @jax.jit
    def loss(objective, stats):
        traces.append(1)
        return objective(stats).loss

    kept = [float(loss(build("flow_dppo", delta=jnp.asarray(delta)), stats)) for delta in (0.0, 1e-4, 1.0)]
    assert len(traces) == 1
    assert len(set(kept)) > 1


@pytest.mark.parametrize(
    ("name", "numbers", "reason"),
    [
        ("flow_ppo", {}, "expected one of policy_gradient"),
        ("flow_grpo", {"clip": -1e-4}, r"low = -0.0001, expected \[0, 1\]"),
        ("flow_dppo", {"delta": float("nan")}, "delta = nan"),
        ("flow_dppo", {"delta": 1.5, "divergence": "tv"}, r"expected \[0, 1\]"),
        ("flow_dppo", {"divergence": "chi2"}, "expected one of kl, tv"),
        ("flow_dppo", {"beta": -1.0}, "beta = -1"),
        ("flow_dppo_predictive_full", {"step": -1.0}, "step = -1"),
    ],
)
def test_bad_numbers_are_refused_with_the_reason(name, numbers, reason):
    with pytest.raises(ValueError, match=reason):
        build(name, **numbers)


def test_what_an_objective_needs_is_refused_when_missing(setting, stats_of):
    steps, path, _, new = setting("cps")
    with pytest.raises(ValueError, match="standardises Flow-SDE's ratio, got paths of 'cps'"):
        build("grpo_guard")(stats_of(steps, path, new))
    with pytest.raises(ValueError, match="pass reference"):
        build("flow_dppo", beta=0.0)(stats_of(steps, path, new))
    with pytest.raises(ValueError, match="score is 'logr'"):
        FlowObjective(TrustRegion(0.1), score="logr")


def test_the_golden_step():
    """S = .3, d = (.02, −.01), ε = (1, −.5): D = .00277778, log r = .08055556, ε·d = .025."""
    from trustax.flow.gaussian import kl, log_ratio, noise_along_shift, tv

    with jax.enable_x64(True):
        std, d, noise = jnp.array([0.3]), jnp.array([[0.02, -0.01]]), jnp.array([[1.0, -0.5]])
        found = [
            f(reduction="sum")[0]
            for f in (
                lambda **k: kl(d, std, **k),
                lambda **k: log_ratio(noise, d, std, **k),
                lambda **k: noise_along_shift(noise, d, **k),
                lambda **k: tv(d, std, **k),
            )
        ]
        np.testing.assert_allclose(found, [0.00277778, 0.08055556, 0.025, 0.02972852], atol=5e-9)


def test_statistics_are_a_pytree():
    leaves = jnp.zeros((2, 1))
    stats = StepStats(leaves, leaves, None, leaves, leaves, leaves, jnp.ones(1))
    assert jax.tree.map(lambda x: x + 1, stats).reference_kl is None
