"""A critic: GAE's targets, one weight for both losses, and what it learns with a trunk of its own or a shared one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import objectives, policies
from trustax.ops.masked import masked_whiten
from trustax.scoring.score import token_values
from trustax.testing.rollouts import random_rollout
from trustax.training.config import CriticConfig, OptimizerConfig
from trustax.training.critic import ValueTargets, gae_targets
from trustax.training.gradients import Batch, loss_gradients
from trustax.training.loop import reference_of
from trustax.training.optimizer import init_optimizer, make_optimizer
from trustax.training.update import check_needs, make_update

VOCAB = 17
CONFIG = policies.tiny_config(VOCAB, hidden_size=16, num_layers=1, num_heads=2, mlp_size=24)
CRITIC = CriticConfig(gamma=0.9, lam=0.8, clip=0.5)
LORA = policies.LoraConfig(rank=2, alpha=2.0, targets=("q_proj",))


def policy_with(value_head: str, lora: policies.LoraConfig | None = None) -> policies.Policy:
    return policies.build(CONFIG, value_head=value_head, lora=lora)


@pytest.fixture(scope="module")
def rollout():
    rollout = random_rollout(prompts=4, group_size=3, prompt_tokens=4, new_tokens=5, vocab_size=VOCAB, top_k=4, seed=1)
    return rollout.replace(rewards=jnp.arange(12.0) / 12)


@pytest.fixture(scope="module")
def shared():
    policy = policy_with("shared")
    params = jax.jit(policy.init)(jax.random.key(0))
    params["value"]["kernel"] = jax.random.normal(jax.random.key(1), (16,))
    return policy, params


@pytest.mark.slow
def test_targets_are_gae_with_the_reward_at_the_last_token(shared, rollout):
    policy, params = shared
    plain = dataclasses.replace(CRITIC, whiten=False)
    advantages, targets = gae_targets(policy, params, rollout, plain)
    values, mask = np.asarray(token_values(policy, params, rollout), np.float64), np.asarray(rollout.token_mask)
    assert np.ptp(mask.sum(axis=1)) > 0
    for row in range(12):
        ahead, running = 0.0, 0.0
        places = np.flatnonzero(mask[row])
        for t in places[::-1]:
            reward = float(rollout.rewards[row]) if t == places[-1] else 0.0
            running = reward + 0.9 * ahead - values[row, t] + 0.9 * 0.8 * running
            ahead = values[row, t]
            np.testing.assert_allclose(advantages[row, t], running, atol=1e-5)
            np.testing.assert_allclose(targets.returns[row, t], running + values[row, t], atol=1e-5)
    assert not np.asarray(advantages)[~mask].any()
    whitened, _ = gae_targets(policy, params, rollout, CRITIC)
    np.testing.assert_allclose(whitened, masked_whiten(advantages, rollout.token_mask), atol=1e-6)


def gradient_of(policy, params, rollout, critic, micro_batches=1):
    targets = ValueTargets(jnp.zeros(rollout.tokens.shape), jnp.ones(rollout.tokens.shape))
    objective = objectives.build(objectives.RECIPES["ppo_clip"](critic=True))
    advantages = jax.random.normal(jax.random.key(3), rollout.tokens.shape)
    batch = Batch(rollout, advantages, log_anchor=rollout.log_mu, value_targets=targets)
    run = jax.jit(loss_gradients, static_argnums=0, static_argnames=("micro_batches", "critic"))
    return run(policy, params, objective, batch, jnp.int32(0), micro_batches=micro_batches, critic=critic)


@pytest.mark.slow
def test_one_weight_divides_both_losses_and_micro_batches_change_nothing(shared, rollout):
    policy, params = shared
    both, parts = (gradient_of(policy, params, rollout, CRITIC, n) for n in (1, 4))
    policy_only = gradient_of(policy, params, rollout, None)
    values = np.asarray(token_values(policy, params, rollout), np.float64)
    clipped = np.clip(values, -0.5, 0.5)
    losses = 0.5 * np.maximum((values - 1) ** 2, (clipped - 1) ** 2)
    expected = losses[np.asarray(rollout.token_mask)].mean()
    assert float(both.metrics["value/loss"]) == pytest.approx(expected, rel=1e-4)
    added = float(both.mean()[0]) - float(policy_only.mean()[0])
    assert added == pytest.approx(CRITIC.coefficient * expected, rel=1e-3)
    for mine, theirs in zip(jax.tree.leaves(both.mean()), jax.tree.leaves(parts.mean()), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6, rtol=1e-4)
    assert np.any(both.of_sum["embedding"] != policy_only.of_sum["embedding"])  # the shared trunk hears both
    np.testing.assert_array_equal(policy_only.of_sum["value"]["kernel"], np.zeros(16))


@pytest.mark.parametrize("lora", [pytest.param(None, marks=pytest.mark.slow), LORA], ids=["all", "adapters"])
@pytest.mark.slow
def test_a_trunk_of_its_own_leaves_the_policy_alone(rollout, lora):
    policy = policy_with("own", lora)
    params = jax.jit(policy.init)(jax.random.key(0))
    params["value"]["kernel"] = jax.random.normal(jax.random.key(1), (16,))
    with_critic, without = (gradient_of(policy, params, rollout, critic).of_sum for critic in (CRITIC, None))
    of_policy = policies.without_critic(with_critic)
    jax.tree.map(np.testing.assert_array_equal, of_policy, policies.without_critic(without))
    assert jax.tree.structure(with_critic["critic"]) == jax.tree.structure(of_policy)  # with LoRA: adapters only
    assert any(np.any(leaf) for leaf in jax.tree.leaves(with_critic["critic"]))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(without["critic"]))
    assert jax.tree.structure(policy.logical_axes()) == jax.tree.structure(params)
    reference = reference_of(policy, params)
    assert jax.tree.structure(reference) == jax.tree.structure(of_policy)


@pytest.mark.slow
def test_the_critic_learns(shared, rollout):
    policy, params = shared
    optimizer = make_optimizer(OptimizerConfig())
    update = make_update(policy, optimizer, micro_batches=1, critic=CriticConfig(clip=float("inf")))
    objective = objectives.build(objectives.RECIPES["ppo_clip"](critic=True))
    targets = ValueTargets(token_values(policy, params, rollout), jnp.ones(rollout.tokens.shape))
    batch = Batch(rollout, jnp.zeros(rollout.tokens.shape), log_anchor=rollout.log_mu, value_targets=targets)
    params = jax.tree.map(jnp.copy, params)
    opt_state, losses = init_optimizer(optimizer, params), []
    for _ in range(12):
        found = update(params, opt_state, objective, batch, jnp.int32(0), jnp.float32(0.03), jnp.float32(1.0))
        params, opt_state = found.params, found.opt_state
        losses.append(float(found.metrics["value/loss"]))
    assert losses[-1] < 0.3 * losses[0]


def test_critic_and_objective_go_together_or_are_refused(rollout):
    gae, plain = (objectives.build(objectives.RECIPES["ppo_clip"](critic=critic)) for critic in (True, False))
    check_needs(gae, has_critic=True)
    check_needs(plain)
    for objective, has_critic in ((gae, False), (plain, True)):
        with pytest.raises(ValueError, match="do not go together"):
            check_needs(objective, has_critic=has_critic)
    with pytest.raises(ValueError, match="has no value head"):
        token_values(policies.build(CONFIG), {}, rollout)
    with pytest.raises(ValueError, match="needs denominator 'original'"):
        spec = gae.spec
        objectives.build(spec.replace(aggregation=dataclasses.replace(spec.aggregation, denominator="surviving")))


@pytest.mark.parametrize(("field", "value"), [("gamma", 1.5), ("lam", -0.1), ("clip", 0.0), ("coefficient", -1.0)])
def test_a_bad_config_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        CriticConfig(**{field: value})
