"""One device and eight give the same gradient, whatever the axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import objectives, policies
from trustax.parallel import MeshConfig, make_mesh
from trustax.testing.rollouts import random_rollout
from trustax.training.config import OptimizerConfig
from trustax.training.gradients import Batch, loss_gradients
from trustax.training.optimizer import init_optimizer, make_optimizer
from trustax.training.placement import place_on

VOCAB = 32
ALL_AXES = [{"data": 2, "sequence": 2, "tensor": 2}, {"fsdp": 4, "tensor": 2}]
MORE = [{"data": 8}, {"fsdp": 8}, {"tensor": 8}, {"sequence": 8}, {"data": 2, "fsdp": 2, "sequence": 2}]
MESHES = [*ALL_AXES, *(pytest.param(axes, marks=pytest.mark.slow) for axes in MORE)]


@pytest.fixture(scope="module")
def policy() -> policies.Policy:
    return policies.build(policies.tiny_config(VOCAB, hidden_size=32, num_layers=2, num_heads=8, mlp_size=64))


@pytest.fixture(scope="module")
def params(policy: policies.Policy):
    return policy.init(jax.random.key(0))


@pytest.fixture(scope="module")
def batch() -> Batch:
    rollout = random_rollout(prompts=8, group_size=2, prompt_tokens=4, new_tokens=8, vocab_size=VOCAB, top_k=4, seed=1)
    advantages = jax.random.normal(jax.random.key(2), rollout.tokens.shape[:1])
    return Batch(rollout, advantages)


@pytest.fixture(scope="module")
def objective():
    return objectives.build(objectives.RECIPES["pdm_topk_kl"](delta=0.05))


def gradients(policy, params, objective, batch):
    function = jax.jit(loss_gradients, static_argnums=0)
    found = function(policy, params, objective, batch, jnp.int32(0))
    return jax.device_get((found.mean(), found.fates.keep))


@pytest.fixture(scope="module")
def expected(policy, params, objective, batch):
    return gradients(policy, params, objective, batch)


@pytest.mark.parametrize("axes", MESHES, ids=lambda axes: "-".join(f"{k}{v}" for k, v in axes.items()))
def test_every_mesh_gives_the_gradient_of_one_device(policy, params, objective, batch, expected, axes) -> None:
    mesh = make_mesh(MeshConfig(**axes))
    optimizer = make_optimizer(OptimizerConfig())
    placement = place_on(mesh, policy, jax.eval_shape(lambda x: init_optimizer(optimizer, x), params))
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, placement.params)
        (loss, grads), keep = gradients(policy, sharded, objective, placement.batch(batch))
    (loss_1, grads_1), keep_1 = expected
    np.testing.assert_allclose(loss, loss_1, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(keep, keep_1)
    for mine, theirs in zip(jax.tree.leaves(grads), jax.tree.leaves(grads_1), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5, rtol=1e-4)
