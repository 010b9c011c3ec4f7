"""Divergences against float64 oracles, known numbers, and the faults that other codebases shipped."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops import directions
from trustax.ops import divergences as dv
from trustax.ops._f_divergences import expm1_minus
from trustax.ops.tails import tail_statistics
from trustax.testing import oracles
from trustax.testing.tokens import random_tokens, tokens

NAMES = dv.DIVERGENCES
FULL, LUMPED = ({name: jax.jit(f) for name, f in table.items()} for table in (dv.FULL, dv.LUMPED))
binary_tv, binary_kl = jax.jit(dv.binary_tv), jax.jit(dv.binary_kl)
statistics = jax.jit(tail_statistics)
JUNK = (np.nan, np.inf, -np.inf, 1e30)


def whole_vocabulary(logits):
    return statistics(logits, np.broadcast_to(np.arange(logits.shape[-1]), logits.shape), np.ones(logits.shape, bool))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-5)], ids=["f64", "f32"])
def test_golden_values(x64, golden, dtype, tolerance):
    y = golden.sampled_ids[:, None]
    full = [x.astype(dtype) for x in golden.log_probs]
    sampled = [np.take_along_axis(x, y, axis=-1)[:, 0] for x in full]
    support = [x.astype(dtype) for x in golden.support[:2]] + [golden.support[2]]
    found = {"binary_tv": binary_tv(*sampled), "binary_kl": binary_kl(*sampled)}
    for name in ("tv", "kl", "reverse_kl"):
        found |= {f"full_{name}": FULL[name](*full), f"lumped_{name}": LUMPED[name](*support)}
    for name, value in found.items():
        assert value.dtype == dtype, name
        np.testing.assert_allclose(value, [e[name] for e in golden.expected], rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_lumped_and_full_equal_the_oracle(x64, name):
    t = random_tokens(0, 500)
    tails = {k: v for k, v in t.tails.items() if "sum_sq" not in k}
    full = FULL[name](np.log(t.pi), np.log(t.mu))
    stored = LUMPED[name](t.log_pi, t.log_mu, t.mask, **tails)
    by_difference = LUMPED[name](t.log_pi, t.log_mu, t.mask)
    expected = oracles.lumped(name, t.pi, t.mu, t.inside)
    np.testing.assert_allclose(full, oracles.DIVERGENCES[name](t.pi, t.mu), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(stored, expected, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(by_difference, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["tv", "kl"])
def test_merging_outcomes_only_loses_divergence(x64, name):
    for seed, spread in enumerate([0.3, 1.5, 4.0]):
        t = random_tokens(seed, 2000, spread=spread)
        y = np.arange(len(t.ids)), t.ids
        binary = {"tv": binary_tv, "kl": binary_kl}[name](np.log(t.pi)[y], np.log(t.mu)[y])
        lumped = LUMPED[name](t.log_pi, t.log_mu, t.mask)
        full = FULL[name](np.log(t.pi), np.log(t.mu))
        assert (binary >= 0).all() and (binary <= lumped + 1e-12).all() and (lumped <= full + 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_merging_outcomes_only_loses_divergence_in_float32(name):
    """With stored tails to rounding; without, as far as 1 − Σ_S says what the tail is."""
    for seed, (spread, sharpen) in enumerate([(1.5, 1.0), (3.0, 3.0), (3.0, 8.0)]):
        rng = np.random.default_rng(seed)
        mu = rng.normal(size=(500, 50)).astype(np.float32) * np.float32(spread)
        pi = np.float32(sharpen) * (mu + 0.5 * rng.normal(size=mu.shape).astype(np.float32))
        t = tokens(oracles.softmax(pi), oracles.softmax(mu), rng.integers(0, 50, 500), 5)
        sides = [statistics(x, t.support_ids, t.mask) for x in (pi, mu)]
        on_slots, tails = [s.log_probs for s in sides], [s.tail_log_mass for s in sides]
        stored = LUMPED[name](*on_slots, t.mask, tail_log_pi=tails[0], tail_log_mu=tails[1])
        left_out = LUMPED[name](*on_slots, t.mask)
        full = np.asarray(FULL[name](*[s.log_probs for s in map(whole_vocabulary, (pi, mu))]))
        scale = np.maximum(full, 1)
        assert ((stored - full) <= 1e-6 * scale).all()
        if name in ("tv", "kl"):
            binary = {"tv": binary_tv, "kl": binary_kl}[name]
            sampled = [np.take_along_axis(x, t.slot[:, None], axis=-1)[:, 0] for x in on_slots]
            assert ((binary(*sampled) - stored) <= 1e-6 * scale).all()
        known = np.exp(tails[0]) > 1e-5
        allowed = 88 * (np.exp(tails[1]) + 1e-6) if name == "kl" else 1e-4 * scale
        assert ((left_out - full) <= np.where(known, 1e-5 * scale, allowed)).all()
        if name == "kl" and sharpen == 8.0:
            assert ((left_out - full) > 1).any(), "the case where tails must be stored is not reached"


def test_pinsker_and_hellinger_bound_tv(x64):
    t = random_tokens(3, 2000)
    log_pi, log_mu = np.log(t.pi), np.log(t.mu)
    tv, hellinger2 = dv.full_tv(log_pi, log_mu), dv.full_hellinger2(log_pi, log_mu)
    assert (tv**2 <= dv.full_kl(log_pi, log_mu) / 2).all()
    assert (tv**2 <= dv.full_reverse_kl(log_pi, log_mu) / 2).all()
    assert (hellinger2 <= tv).all() and (tv <= np.sqrt(2 * hellinger2)).all()
    assert (dv.full_js(log_pi, log_mu) <= np.log(2) * tv).all()
    assert (dv.full_kl(log_pi, log_mu) <= np.log1p(dv.full_chi2(log_mu, log_pi))).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["f32", "bf16"])
def test_equal_policies_are_at_distance_exactly_zero(name, dtype):
    t = random_tokens(4, 200, vocab_size=50, k=8)
    log_pi = jnp.asarray(t.log_pi, dtype)
    tail = jnp.asarray(t.tails["tail_log_pi"], dtype)
    assert not LUMPED[name](log_pi, log_pi, t.mask).any()
    assert not LUMPED[name](log_pi, log_pi, t.mask, tail_log_pi=tail, tail_log_mu=tail).any()
    assert not FULL[name](jnp.log(jnp.asarray(t.pi, dtype)), jnp.log(jnp.asarray(t.pi, dtype))).any()
    assert not binary_kl(tail, tail).any() and not binary_tv(tail, tail).any()


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_widened_not_computed_in(name):
    t = random_tokens(5, 100)
    rough = [jnp.asarray(x, jnp.bfloat16) for x in (t.log_pi, t.log_mu)]
    found = LUMPED[name](*rough, t.mask)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, LUMPED[name](*[x.astype(jnp.float32) for x in rough], t.mask))


def test_mixed_dtypes_take_the_wider_one(x64):
    low, high = jnp.zeros(2, jnp.bfloat16), jnp.zeros(2, jnp.float64)
    assert dv.full_tv(low, high).dtype == jnp.float64
    assert dv.full_tv(low, jnp.zeros(2, jnp.float32)).dtype == jnp.float32


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_in_an_invalid_slot_changes_nothing_bit_for_bit(name):
    t = random_tokens(6, 60)
    mask = t.mask & (np.random.default_rng(0).uniform(size=t.mask.shape) < 0.7)
    mask[0] = False
    tails = {k: jnp.asarray(v, jnp.float32) for k, v in t.tails.items() if "sum_sq" not in k}

    @jax.jit
    def value_and_grads(log_pi, log_mu, tails):
        def total(log_pi, log_mu, tails):
            values = LUMPED[name](log_pi, log_mu, mask, **tails)
            return values.sum(), values

        return jax.grad(total, argnums=(0, 1), has_aux=True)(log_pi, log_mu, tails)

    def run(fill, tails):
        filled = [jnp.asarray(np.where(mask, x, fill), jnp.float32) for x in (t.log_pi, t.log_mu)]
        return value_and_grads(*filled, tails)

    for stored in (tails, {}):
        clean = run(-1.0, stored)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(clean))
        assert not np.asarray(clean[0][0])[~mask].any() and not np.asarray(clean[0][1])[~mask].any()
        for fill in JUNK:
            jax.tree.map(np.testing.assert_array_equal, run(fill, stored), clean)
    jax.tree.map(np.testing.assert_array_equal, clean[1][0], jnp.zeros(()))


@pytest.mark.parametrize("name", NAMES)
def test_a_padding_row_with_junk_tails_is_zero_with_zero_gradient(name):
    def total(log_pi, tail_log_pi):
        junk = jnp.full(3, jnp.nan)
        return LUMPED[name](log_pi, log_pi, jnp.zeros((3, 4), bool), tail_log_pi=tail_log_pi, tail_log_mu=junk).sum()

    value, grads = jax.value_and_grad(total, argnums=(0, 1))(jnp.full((3, 4), jnp.nan), jnp.full(3, jnp.inf))
    assert float(value) == 0 and not grads[0].any() and not grads[1].any()


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_tail_adds_nothing(x64, name):
    t = random_tokens(7, 50, vocab_size=4, k=4)
    nothing = np.full(50, -np.inf)
    full = FULL[name](np.log(t.pi), np.log(t.mu))
    stored = LUMPED[name](t.log_pi, t.log_mu, t.mask, tail_log_pi=nothing, tail_log_mu=nothing)
    np.testing.assert_allclose(stored, full, rtol=1e-12)
    np.testing.assert_allclose(LUMPED[name](t.log_pi, t.log_mu, t.mask), full, rtol=1e-6)


ZEROS = {  # π = (0, .4, .6), μ = (.5, .5, 0): what each sum is by its own convention
    "kl": np.inf,
    "reverse_kl": np.inf,
    "tv": 0.6,
    "js": (0.5 * np.log(2) + 0.4 * np.log(0.4 / 0.45) + 0.5 * np.log(0.5 / 0.45) + 0.6 * np.log(2)) / 2,
    "chi2": np.inf,
    "hellinger2": 1 - np.sqrt(0.2),
}


@pytest.mark.parametrize("name", NAMES)
def test_probabilities_of_zero(name):
    with np.errstate(divide="ignore"):
        pi, mu = np.log(np.array([0.0, 0.4, 0.6, 0.0])), np.log(np.array([0.5, 0.5, 0.0, 0.0]))
    assert float(FULL[name](pi, mu)) == pytest.approx(ZEROS[name], rel=1e-6)
    nothing = np.float32(-np.inf)
    lumped = LUMPED[name](pi, mu, np.ones(4, bool), tail_log_pi=nothing, tail_log_mu=nothing)
    assert float(lumped) == pytest.approx(ZEROS[name], rel=1e-6)
    grads = jax.grad(lambda p, m: FULL[name](p, m), argnums=(0, 1))(jnp.asarray(pi), jnp.asarray(mu))
    assert np.isfinite(grads[0]).all() and np.isfinite(grads[1]).all()


@pytest.mark.parametrize("name", NAMES)
def test_far_apart_in_float32_is_never_nan_nor_negative(name):
    rng = np.random.default_rng(8)
    log_pi, log_mu = (jax.nn.log_softmax(jnp.asarray(rng.normal(size=(300, 20)) * 80, jnp.float32)) for _ in range(2))
    value = np.asarray(FULL[name](log_pi, log_mu))
    assert not np.isnan(value).any() and (value >= 0).all()
    if name == "tv":
        assert (value <= 1).all()


def test_binary_of_near_deterministic_tokens():
    log_mu = jnp.array([0.0, -0.01, 0.0, -1e-9, -0.1])
    log_pi = jnp.array([-0.01, 0.0, 0.0, -0.5, -0.5])
    kl = np.asarray(binary_kl(log_pi, log_mu))
    np.testing.assert_allclose(kl[[0, 3, 4]], [0.01, 0.5, 0.226860], rtol=2e-6)
    assert kl[1] > 0.05 and np.isfinite(kl[1]) and kl[2] == 0
    assert float(binary_tv(log_pi, log_mu)[0]) == pytest.approx(0.009950166, rel=1e-6)
    grads = jax.grad(lambda x: binary_kl(x, log_mu).sum())(log_pi)
    assert np.isfinite(grads).all()


def test_the_complement_of_nearly_one_is_not_zero():
    """1 − e^−1e-8 is 1e-8, not 0: D is .128, and not the .81 of a complement that is lost."""
    found = binary_kl(jnp.float32(-1e-8), jnp.log(jnp.float32(0.99)))
    assert float(found) == pytest.approx(0.99 * np.log(0.99) + 0.01 * np.log(0.01 / 1e-8), rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_the_remainder_of_expm1_is_accurate_and_never_negative(x64, dtype):
    x = np.concatenate([s * np.logspace(-12, 0, 500) for s in (1, -1)]).astype(dtype)
    found = jax.jit(expm1_minus)(x)
    wide = x.astype(np.longdouble)
    exact = sum(wide**n / math.factorial(n) for n in range(2, 30))
    np.testing.assert_allclose(found, exact.astype(np.float64), rtol=30 * np.finfo(dtype).eps)


def test_binary_kl_reads_the_complement_where_the_scorer_has_it():
    exact = binary_kl(jnp.zeros(()), jnp.log(jnp.float32(0.99)), log_complement_pi=jnp.log(jnp.float32(1e-9)))
    assert float(exact) == pytest.approx(0.99 * np.log(0.99) + 0.01 * np.log(0.01 / 1e-9), rel=1e-5)
    certain = binary_kl(jnp.zeros(()), jnp.log(jnp.float32(0.99)), log_complement_pi=jnp.float32(-jnp.inf))
    assert float(certain) == np.inf


def test_the_tail_cell_keeps_topk_kl_a_divergence():
    mu, pi = jnp.log(jnp.array([0.5, 0.2])), jnp.log(jnp.array([0.6, 0.25]))
    mask = jnp.array([True, True])
    assert float(LUMPED["kl"](pi, mu, mask)) == pytest.approx(0.072155, abs=1e-6)  # without a tail: −0.135789
    assert float(LUMPED["tv"](pi, mu, mask)) == pytest.approx(0.15, abs=1e-6)  # without a tail: 0.075


def test_a_clamped_tail_is_finite_and_a_stored_one_decides():
    """μ_T = .002 and true π_T = 1e-8: the stored tail says .022, the clipped difference .160."""
    log_mu, log_pi, mask = jnp.log(jnp.array([0.998])), jnp.zeros(1), jnp.array([True])
    stored = dv.lumped_kl(log_pi, log_mu, mask, tail_log_mu=jnp.log(0.002), tail_log_pi=jnp.log(1e-8))
    assert float(stored) == pytest.approx(0.002 * np.log(0.002 / 1e-8) + 0.998 * np.log(0.998), rel=1e-4)
    assert float(dv.lumped_kl(log_pi, log_mu, mask)) == pytest.approx(0.160, abs=1e-3)


@pytest.mark.parametrize(("last", "expected"), [(-0.4, 0.208037), (-jnp.inf, 0.141212)], ids=["finite", "-inf"])
def test_kl_to_a_target_with_zeros_has_finite_gradients(last, expected):
    with np.errstate(divide="ignore"):
        log_q = jnp.asarray(np.log(np.array([0, 0.3, 0.7, 0])), jnp.float32)
    logits = jnp.array([0.2, 1.1, 1.7, last])
    value, grad = jax.value_and_grad(lambda z: dv.full_kl(jax.nn.log_softmax(z), log_q))(logits)
    assert float(value) == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(grad, jax.nn.softmax(logits) - jnp.exp(log_q), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_with_respect_to_logits_equals_finite_differences(x64, name):
    t = random_tokens(9, 20, vocab_size=6)
    log_mu, logits = np.log(t.mu), np.log(t.pi)
    grads = jax.grad(lambda z: FULL[name](jax.nn.log_softmax(z), log_mu).sum())(logits)
    for a in range(6):
        bump = 1e-6 * (np.arange(6) == a)
        up, down = (oracles.DIVERGENCES[name](oracles.softmax(logits + s * bump), t.mu) for s in (1, -1))
        np.testing.assert_allclose(grads[:, a], (up - down) / 2e-6, atol=1e-7, rtol=1e-6)


def test_kl_keeps_its_gradient_and_curvature_near_equality():
    """Summed as Σ μ ln(μ/π) and clamped, half of such tokens would lose their gradient to rounding."""
    rng = np.random.default_rng(10)
    logits = jnp.asarray(rng.normal(size=(200, 30)), jnp.float32)
    log_mu = jax.nn.log_softmax(logits)
    moved = logits + jnp.asarray(1e-4 * rng.normal(size=logits.shape), jnp.float32)
    values, grads = jax.vmap(jax.value_and_grad(lambda z, m: dv.full_kl(jax.nn.log_softmax(z), m)))(moved, log_mu)
    assert (values > 0).all()
    np.testing.assert_allclose(grads, jax.nn.softmax(moved) - jax.nn.softmax(logits), atol=2e-7)
    p = jnp.exp(log_mu[0])
    fisher = jnp.diag(p) - p[:, None] * p[None, :]
    hessian = jax.hessian(lambda z: dv.full_kl(jax.nn.log_softmax(z), log_mu[0]))(logits[0])
    np.testing.assert_allclose(hessian, fisher, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_at_a_tie_is_zero(name):
    """π = μ is the least of every divergence: for the smooth ones the slope is 0 there, and TV says 0 at its kink."""
    log_mu = jnp.log(jnp.array([0.5, 0.3, 0.2]))
    mask = jnp.array([True, True])
    assert not jax.grad(FULL[name])(log_mu, log_mu).any()

    def lumped(support, tail):
        return LUMPED[name](support, log_mu[:2], mask, tail_log_pi=tail, tail_log_mu=log_mu[2])

    grads = jax.grad(lumped, argnums=(0, 1))(log_mu[:2], log_mu[2])
    assert not grads[0].any() and not grads[1].any()


def test_only_the_tied_cells_of_tv_have_gradient_zero():
    log_pi, log_mu = (jnp.log(jnp.array(p)) for p in ([0.5, 0.2, 0.3], [0.5, 0.3, 0.2]))
    np.testing.assert_allclose(jax.grad(FULL["tv"])(log_pi, log_mu), [0, -0.1, 0.15], atol=1e-6)
    for log_p in (-0.5, 0.0, -30.0):
        assert float(jax.grad(binary_tv)(log_p, log_p)) == 0
    # Disjoint policies are at the largest distance; the bound there takes nothing from the gradient.
    assert float(jax.grad(binary_tv)(0.0, -jnp.inf)) == 1
    disjoint = jnp.array([0.0, -jnp.inf]), jnp.array([-jnp.inf, 0.0])
    assert jax.grad(FULL["tv"])(*disjoint).tolist() == [0.5, 0]


def test_all_problems_are_reported_at_once():
    with pytest.raises(ValueError) as error:
        dv.lumped_kl(jnp.zeros((2, 3)), jnp.zeros((2, 4)), jnp.zeros((2, 3)), tail_log_pi=jnp.zeros(3))
    for part in ("log_mu_support has shape (2, 4)", "support_mask is float32", "tail_log_pi has shape (3,)", "(2, 3)"):
        assert part in str(error.value)
    with pytest.raises(ValueError, match="'hellinger2'"):
        dv.full_divergence("wasserstein", jnp.zeros(2), jnp.zeros(2))
    with pytest.raises(ValueError, match="log_pi is int32, expected a floating dtype"):
        binary_tv(jnp.zeros(2, jnp.int32), jnp.zeros(2))
    with pytest.raises(ValueError, match=r"log_mu has shape \(3,\), expected \(2,\)"):
        binary_kl(jnp.zeros(2), jnp.zeros(3))
    with pytest.raises(ValueError, match="scalar"):
        dv.full_tv(jnp.zeros(()), jnp.zeros(()))


def test_probabilities_in_the_place_of_log_probs_are_refused_with_their_index():
    good, bad = jnp.log(jnp.array([[0.5, 0.3]])), jnp.array([[0.5, 0.3]])
    mask, y = jnp.array([[True, True]]), jnp.array([0])
    calls = [
        (lambda: binary_tv.__wrapped__(good, bad), r"log_mu is 0.5 at \(0, 0\), expected a log-probability"),
        (lambda: dv.binary_kl(bad, good), r"log_pi is 0.5 at \(0, 0\)"),
        (lambda: dv.lumped_tv(good, bad.at[0, 0].set(-1), mask), r"log_mu_support is 0.3 at \(0, 1\)"),
        (lambda: dv.full_kl(bad, good), "log_probs_pi is 0.5"),
        (lambda: directions.predictive_direction(bad, good, mask, y, tail="none"), "log_pi_support is 0.5"),
        (lambda: directions.predictive_direction_full(good, bad, y), "log_probs_mu is 0.5"),
    ]
    for call, words in calls:
        with pytest.raises(ValueError, match=words):
            call()
    assert float(dv.lumped_tv(good, bad.at[0, 0].set(jnp.log(0.5)), jnp.array([[True, False]]))[0]) == 0
    jax.eval_shape(dv.full_kl, bad, good)  # inside a trace nothing has a value


def test_tables_hold_the_same_names():
    assert set(dv.LUMPED) == set(dv.FULL) == set(NAMES) == set(oracles.DIVERGENCES)


@pytest.mark.parametrize("x", [-90.0, -110.0, -1000.0])
def test_chi2_of_equal_tiny_masses_is_exactly_zero(x):
    """μ below the smallest float was not floored as π was: inf, with a NaN gradient."""
    log_probs = jnp.array([0.0, x], jnp.float32)
    value, gradient = jax.value_and_grad(dv.full_chi2)(log_probs, log_probs)
    assert value == 0 and np.isfinite(gradient).all()
    far = jax.grad(dv.full_chi2, argnums=(0, 1))(jnp.array([-0.5, -0.9327521]), jnp.array([0.0, -95.0]))
    assert np.isfinite(far).all()
