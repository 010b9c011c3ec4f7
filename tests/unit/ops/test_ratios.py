"""Ratios and masked reductions: golden values, and padding that holds anything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops import masked, ratios

L = jnp.array([0.10, -0.20, 0.30, -0.05, 0.02])
MASK = jnp.array([True, True, False, True, True])


def test_golden_prefix_and_sequence_ratios():
    np.testing.assert_allclose(ratios.prefix_log_ratio(L, MASK), [0.10, -0.10, -0.10, -0.15, -0.13], atol=1e-6)
    np.testing.assert_allclose(
        np.exp(ratios.prefix_min_log_ratio(L, MASK)), [1, 1.105171, 0.818731, 0.818731, 0.818731], atol=1e-6
    )
    np.testing.assert_allclose(
        np.exp(ratios.prefix_min_log_ratio(L, MASK, cap_at_one=True)), [1, 1, 0.818731, 0.818731, 0.818731], atol=1e-6
    )
    np.testing.assert_allclose(np.exp(ratios.sequence_mean_log_ratio(L, MASK)), 0.968022, atol=1e-6)
    np.testing.assert_allclose(np.exp(ratios.sequence_log_ratio(L, MASK)), 0.878095, atol=1e-6)
    assert ratios.positions(MASK).tolist() == [1, 2, 2, 3, 4]


@pytest.mark.parametrize("junk", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize(
    "function",
    [ratios.prefix_log_ratio, ratios.prefix_min_log_ratio, ratios.sequence_log_ratio, ratios.sequence_mean_log_ratio],
)
def test_masked_values_reach_neither_value_nor_gradient(function, junk):
    dirty = L.at[2].set(junk)
    np.testing.assert_array_equal(function(dirty, MASK), function(L, MASK))
    grads = [jax.grad(lambda x: jnp.sum(function(x, MASK)))(x) for x in (L, dirty)]
    np.testing.assert_array_equal(*grads)
    assert grads[0][2] == 0


def test_log_ratio_is_limited_and_finite():
    log_pi = jnp.array([-0.1, -950.0, jnp.nan])
    log_mu = jnp.array([-901.0, -0.1, -1.0])
    mask = jnp.array([True, True, False])
    assert ratios.log_ratio(log_pi, log_mu, mask).tolist() == [20.0, -20.0, 0.0]
    assert jax.grad(lambda x: ratios.log_ratio(x, log_mu, mask).sum())(log_pi).tolist() == [0.0, 0.0, 0.0]


def test_masked_quantile_equals_numpy_on_what_is_inside():
    rng = np.random.default_rng(0)
    values, mask = rng.normal(size=(6, 9)).astype(np.float32), rng.random((6, 9)) > 0.4
    mask[3], mask[4] = False, False
    mask[4, 2] = True
    for q in (0.0, 0.3, 0.9, 1.0):
        got = masked.masked_quantile(jnp.asarray(np.where(mask, values, np.nan)), jnp.asarray(mask), q)
        want = [np.quantile(v[m], q) if m.any() else 0.0 for v, m in zip(values, mask, strict=True)]
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_masked_whitening_ignores_padding():
    got = masked.masked_whiten(jnp.array([1.0, 3.0, 0.0, 0.0]), jnp.array([True, True, False, False]), eps=0.0)
    assert got.tolist() == [-1.0, 1.0, 0.0, 0.0]
    wide = masked.masked_whiten(jnp.array([[1.0, 3.0], [5.0, 7.0]]), jnp.ones((2, 2), bool), eps=0.0)
    np.testing.assert_allclose(wide.reshape(-1), [-1.342, -0.447, 0.447, 1.342], atol=1e-3)


def test_empty_reductions_are_zero_with_zero_gradient():
    nothing = jnp.zeros(3, bool)
    values = jnp.array([jnp.nan, jnp.inf, 1.0])
    for function in (masked.masked_mean, masked.masked_sum, masked.masked_max):
        assert float(function(values, nothing)) == 0.0
        assert jax.grad(lambda x, f=function: f(x, nothing))(values).tolist() == [0.0, 0.0, 0.0]
