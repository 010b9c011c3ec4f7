"""KL estimators: values and, by exact enumeration, expected gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops.kl_estimators import KL_LOSSES, k3, kl_loss

LOGITS, REFERENCE = np.array([0.2, -0.1, 0.0]), np.array([0.0, 0.3, -0.2])
TRUE = np.array([0.067848, -0.123397, 0.055549])
FORWARD = np.array([0.075096, -0.136579, 0.061483])


def expected_gradient(loss):
    """Σ_y π(y) ∇loss(y): the expectation of the gradient, not the gradient of the expectation."""
    with jax.enable_x64(True):
        probs = np.exp(LOGITS) / np.exp(LOGITS).sum()
        log_ref = jnp.asarray(jax.nn.log_softmax(jnp.asarray(REFERENCE)))

        def total(logits):
            return jnp.sum(jnp.asarray(probs) * loss(jax.nn.log_softmax(logits), log_ref))

        return np.asarray(jax.grad(total)(jnp.asarray(LOGITS)))


@pytest.mark.parametrize("estimator", KL_LOSSES)
def test_expected_gradient_is_what_the_name_says(estimator):
    want = FORWARD if estimator == "k3_of_forward_kl" else TRUE
    got = expected_gradient(lambda lp, ref: kl_loss(lp, ref, estimator=estimator))
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_the_plain_gradient_of_k1_is_zero_and_both_wrong_forms_are_refused():
    np.testing.assert_allclose(expected_gradient(lambda lp, ref: lp - ref), 0, atol=1e-12)
    np.testing.assert_allclose(expected_gradient(k3), FORWARD, atol=1e-6)
    for name in ("k1", "k3"):
        with pytest.raises(ValueError, match=f"'{name}' is refused"):
            kl_loss(jnp.array(-1.0), jnp.array(-1.0), estimator=name)
    with pytest.raises(ValueError, match="unknown"):
        kl_loss(jnp.array(-1.0), jnp.array(-1.0), estimator="k9")


@pytest.mark.parametrize("estimator", [name for name in KL_LOSSES if name != "k3_of_forward_kl"])
def test_off_policy_samples_are_corrected_by_the_ratio(estimator):
    with jax.enable_x64(True):
        log_mu = jax.nn.log_softmax(jnp.array([-0.5, 0.4, 0.1]))
        log_ref = jax.nn.log_softmax(jnp.asarray(REFERENCE))

        def total(logits):
            log_pi = jax.nn.log_softmax(logits)
            per_token = kl_loss(log_pi, log_ref, estimator=estimator, log_ratio=log_pi - log_mu)
            return jnp.sum(jnp.exp(log_mu) * per_token)

        np.testing.assert_allclose(jax.grad(total)(jnp.asarray(LOGITS)), TRUE, atol=1e-6)


def test_k3_is_never_negative_and_accurate_near_zero_in_float32():
    x = np.concatenate([np.linspace(-1e-3, 1e-3, 2001), np.linspace(-0.1, 0.1, 2001), np.linspace(-15, 15, 301)])
    x = x.astype(np.float32)
    got = np.asarray(k3(jnp.asarray(x), jnp.zeros_like(x)))
    exact = np.expm1(-x.astype(np.float64)) + x
    assert np.all(got >= 0)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-12)


def test_k3_gradient_is_one_minus_the_inverse_ratio_and_finite_far_out():
    with jax.enable_x64(True):
        for x in (-3.0, -0.009, -1e-5, 0.0, 1e-5, 0.009, 0.011, 4.0):
            got = jax.grad(lambda lp: k3(lp, jnp.array(0.0)))(jnp.array(x))
            np.testing.assert_allclose(got, 1 - np.exp(-x), atol=1e-12)
    assert np.isfinite(jax.grad(lambda lp: k3(lp, jnp.array(0.0)))(jnp.array(-900.0)))
