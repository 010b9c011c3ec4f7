"""Directions: known numbers, finite differences, the facts that the derivation states, and float32's hard tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops import directions as dr
from trustax.ops.divergences import DIVERGENCES as NAMES
from trustax.testing import oracles
from trustax.testing.tokens import Tokens, random_tokens, tokens

JUNK = (np.nan, np.inf, -np.inf, 1e30)
TAILS = ("exact", "aggregated", "uniform", "none")
predict = jax.jit(dr.predictive_direction, static_argnames=("divergence", "tail", "vocab_size"))
predict_full = jax.jit(dr.predictive_direction_full, static_argnames="divergence")


def on_support(t: Tokens, **kwargs):
    return predict(t.log_pi, t.log_mu, t.mask, t.slot, **kwargs)


PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-5)], ids=["f64", "f32"]
)


@PRECISIONS
def test_golden_full_directions(x64, golden, dtype, tolerance):
    for name in ("kl", "reverse_kl", "tv"):
        found = predict_full(*[x.astype(dtype) for x in golden.log_probs], golden.sampled_ids, divergence=name)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, [e["direction_full"][name] for e in golden.expected], rtol=0, atol=tolerance)


@PRECISIONS
def test_golden_support_directions(x64, golden, dtype, tolerance):
    support = [x.astype(dtype) for x in golden.support[:2]] + [golden.support[2], golden.sampled_slot]
    sum_sq = np.array([e["sum_sq_pi"] for e in golden.expected], dtype)
    expected = {tail: np.array([e["direction_topk_kl"][tail] for e in golden.expected]) for tail in TAILS}
    for tail in ("exact", "aggregated", "none"):
        found = predict(*support, tail=tail, sum_sq_pi=sum_sq)
        np.testing.assert_allclose(found, expected[tail], rtol=0, atol=tolerance, err_msg=tail)
    for size in set(golden.vocab_sizes):
        rows = np.array(golden.vocab_sizes) == size
        found = predict(*support, tail="uniform", vocab_size=size)
        np.testing.assert_allclose(found[rows], expected["uniform"][rows], rtol=0, atol=tolerance)
    for name in ("kl", "reverse_kl", "tv"):
        found = predict(*support, divergence=name, sum_sq_pi=sum_sq)
        # The stored numbers have 8 decimals and come from finite differences: token F's KL is off by 3e-8 (its exact
        # value is the one above, 1.3184e-4).
        eight_decimals = [e["direction_lumped_exact"][name] for e in golden.expected]
        np.testing.assert_allclose(found, eight_decimals, rtol=0, atol=max(tolerance, 3.1e-8))


def away_from_kinks(t: Tokens, size: float) -> np.ndarray:
    """Tokens where no cell of TV passes a tie within the step: no cell changes by more than a factor e^(2·size)."""
    present = np.concatenate([t.inside, np.ones((len(t.ids), 1), bool)], axis=-1)
    lumped = [np.log(np.where(present, oracles.lump(x, t.inside), 1.0)) for x in (t.pi, t.mu)]
    tied = np.abs(lumped[0] - lumped[1]) < 2 * size
    return ~((tied & present).any(-1) | (np.abs(np.log(t.pi / t.mu)) < 2 * size).any(-1))


@pytest.mark.parametrize("name", NAMES)
def test_every_direction_is_the_derivative_of_its_divergence(x64, name):
    t, size = random_tokens(1, 4000), 1e-5
    smooth = away_from_kinks(t, size) if name == "tv" else np.ones(4000, bool)
    assert smooth.mean() > 0.99
    found = predict_full(np.log(t.pi), np.log(t.mu), t.ids, divergence=name)
    numeric = oracles.central_difference(lambda p: oracles.DIVERGENCES[name](p, t.mu), t.pi, t.ids, size)
    scale = np.maximum(1, np.abs(numeric))
    assert (np.abs(found - numeric) / scale)[smooth].max() < 1e-6
    np.testing.assert_allclose(found, oracles.direction(name, t.pi, t.mu, t.ids), rtol=1e-9, atol=1e-12)

    lumped = on_support(t, divergence=name, **t.tails)
    numeric = oracles.central_difference(lambda p: oracles.lumped(name, p, t.mu, t.inside), t.pi, t.ids, size)
    scale = np.maximum(1, np.abs(numeric))
    assert (np.abs(lumped - numeric) / scale)[smooth].max() < 1e-6
    np.testing.assert_allclose(
        lumped, oracles.lumped_direction(name, t.pi, t.mu, t.inside, t.ids), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
def test_aggregated_and_uniform_tails_are_derivatives_of_a_policy_with_such_a_tail(x64, name):
    """Aggregated: replace the tail by one token. Uniform: spread each policy's tail mass evenly over it."""
    t = random_tokens(2, 500)
    one = [oracles.lump(x, t.inside) for x in (t.pi, t.mu)]
    whole = np.concatenate([t.inside, np.zeros((500, 1), bool)], axis=-1)
    expected = oracles.lumped_direction(name, *one, whole, t.ids)
    np.testing.assert_allclose(on_support(t, divergence=name, tail="aggregated"), expected, rtol=1e-8, atol=1e-10)
    count = (~t.inside).sum(-1, keepdims=True)
    even = [np.where(t.inside, x, x_lumped[:, -1:] / count) for x, x_lumped in zip((t.pi, t.mu), one, strict=True)]
    expected = oracles.lumped_direction(name, *even, t.inside, t.ids)
    found = on_support(t, divergence=name, tail="uniform", vocab_size=12)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["reverse_kl", "tv"])
def test_tail_none_leaves_the_tail_cell_out_everywhere(x64, name):
    t = random_tokens(3, 200)
    rows, y = np.arange(200), t.ids
    phi = {"reverse_kl": np.log(t.pi / t.mu), "tv": np.sign(t.pi - t.mu) / 2}[name]
    on_s = np.where(t.inside, 1.0, 0.0)
    h = t.pi[rows, y] - (t.pi**2 * on_s).sum(-1)
    expected = (t.pi * phi)[rows, y] - (t.pi**2 * phi * on_s).sum(-1) - h * (t.pi * phi * on_s).sum(-1)
    np.testing.assert_allclose(on_support(t, divergence=name, tail="none"), expected, rtol=1e-8, atol=1e-12)


def test_without_stored_tails_the_same_comes_from_sums(x64):
    t = random_tokens(4, 500)
    sum_sq = (t.pi**2).sum(-1)
    for name in NAMES:
        stored = on_support(t, divergence=name, **t.tails)
        np.testing.assert_allclose(on_support(t, divergence=name, sum_sq_pi=sum_sq), stored, rtol=1e-7, atol=1e-9)


def test_in_float32_the_sums_keep_what_their_inputs_hold():
    """Sharpened tokens without stored tails: Σπ² − Σ_S π² as written loses four times more than Σπ² itself has lost."""
    rng = np.random.default_rng(19)
    pi, mu = (oracles.softmax(rng.normal(size=(2000, 5)) + np.array([top, 0, 0, 0, 0])) for top in (8.0, 3.0))
    t = tokens(pi, mu, np.zeros(2000, int), 2)
    sum_sq = (pi**2).sum(-1).astype(np.float32)
    found = predict(t.log_pi.astype(np.float32), t.log_mu.astype(np.float32), t.mask, t.slot, sum_sq_pi=sum_sq)
    expected = oracles.lumped_direction("kl", pi, mu, t.inside, t.ids)
    ratio = np.exp(t.tails["tail_log_mu"] - t.tails["tail_log_pi"])
    half_ulp_of_sum_sq = 2.0**-25 * (ratio + 1)
    assert (np.abs(found - expected) <= 2 * half_ulp_of_sum_sq + 3e-7).all()


def test_an_impossible_sum_of_squares_is_clipped(x64):
    t = random_tokens(5, 200)
    aggregated, uniform = on_support(t, tail="aggregated"), on_support(t, tail="uniform", vocab_size=12)
    np.testing.assert_allclose(on_support(t, sum_sq_pi=np.full(200, 9.0)), aggregated, atol=1e-12)
    np.testing.assert_allclose(on_support(t, sum_sq_pi=np.zeros(200), vocab_size=12), uniform, atol=1e-12)
    np.testing.assert_allclose(on_support(t, sum_sq_pi=np.zeros(200)), on_support(t, tail="none"), atol=1e-12)


def test_expectations_of_the_direction(x64):
    t = random_tokens(6, 300)
    for name in NAMES:
        every = np.stack(
            [predict_full(np.log(t.pi), np.log(t.mu), np.full(300, y), divergence=name) for y in range(12)]
        )
        np.testing.assert_allclose((t.pi * every.T).sum(-1), 0, atol=1e-10 * max(1, np.abs(every).max()))
        if name == "kl":
            np.testing.assert_allclose((t.mu * every.T).sum(-1), -((t.pi - t.mu) ** 2).sum(-1), atol=1e-13)


def test_where_ratio_and_predictive_direction_disagree(x64):
    t = random_tokens(7, 4000)
    rows = np.arange(4000)
    local = (t.pi - t.mu)[rows, t.ids]
    coupling = (t.pi * (t.pi - t.mu)).sum(-1)
    found = np.asarray(predict_full(np.log(t.pi), np.log(t.mu), t.ids))
    ratio = np.asarray(dr.ratio_direction(np.log(t.pi)[rows, t.ids], np.log(t.mu)[rows, t.ids]))
    disagree = np.sign(found) != np.sign(ratio)
    np.testing.assert_array_equal(disagree, (local * (local - coupling) < 0))
    assert disagree.sum() > 50
    tv = oracles.DIVERGENCES["tv"](t.pi, t.mu)
    assert (np.abs(coupling) <= tv * (t.pi.max(-1) - t.pi.min(-1)) + 1e-15).all()
    assert (np.abs(local) < tv * t.pi.max(-1))[disagree].all()


def test_a_positive_prediction_of_the_full_kl_is_never_wrong(x64):
    t = random_tokens(8, 4000)
    before = oracles.kl(t.mu, t.pi)
    found = np.asarray(predict_full(np.log(t.pi), np.log(t.mu), t.ids))
    for size in (-3.0, -0.3, 0.3, 3.0, 30.0):
        after = oracles.kl(t.mu, oracles.step(t.pi, t.ids, size))
        assert (after >= before + size * found - 1e-12).all()


def test_binary_divergences_make_prediction_and_ratio_the_same(x64):
    """The derivative of any binary divergence has the sign of π_y − μ_y, because 1 − 2π_y + Σπ² ≥ (1 − π_y)²."""
    t = random_tokens(9, 2000)
    rows = np.arange(2000)
    ratio = np.asarray(dr.ratio_direction(np.log(t.pi)[rows, t.ids], np.log(t.mu)[rows, t.ids]))
    for name in NAMES:

        def binary(p, name=name):
            return oracles.DIVERGENCES[name](oracles.binary(p, t.ids), oracles.binary(t.mu, t.ids))

        numeric = oracles.central_difference(binary, t.pi, t.ids)
        clear = np.abs(numeric) > 1e-8
        assert (np.sign(numeric) == np.sign(ratio))[clear].all() and clear.mean() > 0.99


def test_tails_are_ordered(x64):
    """Tail terms have one sign and |uniform| ≤ |exact| ≤ |aggregated|; G itself need not."""
    t = random_tokens(10, 4000)
    head = on_support(t, tail="none", **t.tails)
    uniform, exact, aggregated = (
        np.asarray(on_support(t, tail=tail, vocab_size=12, **t.tails) - head)
        for tail in ("uniform", "exact", "aggregated")
    )
    clear = np.abs(aggregated) > 1e-12
    assert (np.sign(uniform) == np.sign(aggregated))[clear].all() and (np.sign(exact) == np.sign(aggregated))[
        clear
    ].all()
    assert (np.abs(uniform) <= np.abs(exact) + 1e-15).all() and (np.abs(exact) <= np.abs(aggregated) + 1e-15).all()


def test_error_bounds_of_the_tail_estimators(x64):
    t = random_tokens(11, 4000)
    outside = ~t.inside
    pi_t, mu_t, sum_sq, cross = ((x * outside).sum(-1) for x in (t.pi, t.mu, t.pi**2, t.mu * t.pi))
    count = outside.sum(-1)
    head = on_support(t, tail="none", **t.tails)
    tail = {name: np.asarray(on_support(t, tail=name, vocab_size=12, **t.tails) - head) for name in TAILS[:3]}
    error = {name: value - (cross - sum_sq) for name, value in tail.items()}
    eps = 1e-14
    assert (error["aggregated"] >= -(pi_t**2 - sum_sq) - eps).all()
    assert (error["aggregated"] <= pi_t * mu_t - cross + eps).all()
    assert (np.abs(error["aggregated"]) <= pi_t * np.maximum(pi_t, mu_t) + eps).all()
    bound = np.maximum(sum_sq + pi_t * mu_t / count, cross + pi_t**2 / count)
    assert (np.abs(error["uniform"]) <= bound + eps).all()
    largest, least = np.where(outside, t.pi, -1).max(-1), np.where(outside, t.pi, 2).min(-1)
    conditional = np.abs(t.pi / pi_t[:, None] - t.mu / mu_t[:, None]) * outside
    assert (np.abs(error["exact"]) <= mu_t * (largest - least) * conditional.sum(-1) / 2 + eps).all()


# Divergence and tail are independent: every divergence with one tail, and two of them with every tail.
PAIRS = [(name, "exact") for name in NAMES] + [(name, tail) for name in ("kl", "reverse_kl") for tail in TAILS[1:]]
EACH_PAIR = pytest.mark.parametrize(("name", "tail"), PAIRS, ids=["-".join(pair) for pair in PAIRS])


@EACH_PAIR
def test_equal_policies_give_exactly_zero(name, tail):
    t = random_tokens(12, 200, vocab_size=40, k=8)
    log_pi, tail_log_pi = (jnp.asarray(x, jnp.bfloat16) for x in (t.log_pi, t.tails["tail_log_pi"]))
    stored = {"tail_log_pi": tail_log_pi, "tail_log_mu": tail_log_pi, "tail_log_sum_sq_pi": jnp.full(200, -5.0)}
    for tails in (stored, {"sum_sq_pi": jnp.full(200, 0.1)}):
        g = predict(log_pi, log_pi, t.mask, t.slot, divergence=name, tail=tail, vocab_size=40, **tails)
        assert not g.any() and g.dtype == jnp.float32
    if tail == "exact":
        log_probs = jnp.log(jnp.asarray(t.pi, jnp.float32))
        assert not predict_full(log_probs, log_probs, t.ids, divergence=name).any()


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_in_an_invalid_slot_changes_nothing_bit_for_bit(name):
    t = random_tokens(13, 60)
    mask = t.mask & (np.random.default_rng(0).uniform(size=t.mask.shape) < 0.7)
    mask[0] = False
    tails = {k: jnp.asarray(v, jnp.float32) for k, v in t.tails.items()}

    @jax.jit
    def value_and_grads(log_pi, log_mu, tails):
        def total(log_pi, log_mu):
            values = dr.predictive_direction(log_pi, log_mu, mask, t.slot, divergence=name, **tails)
            return values.sum(), values

        return jax.grad(total, argnums=(0, 1), has_aux=True)(log_pi, log_mu)

    def run(fill, tails):
        return value_and_grads(
            *[jnp.asarray(np.where(mask, x, fill), jnp.float32) for x in (t.log_pi, t.log_mu)], tails
        )

    for stored in (tails, {"sum_sq_pi": jnp.full(60, 0.2)}):
        clean = run(-1.0, stored)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(clean))
        assert not np.asarray(clean[0][0])[~mask].any() and not np.asarray(clean[0][1])[~mask].any()
        for fill in JUNK:
            jax.tree.map(np.testing.assert_array_equal, run(fill, stored), clean)
    sampled_invalid = ~np.take_along_axis(mask, t.slot[:, None], -1)[:, 0]
    assert sampled_invalid.sum() > 5 and not np.asarray(clean[1])[sampled_invalid].any()


@EACH_PAIR
def test_a_padding_row_with_junk_tails_is_zero(name, tail):
    junk, nowhere = jnp.full((3, 4), jnp.nan), jnp.zeros((3, 4), bool)
    stored = {k: jnp.full(3, jnp.nan) for k in ("tail_log_pi", "tail_log_mu", "tail_log_sum_sq_pi")}
    g = predict(junk, junk, nowhere, jnp.full(3, 3), divergence=name, tail=tail, vocab_size=9, **stored)
    assert not np.asarray(g).any()


@EACH_PAIR
def test_an_empty_tail_adds_nothing(x64, name, tail):
    t = random_tokens(14, 100, vocab_size=4, k=4)
    full = oracles.direction(name, t.pi, t.mu, t.ids)
    nothing = np.full(100, -np.inf)
    stored = {"tail_log_pi": nothing, "tail_log_mu": nothing, "tail_log_sum_sq_pi": nothing}
    by_mass = stored | {"vocab_size": 4 if tail == "uniform" else None}
    by_count = {"sum_sq_pi": (t.pi**2).sum(-1), "vocab_size": 4}  # N = V − |S| = 0
    for tails in (by_mass, by_count):
        g = on_support(t, divergence=name, tail=tail, **tails)
        np.testing.assert_allclose(g, full, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_probabilities_of_zero_give_a_finite_direction(x64, name):
    pi, mu = np.array([0.0, 0.4, 0.6, 0.0]), np.array([0.5, 0.5, 0.0, 0.0])
    with np.errstate(divide="ignore"):
        logs = [np.tile(np.log(x), (4, 1)) for x in (pi, mu)]
    found = predict_full(*logs, np.arange(4), divergence=name)
    assert np.isfinite(found).all()
    if name in ("reverse_kl", "chi2"):  # D is infinite where μ = 0 < π: only whether mass goes there matters
        into_third = oracles.mass_rates(np.tile(pi, (4, 1)), np.arange(4))[:, 2]
        np.testing.assert_array_equal(np.sign(found), np.sign(into_third))
    else:
        expected = [oracles.direction(name, pi + 1e-40, mu + 1e-40, np.array(y)) for y in range(4)]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_far_apart_in_float32_is_always_finite(name):
    rng = np.random.default_rng(15)
    log_pi, log_mu = (jax.nn.log_softmax(jnp.asarray(rng.normal(size=(300, 20)) * 80, jnp.float32)) for _ in range(2))
    assert np.isfinite(predict_full(log_pi, log_mu, jnp.asarray(rng.integers(20, size=300)), divergence=name)).all()


def test_outward_is_decided_by_signs():
    tiny = jnp.float32(1e-30)
    assert dr.is_outward(jnp.full(4, tiny), jnp.array([tiny, -tiny, jnp.nan, jnp.inf])).tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert not dr.is_outward(jnp.zeros(2), jnp.array([jnp.inf, jnp.nan])).any()


def test_ratio_direction_has_the_sign_of_r_minus_one():
    log_pi = jnp.array([-1.0, -200.0, -jnp.inf, 0.0, -jnp.inf, -1e-8])
    log_mu = jnp.array([-2.0, -199.0, -3.0, -jnp.inf, -jnp.inf, 0.0])
    found = jax.jit(dr.ratio_direction)(log_pi, log_mu)
    assert jnp.sign(found).tolist() == [1, -1, -1, 1, 0, -1] and np.isfinite(found).all()


def test_all_problems_are_reported_at_once():
    ok = jnp.zeros((2, 3)), jnp.zeros((2, 3)), jnp.ones((2, 3), bool), jnp.zeros(2, jnp.int32)
    with pytest.raises(ValueError) as error:
        dr.predictive_direction(*ok[:2], jnp.ones((2, 3)), jnp.zeros(3), divergence="wasserstein", tail="even")
    for part in ("'wasserstein', expected one of 'kl'", "'even', expected one of 'exact'", "support_mask is float32",
                 "sampled_slot has shape (3,)", "expected (2,)", "sampled_slot is float32"):  # fmt: skip
        assert part in str(error.value)
    with pytest.raises(ValueError, match="tail='exact' needs tail_log_sum_sq_pi"):
        dr.predictive_direction(*ok)
    with pytest.raises(ValueError, match="tail='uniform' needs vocab_size"):
        dr.predictive_direction(*ok, tail="uniform")
    with pytest.raises(ValueError, match="vocab_size is 0"):
        dr.predictive_direction(*ok, tail="none", vocab_size=0)
    with pytest.raises(ValueError, match=r"sampled_ids has shape \(3,\).*sampled_ids is float32"):
        dr.predictive_direction_full(ok[0], ok[1], jnp.zeros(3))
    with pytest.raises(ValueError, match=r"direction has shape \(3,\), expected \(2,\) as advantages"):
        dr.is_outward(jnp.zeros(2), jnp.zeros(3))


def test_a_slot_out_of_range_is_clipped_into_it():
    t = random_tokens(18, 20)
    mask = np.ones_like(t.mask)
    args = np.nan_to_num(t.log_pi, nan=-5.0), np.nan_to_num(t.log_mu, nan=-5.0), mask
    far = predict(*args, np.full(20, 99), tail="none")
    np.testing.assert_array_equal(far, predict(*args, np.full(20, 3), tail="none"))
