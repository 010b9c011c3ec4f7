"""Bootstrap intervals hold the truth as often as they say, where the weights have a variance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ope import blocks, bootstrap, truncated_doubly_robust
from trustax.ope.completions import outcome_rewards
from trustax.ope.terms import Terms
from trustax.testing import walks


def groups_of(count: int, size: int) -> np.ndarray:
    return np.repeat(np.arange(count), size)


@pytest.mark.parametrize("normalize", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_90_percent_interval_holds_the_truth_in_90_percent_of_simulations(x64, normalize):
    tree = walks.random_tree(4, states=6, vocab=3, length=8, distance=0.3)
    truth, size, simulations = tree.value(tree.log_pi), 200, 500
    found = walks.complete(tree, np.random.default_rng(0), size * simulations)
    mask = jnp.ones((size, tree.length), bool)

    @jax.jit
    def terms(reward, value, ratio):
        rewards = outcome_rewards(reward, mask)
        return truncated_doubly_robust(rewards, 0.5 * value, ratio, mask, tau=jnp.inf, normalize=normalize)

    held = []
    for i in range(simulations):
        part = slice(i * size, (i + 1) * size)
        one = terms(*map(jnp.asarray, (found.reward[part], found.value[part], found.log_ratio[part])))
        interval = bootstrap(one, np.arange(size), jax.random.key(i), resamples=400)
        held.append(interval.low <= truth <= interval.high)
    assert 0.86 <= np.mean(held) <= 0.94


def test_groups_are_resampled_whole():
    """Ten equal rows of one prompt say no more than one of them."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=50)
    single = Terms(jnp.asarray(values, jnp.float32)[:, None], jnp.ones((50, 1)))
    tenfold = Terms(jnp.repeat(single.numerator, 10, axis=0), jnp.ones((500, 1)))
    key = jax.random.key(0)
    one, ten = bootstrap(single, np.arange(50), key), bootstrap(tenfold, groups_of(50, 10), key)
    np.testing.assert_allclose(one, ten, atol=1e-5)
    assert bootstrap(tenfold, np.arange(500), key).standard_error < 0.5 * ten.standard_error
    assert one.standard_error == pytest.approx(values.std() / np.sqrt(50), rel=0.1)


def test_resamples_beyond_what_fits_at_once_are_the_same_kind(monkeypatch):
    terms = Terms(jnp.arange(8.0)[:, None], jnp.ones((8, 1)))
    whole = bootstrap(terms, np.arange(8), jax.random.key(0), resamples=2000)
    monkeypatch.setattr("trustax.ope.intervals.MOST_COUNTS", 8 * 300)
    parts = bootstrap(terms, np.arange(8), jax.random.key(0), resamples=2000)
    np.testing.assert_allclose(parts, whole, rtol=0.1)


@pytest.mark.parametrize(
    ("groups", "level", "expected"),
    [
        (np.zeros(4, int), 0.9, "one group"),
        (np.arange(3), 0.9, r"groups has shape \(3,\), expected \(4,\)"),
        (np.arange(4), 1.0, r"level must be in \(0, 1\)"),
    ],
)
def test_what_has_no_interval_is_refused(groups, level, expected):
    terms = Terms(jnp.ones((4, 1)), jnp.ones((4, 1)))
    with pytest.raises(ValueError, match=expected):
        bootstrap(terms, groups, jax.random.key(0), level=level)
    with pytest.raises(ValueError, match="length is 0"):
        blocks(4, 0)
