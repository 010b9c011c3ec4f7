"""What is learned: never from the rows that it is used on, and by a network as well as by a table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ope.nuisance import cross_fit, group_folds, network_value, segment_folds
from trustax.ope.schedules import polynomial_tau, quantile_tau, tail_index
from trustax.testing import walks


def test_a_network_learns_the_value_of_another_policy():
    """A line of four states; μ is lazy, π hurries to the end, and each step costs 1."""
    rng = np.random.default_rng(0)
    state = np.arange(800) % 4
    forward = rng.random(800) < 0.5
    following = np.where(forward, state + 1, state)
    features = np.vstack([np.eye(4), np.zeros(4)])
    ratio = np.where(forward, 0.8 / 0.5, 0.2 / 0.5)
    given = (features[state], features[following], -np.ones(800), ratio, np.ones(800))
    value = network_value(*(jnp.asarray(x, jnp.float32) for x in given), jax.random.key(0), rounds=40)
    found = value(jnp.asarray(features, jnp.float32))
    np.testing.assert_allclose(found, [-5, -3.75, -2.5, -1.25, 0], atol=0.4)  # 1/0.8 steps a state; its own would be 2
    assert found[4] == 0


def test_no_row_is_predicted_by_what_it_taught():
    folds, learn = segment_folds(12, 3, gap=1)
    seen = []

    def fit(weights):
        def predict(rows):
            seen.append((weights, rows))
            return jnp.full((int(rows.sum()), 2), float(len(seen)))

        return predict

    found = cross_fit(folds, fit, learn=learn)
    assert found.shape == (12, 2) and found[:, 0].tolist() == (folds + 1.0).tolist()
    for weights, rows in seen:
        near = rows | np.roll(rows, 1) | np.roll(rows, -1)
        inside = np.convolve(rows, [1, 1, 1], "same") > 0
        assert not weights[inside].any() and near.sum() >= inside.sum() and weights.any()


def test_a_group_is_never_split():
    groups = np.random.default_rng(0).integers(0, 30, 200)
    folds = group_folds(groups, 5)
    assert all(len(set(folds[groups == group])) == 1 for group in np.unique(groups)) and set(folds) == set(range(5))
    assert (folds == group_folds(groups, 5)).all() and (folds != group_folds(groups, 5, seed=1)).any()


def test_the_tail_of_the_chain_is_found_and_its_schedule_is_beyond_the_root():
    """d = 0.310: not square-integrable, so that τ must grow faster than √N for the bias to vanish as fast as it can."""
    rng = np.random.default_rng(0)
    state = rng.geometric(1 - walks.BEHAVIOR / (1 - walks.BEHAVIOR), 200_000) - 1
    index = tail_index(walks.chain_state_ratio(state) * np.exp(rng.uniform(-0.3, 0.3, len(state))), top=2000)
    assert index == pytest.approx(0.31, abs=0.1)
    assert polynomial_tau(10_000, index) > polynomial_tau(10_000, 1.0) > polynomial_tau(10_000, 2.0)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: cross_fit(np.zeros(3, int), lambda _: None), "at least two"),
        (lambda: group_folds(np.arange(3), 4), "4 folds of 3 groups"),
        (lambda: segment_folds(6, 2, gap=6), "nothing to learn from"),
        (lambda: polynomial_tau(10, 0.0), "tail and scale above 0"),
        (lambda: quantile_tau(np.ones(3), 1.0), "share is 1.0"),
        (lambda: tail_index(np.ones(3), top=3), "top is 3"),
        (lambda: tail_index(np.zeros(9)), "must be above 0"),
    ],
)
def test_bad_input_is_refused(call, expected):
    with pytest.raises(ValueError, match=expected):
        call()
