"""What every recipe of the table must do, checked on one compiled function per recipe.

All cases have one shape, so that each recipe compiles once: parts of a batch are made by masking rows, other paddings
by rolling the columns. A recipe that is added to the table is tested here without further words.
"""

import collections
import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recipes import recipes

from trustax.objectives import RECIPES, build
from trustax.testing.full_vocabulary import token_stats
from trustax.types import TokenStats, merge_metrics

B, T, V, K = 6, 8, 11, 3
LENGTHS = np.array([5, 3, 0, 1, 5, 4])
INFINITY = float("inf")

# Hyperparameters that put every threshold out of reach.
OUT_OF_REACH = dict.fromkeys(("delta", "eps_low", "eps_high", "dual", "bound"), INFINITY) | {"share": 0.0}
OWN_OUT_OF_REACH = {"mis": OUT_OF_REACH | {"cap": INFINITY}, "icepop": OUT_OF_REACH | {"low": 0.0, "high": INFINITY}}

# Recipes that drop tokens, or add to the gradient, where π is its anchor; each says so in its docstring.
NOT_NEUTRAL_AT_ANCHOR = {"clip_cov"}

TRACES = collections.Counter()


def _case(seed: int) -> TokenStats:
    rng = np.random.default_rng(seed)
    base = 1.5 * rng.normal(size=(B, T, V))
    near = [base + scale * rng.normal(size=(B, T, V)) for scale in (0.6, 0.2, 0.3)]
    soft = [jax.nn.log_softmax(jnp.asarray(z, jnp.float32)) for z in (base, *near)]
    advantages = jnp.asarray(np.repeat(rng.choice([-1.0, -0.5, 0.5, 1.0], (B, 1)), T, 1), jnp.float32)
    return token_stats(
        soft[1],
        soft[0],
        jnp.asarray(rng.integers(0, V, (B, T)), jnp.int32),
        advantages,
        jnp.asarray(np.arange(T)[None] < LENGTHS[:, None]),
        top_k=K,
        log_probs_anchor=soft[2],
        log_probs_ref=soft[3],
        divergence_rate=jnp.asarray(rng.normal(size=(B, T)), jnp.float32),
    )


@pytest.fixture(scope="module")
def stats():
    return _case(0)


def _floats(stats):
    return jax.tree.map(lambda x: x if jnp.issubdtype(x.dtype, jnp.floating) else None, stats)


def _with_floats(stats, floats):
    leaves, structure = jax.tree.flatten(stats)
    changed = jax.tree.leaves(floats, is_leaf=lambda x: x is None)
    return structure.unflatten([a if b is None else b for a, b in zip(leaves, changed, strict=True)])


@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def run(objective, stats):
    """Sum, weight, metrics, fates, and the gradient with respect to *every* number in the statistics."""
    TRACES[objective.name] += 1

    def loss(floats):
        out = objective(_with_floats(stats, floats))
        return out.sum, out

    grads, out = jax.grad(loss, has_aux=True)(_floats(stats))
    return out, objective.per_token(stats), grads


def default(name):
    return build(RECIPES[name]())


def out_of_reach(name):
    wanted = OWN_OUT_OF_REACH.get(name, OUT_OF_REACH)
    accepted = inspect.signature(RECIPES[name]).parameters
    return build(RECIPES[name](**{key: value for key, value in wanted.items() if key in accepted}))


def values(metrics):
    return {name: (float(metric.total), float(metric.weight)) for name, metric in metrics.items()}


def assert_identical(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def fill_masked(stats, junk):
    """The same statistics with junk wherever nothing may be read: masked tokens and invalid slots."""
    mask, slots = stats.token_mask, stats.support.mask & stats.token_mask[..., None]

    def fill(x):
        if jnp.issubdtype(x.dtype, jnp.floating):
            where = slots if x.ndim == 3 else mask
            return jnp.where(where, x, jnp.asarray(junk, x.dtype))
        if x.dtype == jnp.bool_ or x.ndim == 2:
            return x
        return jnp.where(slots, x, jnp.full_like(x, 7))

    return jax.tree.map(fill, stats)


@pytest.mark.parametrize("name", recipes(RECIPES))
def test_contract(name, stats):
    objective = default(name)
    out, fates, grads = run(objective, stats)
    valid = np.asarray(stats.token_mask)

    # Finite, and a weight that does not depend on anything but the mask.
    assert np.isfinite(out.sum) and float(out.weight) > 0
    assert all(np.all(np.isfinite(v)) for v in values(out.metrics).values())

    # No gradient through masks, weights, μ, the anchors, the support or the advantages: only log π carries one.
    others = jax.tree.leaves((grads.log_mu, grads.advantages, grads.log_anchor, grads.log_ref, grads.support))
    assert all(not np.any(g) for g in others)
    assert not np.any(np.asarray(grads.log_pi)[~valid])
    assert not np.any(np.asarray(fates.weight)[~np.asarray(fates.keep)])
    assert not np.any(np.asarray(fates.keep) & ~valid)

    # Whatever stands at masked positions changes nothing, bit for bit.
    for junk in (np.nan, np.inf, -np.inf, 1e30):
        assert_identical(run(objective, fill_masked(stats, junk)), (out, fates, grads))

    # Row order and the place of the padding change nothing but rounding.
    order = np.array([4, 2, 0, 5, 1, 3])
    for move in (lambda x: x[order], lambda x: jnp.roll(x, 3, axis=1)):
        moved, moved_fates, moved_grads = run(objective, jax.tree.map(move, stats))
        np.testing.assert_allclose(moved.sum, out.sum, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(moved.weight, out.weight, rtol=1e-6)
        np.testing.assert_array_equal(moved_fates.keep, move(fates.keep))
        np.testing.assert_allclose(moved_grads.log_pi, move(grads.log_pi), rtol=2e-4, atol=1e-7)

    # A batch without a valid token: loss 0, gradient exactly 0, metrics finite.
    nothing, _, no_grads = run(objective, stats.replace(token_mask=jnp.zeros((B, T), bool)))
    assert float(nothing.sum) == 0 and float(nothing.weight) == 0 and float(nothing.loss) == 0
    assert all(not np.any(g) for g in jax.tree.leaves(no_grads))
    assert all(np.all(np.isfinite(v)) for v in values(nothing.metrics).values())

    # δ = ∞ keeps everything, without compiling again.
    free, free_fates, _ = run(out_of_reach(name), stats)
    np.testing.assert_array_equal(free_fates.keep, valid)
    assert float(free.metrics["mask/fraction"].total) == 0
    assert TRACES[name] == 1, "a threshold or a mask's content made it compile again"


@pytest.mark.parametrize("name", recipes(name for name in RECIPES if name not in NOT_NEUTRAL_AT_ANCHOR))
def test_at_the_anchor_all_is_kept_with_weight_one(name, stats):
    same = stats.replace(
        log_pi=stats.log_mu,
        log_anchor=stats.log_mu,
        log_ref=stats.log_mu,
        support=dataclasses.replace(
            stats.support,
            log_pi=stats.support.log_mu,
            tail_log_pi=stats.support.tail_log_mu,
            tail_log_sum_sq_pi=2.0 * stats.support.tail_log_mu - 1.0,
        ),
    )
    out, fates, grads = run(default(name), same)
    valid = np.asarray(stats.token_mask)
    np.testing.assert_array_equal(fates.keep, valid)
    np.testing.assert_array_equal(np.asarray(fates.weight)[valid], np.ones(valid.sum(), np.float32))
    assert float(out.metrics["divergence/max"].total) <= 1e-6
    # … and the gradient is that of −A log π, up to the aggregation's positive factor for the row.
    got, a = np.asarray(grads.log_pi), np.asarray(stats.advantages)
    factor = -got[valid] / a[valid]
    assert np.all(factor > 0)


@pytest.mark.parametrize("name", recipes(RECIPES))
def test_parts_of_a_batch_add_up(name, stats):
    objective = default(name)
    if objective.spec.batch_statistics:
        pytest.skip("declared to read statistics of the whole batch")
    whole, _, whole_grads = run(objective, stats)
    rows = np.arange(B)
    parts = [
        run(objective, stats.replace(token_mask=stats.token_mask & jnp.asarray(chosen)[:, None]))
        for chosen in (rows < 2, rows == 2, rows > 2)  # the middle part is empty
    ]
    np.testing.assert_allclose(sum(float(p.sum) for p, _, _ in parts), whole.sum, rtol=2e-5, atol=1e-6)
    assert sum(float(p.weight) for p, _, _ in parts) == pytest.approx(float(whole.weight), rel=1e-6)
    np.testing.assert_allclose(sum(g.log_pi for _, _, g in parts), whole_grads.log_pi, rtol=1e-5, atol=1e-7)
    merged = merge_metrics([p.metrics for p, _, _ in parts])
    for key, metric in whole.metrics.items():
        # Rows were masked, not removed: they count as empty. The other two merge approximately, and say so.
        if key not in ("sequences/empty", "divergence/p95", "weight/ess"):
            np.testing.assert_allclose(float(merged[key]), float(metric), rtol=2e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", recipes(RECIPES))
def test_extreme_tokens_stay_finite_and_broken_ones_are_counted(name, stats):
    objective = default(name)
    extreme = stats.replace(
        log_pi=stats.log_pi.at[0, 0].set(-900.0).at[1, 0].set(0.0), log_mu=stats.log_mu.at[1, 0].set(-900.0)
    )
    out, _, grads = run(objective, extreme)
    assert np.isfinite(out.sum) and np.all(np.isfinite(grads.log_pi))
    assert all(np.all(np.isfinite(v)) for v in values(out.metrics).values())

    broken = stats.replace(
        log_pi=stats.log_pi.at[0, 1].set(jnp.nan).at[4, 0].set(-jnp.inf), log_mu=stats.log_mu.at[1, 1].set(jnp.nan)
    )
    out, fates, grads = run(objective, broken)
    assert float(out.metrics["tokens/nonfinite"].total) == 3
    assert np.isfinite(out.sum) and np.all(np.isfinite(grads.log_pi))
    assert not fates.keep[0, 1] and not fates.keep[4, 0] and not fates.keep[1, 1]
    assert all(np.all(np.isfinite(v)) for v in values(out.metrics).values())


EMPTY = [("cppo", (B, 0)), ("clip_cov", (0, T))]
EVERY_EMPTY = [pytest.param(name, shape, marks=pytest.mark.slow) for name in RECIPES for shape in [(0, T), (B, 0)]]


@pytest.mark.parametrize(("name", "shape"), EMPTY + EVERY_EMPTY)
def test_a_batch_of_no_tokens_is_worth_nothing(name, shape, stats):
    """A host without rollouts runs the same step: sum 0, weight 0, no NaN."""
    nothing = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape[2:]), x.dtype), stats)
    out = default(name)(nothing)
    assert float(out.sum) == float(out.weight) == float(out.loss) == 0
    assert all(np.all(np.isfinite(v)) for v in values(out.metrics).values())


@pytest.mark.parametrize("name", recipes(RECIPES))
def test_dtypes(name, stats):
    """bfloat16 is computed in float32, float64 in float64; strict promotion lets neither slip."""
    with jax.enable_x64(True):
        for given, computed in ((jnp.bfloat16, jnp.float32), (jnp.float64, jnp.float64)):
            cast = jax.eval_shape(
                lambda s, given=given: jax.tree.map(
                    lambda x: x.astype(given) if jnp.issubdtype(x.dtype, jnp.floating) else x, s
                ),
                stats,
            )
            out = jax.eval_shape(default(name), cast)
            assert out.sum.dtype == out.weight.dtype == computed
            assert {m.total.dtype for m in out.metrics.values()} == {jnp.dtype(computed)}


def test_every_recipe_reports_under_the_same_names(stats):
    seen = {name: set(jax.eval_shape(default(name), stats).metrics) for name in RECIPES}
    common = set.intersection(*seen.values())
    assert set().union(*seen.values()) - common == {"direction/certified"}
    assert {
        "mask/fraction", "mask/fraction_positive", "mask/fraction_negative", "mask/fraction_above",
        "mask/fraction_below", "divergence/mean", "divergence/p95", "divergence/max", "tail/mu_mean", "tail/pi_mean",
        "direction/disagreement", "weight/cap_hits", "weight/ess", "entropy/change_kept", "entropy/change_masked",
        "prob_gap/mean", "prob_gap/max", "log_ratio/mean", "log_ratio/max_abs", "tokens/nonfinite",
    } <= common  # fmt: skip


@pytest.mark.parametrize("name", ["pg_is", "gspo", "pdm_topk_kl", "cppo", "sat", "minpro"])
def test_more_padding_changes_nothing(name, stats):
    wide = jax.tree.map(lambda x: jnp.pad(x, [(0, 0), (0, 5)] + [(0, 0)] * (x.ndim - 2), constant_values=0), stats)
    narrow_out, narrow_fates, _ = run(default(name), stats)
    out = jax.jit(lambda o, s: (o(s), o.per_token(s)))(default(name), fill_masked(wide, np.nan))
    np.testing.assert_allclose(out[0].loss, narrow_out.loss, rtol=1e-5)
    np.testing.assert_array_equal(out[1].keep[:, :T], narrow_fates.keep)
    assert not np.any(out[1].keep[:, T:])


def test_bfloat16_log_probs_give_nearly_the_float32_loss(stats):
    low = jax.tree.map(lambda x: x.astype(jnp.bfloat16) if jnp.issubdtype(x.dtype, jnp.floating) else x, stats)
    for name in ("pg_is", "dppo_binary_tv"):
        want, got = default(name)(stats), default(name)(low)
        np.testing.assert_allclose(got.loss, want.loss, rtol=0.05, atol=0.02)
