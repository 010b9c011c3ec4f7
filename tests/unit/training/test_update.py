import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compilations import compilations

from trustax import objectives, policies
from trustax.objectives.directions import UpdateAware
from trustax.objectives.masks import TrustRegion
from trustax.objectives.proximity import LumpedDivergence
from trustax.objectives.thresholds import Constant
from trustax.testing.rollouts import random_rollout
from trustax.training.config import OptimizerConfig
from trustax.training.divergence_rate import divergence_rate
from trustax.training.gradients import Batch, Gradients, _merge, batch_stats, loss_gradients, take_prompts
from trustax.training.optimizer import apply_update, init_optimizer, learning_rate, make_optimizer
from trustax.training.update import check_needs, make_update

VOCAB = 17


@pytest.fixture(scope="module")
def policy() -> policies.Policy:
    return policies.build(policies.tiny_config(VOCAB, hidden_size=16, num_layers=1, num_heads=2, mlp_size=24))


@pytest.fixture(scope="module")
def params(policy: policies.Policy):
    return policy.init(jax.random.key(0))


@pytest.fixture(scope="module")
def batch() -> Batch:
    rollout = random_rollout(prompts=4, group_size=3, prompt_tokens=4, new_tokens=5, vocab_size=VOCAB, top_k=4, seed=1)
    advantages = jax.random.normal(jax.random.key(2), rollout.tokens.shape[:1])
    return Batch(rollout, advantages)


def objective(recipe: str = "pdm_topk_kl", **hyperparameters) -> objectives.Objective:
    return objectives.build(objectives.RECIPES[recipe](**hyperparameters))


def assert_trees_close(one, other, atol: float) -> None:
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), atol=atol, rtol=1e-4)


@pytest.mark.parametrize("recipe", ["pdm_topk_kl", pytest.param("grpo", marks=pytest.mark.slow)])
def test_micro_batches_change_nothing(policy, params, batch: Batch, recipe: str) -> None:
    batch = dataclasses.replace(batch, log_anchor=batch.rollout.log_mu + 0.1, log_ref=batch.rollout.log_mu - 0.1)
    gradients = jax.jit(loss_gradients, static_argnums=0, static_argnames="micro_batches")
    whole, parts = (gradients(policy, params, objective(recipe), batch, jnp.int32(0), micro_batches=n) for n in (1, 4))
    assert float(whole.weight) == pytest.approx(float(parts.weight))
    assert_trees_close(whole.mean(), parts.mean(), atol=1e-6)
    np.testing.assert_array_equal(np.asarray(whole.fates.keep), np.asarray(parts.fates.keep))
    assert whole.metrics.keys() == parts.metrics.keys()
    for name, metric in whole.metrics.items():
        if name not in ("divergence/p95", "weight/ess"):  # not sums: their merge is a stated approximation
            assert float(metric) == pytest.approx(float(parts.metrics[name]), rel=1e-4, abs=1e-6), name


def test_parts_are_whole_groups_and_cover_the_batch(batch: Batch) -> None:
    parts = [take_prompts(batch, i, 2) for i in range(2)]
    for name in ("tokens", "log_mu", "group_id"):
        both = np.concatenate([np.asarray(getattr(part.rollout, name)) for part in parts])
        np.testing.assert_array_equal(both, np.asarray(getattr(batch.rollout, name)))
    for part in parts:
        prompts = np.asarray(part.rollout.prompt_tokens)[np.asarray(part.rollout.prompt_index)]
        rows = np.isin(np.asarray(batch.rollout.group_id), np.asarray(part.rollout.group_id))
        index = np.asarray(batch.rollout.prompt_index)[rows]
        np.testing.assert_array_equal(prompts, np.asarray(batch.rollout.prompt_tokens)[index])
    with pytest.raises(ValueError, match="4 prompts do not divide into 3 equal parts"):
        take_prompts(batch, 0, 3)


def test_the_gradient_is_clipped_once_by_its_global_norm() -> None:
    # The mean of [3, 0] and [−3, 1] is [0, 0.5]: within the norm of 1, though each part is not.
    optimizer = make_optimizer(OptimizerConfig(b1=0.0, b2=0.0, eps=1.0))
    params = {"w": jnp.zeros(2)}
    args = {"rate": jnp.float32(1.0), "clip_norm": jnp.float32(1.0)}
    new = apply_update(optimizer, {"w": jnp.array([0.0, 0.5])}, init_optimizer(optimizer, params), params, **args)
    assert float(new.grad_norm) == pytest.approx(0.5)
    np.testing.assert_allclose(new.params["w"], [0.0, -0.5 / 1.5], atol=1e-6)
    big = apply_update(optimizer, {"w": jnp.array([3.0, 4.0])}, init_optimizer(optimizer, params), params, **args)
    assert float(big.grad_norm) == pytest.approx(5.0)
    np.testing.assert_allclose(big.params["w"], [-0.6 / 1.6, -0.8 / 1.8], atol=1e-6)


def test_parts_are_clipped_after_their_sum() -> None:
    """[3, 0] and [−3, 1] with clip 1 are [0, 0.5]; clipping each part first gives [0.0257, 0.158]."""

    def part(gradient: list[float]) -> Gradients:
        one = jnp.ones((), jnp.float32)
        return Gradients(one, one, {"w": jnp.array(gradient)}, {}, None)

    def moved(grads, clip_norm):
        params = {"w": jnp.zeros(2)}
        sgd = optax.identity()
        args = {"rate": jnp.float32(-1.0), "clip_norm": jnp.float32(clip_norm)}
        return np.asarray(apply_update(sgd, grads, init_optimizer(sgd, params), params, **args).params["w"])

    parts = [part([3.0, 0.0]), part([-3.0, 1.0])]
    _, mean = _merge(*parts).mean()
    np.testing.assert_allclose(moved(mean, 1.0), [0.0, 0.5], atol=1e-7)
    each_first = np.mean([moved(p.of_sum, 1.0) for p in parts], axis=0)
    np.testing.assert_allclose(each_first, [0.0257, 0.158], atol=2e-4)


def test_the_learning_rate_warms_up_and_stays() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=4)
    rates = [float(learning_rate(config, jnp.int32(i))) for i in range(6)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_a_new_threshold_or_rate_does_not_recompile(policy, params, batch: Batch) -> None:
    optimizer = make_optimizer(OptimizerConfig())
    update = make_update(policy, optimizer, micro_batches=1)
    counts = []
    for delta, rate in ((0.1, 1e-3), (0.2, 1e-4)):
        copy = jax.tree.map(jnp.copy, params)
        state = init_optimizer(optimizer, copy)
        arguments = (objective(delta=delta), batch, jnp.int32(0), jnp.float32(rate), jnp.float32(1.0))
        with compilations() as count:
            update(copy, state, *arguments)
        counts.append(count())
    assert counts[0] > 0
    assert counts[1] == 0


def update_aware(delta: float) -> objectives.Objective:
    spec = objectives.RECIPES["dppo_topk_kl"](delta=delta)
    return objectives.build(spec.replace(mask=TrustRegion(LumpedDivergence("kl"), Constant(delta), UpdateAware())))


@pytest.mark.slow
def test_the_divergence_rate_is_the_first_order_change_of_the_real_update(policy, params, batch: Batch) -> None:
    optimizer, aware = make_optimizer(OptimizerConfig()), update_aware(0.0)
    opt_state = init_optimizer(optimizer, params)
    version, clip = jnp.int32(0), jnp.float32(1.0)
    rate = jnp.float32(1e-5)  # small enough for a first order, large enough for float32
    rates = jax.jit(divergence_rate, static_argnums=(0, 1))(
        policy, optimizer, params, opt_state, aware, batch, version=version, rate=rate, clip_norm=clip
    )
    gradients = jax.jit(loss_gradients, static_argnums=0)
    _, grads = gradients(policy, params, aware.unmasked(), batch, version).mean()
    new = apply_update(optimizer, grads, opt_state, params, rate=rate, clip_norm=clip)

    @jax.jit
    def divergence(params):
        needs = aware.needs - {"divergence_rate"}
        stats = batch_stats(policy, params, batch, version, needs=needs, differentiable=frozenset())
        return aware.divergence(stats)

    realised = np.asarray(divergence(new.params) - divergence(params))
    mask = np.asarray(batch.rollout.token_mask)
    predicted = np.asarray(rates)
    clear = mask & (np.abs(predicted) > 0.05 * np.abs(predicted[mask]).max())
    assert clear.sum() >= 10
    np.testing.assert_array_equal(np.sign(predicted[clear]), np.sign(realised[clear]))
    np.testing.assert_allclose(predicted[clear], realised[clear], rtol=0.15)


@pytest.mark.slow
def test_an_update_aware_mask_trains_and_drops_what_moves_outward(policy, params, batch: Batch) -> None:
    optimizer = make_optimizer(OptimizerConfig())
    update = make_update(policy, optimizer, micro_batches=2)
    copy = jax.tree.map(jnp.copy, params)
    arguments = (batch, jnp.int32(0), jnp.float32(1e-3), jnp.float32(1.0))
    result = update(copy, init_optimizer(optimizer, copy), update_aware(0.0), *arguments)
    mask = np.asarray(batch.rollout.token_mask)
    kept = np.asarray(result.fates.keep)[mask]
    assert 0.1 < kept.mean() < 0.9


def test_an_objective_that_nobody_can_serve_is_refused() -> None:
    spec = objectives.build(objectives.RECIPES["pg_is"]())

    class Greedy:
        needs = spec.needs | {"value_estimates"}
        advantage = spec.advantage

    with pytest.raises(ValueError, match="value_estimates"):
        check_needs(Greedy())  # pyright: ignore[reportArgumentType]
