"""Exact enumeration on a tree of V ≤ 4 tokens and length ≤ 3: the expectation of a gradient, not one sample of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.objectives import RECIPES, build
from trustax.testing import tabular
from trustax.types import TokenStats


@pytest.fixture(scope="module", params=[None, 1], ids=["fixed length", "with an end token"])
def tree(request):
    return tabular.enumerate_tree(3, 3, end=request.param)


@pytest.fixture(scope="module")
def policies():
    rng = np.random.default_rng(0)
    mu = tabular.random_logits(rng, 3, 3)
    return mu, [z + 0.5 * rng.normal(size=z.shape) for z in mu]


def expected_gradient(objective, tree, mu, pi, advantages):
    """∇_logits E_{sequence ~ μ}[ −loss sum ]: μ's probability rides on the advantage, in which the loss is linear."""
    probability = np.exp(tabular.token_log_probs(mu, tree).sum(-1))
    with jax.enable_x64(True):
        stats = TokenStats(
            log_pi=jnp.asarray(tabular.token_log_probs(pi, tree)),
            log_mu=jnp.asarray(tabular.token_log_probs(mu, tree)),
            advantages=jnp.asarray(np.broadcast_to(probability[:, None] * advantages, tree.tokens.shape)),
            token_mask=jnp.asarray(tree.mask),
        )
        stats = stats.replace(log_anchor=stats.log_mu)
        per_token = -jax.grad(lambda lp: objective(stats.replace(log_pi=lp)).sum)(stats.log_pi)
    return tabular.weighted_score(pi, tree, np.asarray(per_token)), np.asarray(per_token)


def assert_equal_tables(got, want, atol=1e-12):
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, atol=atol)


def test_the_oracle_against_finite_differences(tree, policies):
    _, pi = policies
    rewards = np.random.default_rng(1).normal(size=len(tree.tokens))
    assert tabular.expected_reward(pi, tree, np.ones(len(rewards))) == pytest.approx(1.0)
    gradient, h = tabular.policy_gradient(pi, tree, rewards), 1e-6
    for t, row, v in [(0, 0, 1), (1, 2, 0), (2, 5, 2)]:
        up, down = ([z.copy() for z in pi] for _ in range(2))
        up[t][row, v] += h
        down[t][row, v] -= h
        slope = (tabular.expected_reward(up, tree, rewards) - tabular.expected_reward(down, tree, rewards)) / (2 * h)
        assert gradient[t][row, v] == pytest.approx(slope, abs=1e-8)


def prefix_values(logits, tree, rewards):
    """Q(y_≤t): the expected reward given the prefix up to and including token t, ``[N, T]``."""
    log_pi = tabular.token_log_probs(logits, tree)
    found = np.zeros(tree.tokens.shape)
    for i, t in np.argwhere(tree.mask):
        same = np.all(tree.tokens[:, : t + 1] == tree.tokens[i, : t + 1], -1) & tree.mask[:, t]
        found[i, t] = (np.exp(log_pi[same, t + 1 :].sum(-1)) * rewards[same]).sum()
    return found


def test_sequence_weights_are_unbiased_for_an_outcome_reward(tree, policies):
    mu, pi = policies
    rewards = np.random.default_rng(2).normal(size=len(tree.tokens))
    got, _ = expected_gradient(build(RECIPES["pg_is"](level="sequence_sum")), tree, mu, pi, rewards[:, None])
    assert_equal_tables(got, tabular.policy_gradient(pi, tree, rewards))


def test_prefix_weights_are_unbiased_for_values_of_the_prefix_only(tree, policies):
    """With an outcome reward they credit continuations that μ draws, and differ from ∇J."""
    mu, pi = policies
    rewards = np.random.default_rng(2).normal(size=len(tree.tokens))
    objective, exact = build(RECIPES["pg_is"](level="prefix")), tabular.policy_gradient(pi, tree, rewards)
    got, _ = expected_gradient(objective, tree, mu, pi, prefix_values(pi, tree, rewards))
    assert_equal_tables(got, exact)
    outcome, _ = expected_gradient(objective, tree, mu, pi, rewards[:, None])
    assert max(np.abs(g - e).max() for g, e in zip(outcome, exact, strict=True)) > 1e-3


def test_token_weights_are_the_gradient_of_the_first_order_surrogate(tree, policies):
    """∇ Σ_t E_μ[r_t R], not ∇J: the two differ off-policy, and agree on-policy."""
    mu, pi = policies
    rewards = np.random.default_rng(3).normal(size=len(tree.tokens))
    got, _ = expected_gradient(build(RECIPES["pg_is"]()), tree, mu, pi, rewards[:, None])
    log_mu, log_pi = tabular.token_log_probs(mu, tree), tabular.token_log_probs(pi, tree)
    surrogate = (np.exp(log_mu.sum(-1)) * rewards)[:, None] * np.exp(log_pi - log_mu)
    assert_equal_tables(got, tabular.weighted_score(pi, tree, surrogate))
    exact = tabular.policy_gradient(pi, tree, rewards)
    assert max(np.abs(g - e).max() for g, e in zip(got, exact, strict=True)) > 1e-3
    on_policy, _ = expected_gradient(build(RECIPES["pg_is"]()), tree, pi, pi, rewards[:, None])
    assert_equal_tables(on_policy, exact)


def test_masked_expectation_equals_a_loop_over_tokens(tree, policies):
    mu, pi = policies
    rewards = np.random.default_rng(4).normal(size=len(tree.tokens))
    got, _ = expected_gradient(build(RECIPES["dppo_binary_tv"](delta=0.1, cap=1.2)), tree, mu, pi, rewards[:, None])
    log_mu, log_pi = tabular.token_log_probs(mu, tree), tabular.token_log_probs(pi, tree)
    probability = np.exp(log_mu.sum(-1))
    coefficient, dropped = np.zeros(tree.tokens.shape), 0
    for i, t in np.argwhere(tree.mask):
        p, m = np.exp(log_pi[i, t]), np.exp(log_mu[i, t])
        if abs(p - m) > 0.1 and rewards[i] * (p - m) > 0:
            dropped += 1
        else:
            coefficient[i, t] = probability[i] * rewards[i] * min(p / m, 1.2)
    assert_equal_tables(got, tabular.weighted_score(pi, tree, coefficient))
    assert 0 < dropped < tree.mask.sum()


@pytest.mark.parametrize(
    "name", ["ppo_clip", "dapo", "gspo", "cispo", "spo", "drpo", "sapo_soft", "ctpo", "trm_max", "vespo"]
)
def test_on_policy_every_method_is_the_policy_gradient(name, tree, policies):
    """At π = μ = α every weight is 1, so the expected gradient is ∇J, up to the aggregation's factor per sequence."""
    _, pi = policies
    rewards = np.random.default_rng(5).normal(size=len(tree.tokens))
    objective = build(RECIPES[name]())
    got, _ = expected_gradient(objective, tree, pi, pi, rewards[:, None])
    share = {
        "sequence_mean_of_token_means": 1.0 / tree.mask.sum(-1),
        "sequence_sum_over_horizon": np.full(len(rewards), 1.0 / 8192.0),
    }.get(objective.aggregation.mode, np.ones(len(rewards)))
    assert_equal_tables(got, tabular.policy_gradient(pi, tree, rewards * share))
