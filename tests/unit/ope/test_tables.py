"""The birth–death chain and the token tree: RMSE by τ as in the tables that this method was derived with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.ope import average_reward, estimate, truncated_doubly_robust
from trustax.ope.completions import outcome_rewards
from trustax.testing import walks

# By fraction of the exact differential value: RMSE at τ = 1.5, 3, 12, 50, 1000, ∞; 150 chains of 10,000 steps.
CHAIN_TAUS = (1.5, 3.0, 12.0, 50.0, 1000.0, np.inf)
CHAIN = {
    1.0: (0.41, 0.58, 1.09, 1.98, 2.92, 1.78),
    0.8: (0.71, 0.74, 1.03, 1.76, 2.61, 1.78),
    0.0: (3.04, 2.72, 2.14, 1.74, 1.71, 1.78),
}
# The same of a token tree, at τ = 1, 2, 5, ∞ and at ∞ normalised step by step; 64 completions of 40 tokens.
TREE_TAUS = (1.0, 2.0, 5.0, np.inf)
TREE = {
    1.0: (0.41, 0.58, 0.82, 1.59, 1.22),
    0.7: (0.53, 0.62, 0.81, 2.19, 1.29),
    0.0: (1.45, 1.32, 1.27, 4.35, 1.91),
}


def error_of_rmse(errors: np.ndarray) -> float:
    """The standard error of an RMSE over independent runs."""
    return float(np.std(errors**2) / np.sqrt(len(errors)) / (2 * np.sqrt(np.mean(errors**2))))


@pytest.fixture(scope="module")
def chain_errors() -> dict[float, np.ndarray]:
    """By fraction of Q: estimate − truth ``[τ, runs]``."""
    chain = walks.walk(np.random.default_rng(0), 300, 10_000)
    omega, action = walks.chain_state_ratio(chain.state), walks.chain_action_ratio(chain.up)
    value, later = (walks.chain_differential_value(x) for x in (chain.state, chain.following))

    def of_run(reward, value, later, omega, action, tau):
        return estimate(average_reward(reward, value, later, omega, action, tau=tau))

    with jax.enable_x64(True):
        runs = jax.jit(jax.vmap(of_run, in_axes=(0, 0, 0, 0, 0, None)))
        return {
            k: np.stack([runs(chain.reward, k * value, k * later, omega, action, tau) for tau in CHAIN_TAUS])
            - walks.CHAIN_VALUE
            for k in CHAIN
        }


@pytest.mark.parametrize("fraction", CHAIN)
def test_the_chain_has_the_errors_of_the_table(chain_errors, fraction):
    for tau, errors, expected in zip(CHAIN_TAUS, chain_errors[fraction], CHAIN[fraction], strict=True):
        # Both are simulations: ours of 300 chains, the table's of 150, with √2 times the standard error.
        tolerance = 3 * np.sqrt(3) * error_of_rmse(errors) + 0.005
        assert np.sqrt(np.mean(errors**2)) == pytest.approx(expected, abs=tolerance), f"τ = {tau}"


def test_with_the_exact_value_the_chain_has_no_bias_where_weights_are_bounded(chain_errors):
    for errors in chain_errors[1.0][:3]:
        assert abs(errors.mean()) < 3 * errors.std() / np.sqrt(len(errors))
    assert chain_errors[0.0][0].mean() > 2.5  # the same truncation without a value


def reference_tree() -> walks.Tree:
    """Found by search among random trees for what is told of the table's: value −1.93, behaviour −1.43, ESS 19 %."""
    return walks.random_tree(21031, states=12, vocab=4, length=40, distance=0.4, scale=-0.9652095791758071)


@pytest.fixture(scope="module")
def tree_runs():
    """500 sets of 64 completions."""
    tree = reference_tree()
    return tree, walks.complete(tree, np.random.default_rng(1), 64 * 500)


def test_the_tree_is_the_one_that_is_told_of(tree_runs):
    tree, found = tree_runs
    assert tree.value(tree.log_pi) == pytest.approx(-1.93, abs=0.005)
    assert tree.value(tree.log_mu) == pytest.approx(-1.43, abs=0.02)
    weights = np.exp(found.log_ratio.sum(-1)).reshape(-1, 64)
    assert np.mean(weights.sum(-1) ** 2 / (weights**2).sum(-1) / 64) == pytest.approx(0.19, abs=0.02)


@pytest.mark.parametrize("fraction", TREE)
def test_the_tree_has_the_errors_of_the_table(tree_runs, fraction):
    """It need not be the same tree: within a fifth where weights are bounded, and a third where they are not."""
    tree, found = tree_runs
    truth = tree.value(tree.log_pi)

    def of_set(reward, value, ratio, tau, normalize):
        mask = jnp.ones(ratio.shape, bool)
        rewards = outcome_rewards(reward, mask)
        return estimate(truncated_doubly_robust(rewards, value, ratio, mask, tau=tau, normalize=normalize))

    with jax.enable_x64(True):
        sets = jax.jit(jax.vmap(of_set, in_axes=(0, 0, 0, None, None)), static_argnums=4)
        shape = (-1, 64, tree.length)
        given = (found.reward.reshape(-1, 64), fraction * found.value.reshape(shape), found.log_ratio.reshape(shape))
        plain = [sets(*given, tau, False) for tau in TREE_TAUS]
        errors = np.stack([*plain, sets(*given, np.inf, True)]) - truth
    rmse = np.sqrt(np.mean(errors**2, axis=1))
    np.testing.assert_allclose(rmse[[0, 1, 2, 4]], np.array(TREE[fraction])[[0, 1, 2, 4]], rtol=0.2)
    np.testing.assert_allclose(rmse[3], TREE[fraction][3], rtol=0.35)
    if fraction == 1.0:
        assert (np.abs(errors[:3].mean(1)) < 3 * errors[:3].std(1) / np.sqrt(errors.shape[1])).all()


def test_truncating_the_trees_whole_product_is_biased(tree_runs):
    """By +0.24 in the table at τ = 2, with the exact value."""
    tree, found = tree_runs
    following = np.concatenate([found.value[:, 1:], found.reward[:, None]], axis=1)
    weights = np.minimum(np.exp(found.log_ratio.cumsum(-1)), 2.0)
    whole = found.value[:, 0] + (weights * (following - found.value)).sum(-1)
    assert whole.mean() - tree.value(tree.log_pi) == pytest.approx(0.24, abs=3 * whole.std() / np.sqrt(len(whole)))
