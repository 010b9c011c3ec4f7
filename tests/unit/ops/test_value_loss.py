import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ops.value_loss import clipped_value_loss


@pytest.mark.parametrize("clip", [0.2, np.inf])
def test_values_and_gradients_against_numpy(clip):
    rng = np.random.default_rng(0)
    values, old, returns = rng.normal(size=(3, 4, 9))
    clipped = old + np.clip(values - old, -clip, clip)
    expected = 0.5 * np.maximum((values - returns) ** 2, (clipped - returns) ** 2)
    arrays = [jnp.asarray(x, jnp.float32) for x in (values, old, returns)]
    got = clipped_value_loss(*arrays, clip=clip)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    gradient = jax.grad(lambda v: jnp.sum(clipped_value_loss(v, *arrays[1:], clip=clip)))(arrays[0])
    plain = (values - returns) ** 2 >= (clipped - returns) ** 2
    slope = np.where(plain, values - returns, np.where(np.abs(values - old) < clip, clipped - returns, 0.0))
    np.testing.assert_allclose(gradient, slope, atol=1e-5)
    assert clip == np.inf or 0 < plain.mean() < 1  # both branches are looked at


def test_a_value_that_has_not_moved_has_the_plain_gradient():
    """At the first update V = V_old: a tie that must not halve the gradient."""
    value, target = jnp.array([[0.25]]), jnp.array([[1.0]])
    gradient = jax.grad(lambda v: clipped_value_loss(v, value, target, clip=0.2)[0, 0])(value)
    np.testing.assert_allclose(gradient, [[-0.75]])
