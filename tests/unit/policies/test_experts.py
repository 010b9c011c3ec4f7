"""A mixture of experts: the grouped path equals a loop over experts, and given routes are replayed."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import policies
from trustax.policies.experts import Experts
from trustax.rollouts.metrics import _expert_load
from trustax.sampling.keys import sample_keys
from trustax.sampling.sampler import Sampler
from trustax.scoring import score
from trustax.training.gradients import Batch, take_prompts
from trustax.types import Rollout, Transform

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "policies"
CONFIG = policies.ArchitectureConfig(
    vocab_size=23, hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_size=12,
    context_length=64, num_experts=5, experts_per_token=2,
)  # fmt: skip


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def oracle(params, x: np.ndarray, ids: np.ndarray | None, count: int, normalize: bool) -> tuple[np.ndarray, np.ndarray]:
    """float64, one expert after the other, every token of its own."""
    params = {name: np.asarray(value, np.float64) for name, value in params.items()}
    logits = x @ params["router"]
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    if ids is None:
        ids = np.argsort(-probabilities, axis=-1, kind="stable")[..., :count]
    shares = np.take_along_axis(probabilities, ids, axis=-1)
    if normalize:
        shares = shares / shares.sum(-1, keepdims=True)
    y = np.zeros_like(x)
    for expert in range(params["gate"].shape[0]):
        share = np.where(ids == expert, shares, 0.0).sum(-1, keepdims=True)
        inner = silu(x @ params["gate"][expert]) * (x @ params["up"][expert])
        y += share * (inner @ params["down"][expert])
    return y, ids


@pytest.mark.parametrize("normalize", [True, False])
def test_the_grouped_path_equals_a_loop_over_experts(normalize):
    config = dataclasses.replace(CONFIG, normalize_routes=normalize)
    module = Experts(config, jnp.dtype("float32"), jax.nn.silu, 1.0)
    x = jax.random.normal(jax.random.key(1), (2, 7, 16))
    valid = jnp.arange(7)[None] < jnp.array([[7], [3]])
    params = module.init(jax.random.key(0), x, None, valid)["params"]
    params = jax.tree.map(lambda leaf: leaf.value, params, is_leaf=lambda leaf: hasattr(leaf, "value"))
    replay = np.random.default_rng(0).permuted(np.tile(np.arange(5), (2, 7, 1)), axis=-1)[..., :2].astype(np.int32)
    replay[0, :, 0] = replay[0, 0, 0]  # one expert for all of a row: some other one gets nothing
    apply = jax.jit(lambda routes: module.apply({"params": params}, x, routes, valid))
    for routes in (np.full_like(replay, -1), replay):
        y, routing = apply(routes)
        given = routes if (routes >= 0).all() else None
        expected, ids = oracle(params, np.asarray(x, np.float64), given, 2, normalize)
        np.testing.assert_allclose(y, expected, atol=1e-5)
        np.testing.assert_array_equal(routing.ids, ids)
        np.testing.assert_array_equal(routing.load, np.bincount(ids[np.asarray(valid)].ravel(), minlength=5))


def test_no_product_of_all_experts_with_all_tokens():
    """The TPU's program multiplies group by group; a dense product is as wide as the experts times the tokens."""
    module = Experts(CONFIG, jnp.dtype("float32"), jax.nn.silu, 1.0)
    x, valid = jnp.zeros((2, 7, 16)), jnp.ones((2, 7), bool)
    params = jax.eval_shape(module.init, jax.random.key(0), x, None, valid)
    program = jax.jit(lambda p: module.apply(p, x, None, valid)[0]).trace(params).lower(lowering_platforms=("tpu",))
    text = program.as_text()
    assert text.count("ragged_dot") >= 3
    assert "5x28x" not in text and "5x14x" not in text


@pytest.fixture(scope="module")
def moe():
    loaded = policies.load(GOLDEN / "qwen3_moe")
    policy = policies.build(loaded.config)
    sampler = Sampler(policy, max_new_tokens=5, top_k=3, eos_ids=frozenset({1}), pad_id=0, record_routes=True)
    return policy, loaded.params, sampler


@pytest.fixture(scope="module")
def rollout(moe) -> Rollout:
    _, params, sampler = moe
    tokens, valid = np.array([[0, 5, 6], [7, 8, 9]], np.int32), np.array([[False, True, True], [True] * 3])
    rows, samples = jnp.repeat(jnp.arange(2, dtype=jnp.int32), 2), jnp.tile(jnp.arange(2, dtype=jnp.int32), 2)
    found = sampler(params, tokens, valid, rows, sample_keys(0, 0, rows, samples), Transform())
    return Rollout(
        prompt_tokens=jnp.asarray(tokens), prompt_valid=jnp.asarray(valid), prompt_index=rows, group_id=rows,
        sample_index=samples, version=jnp.zeros(found.tokens.shape, jnp.int32), **found._asdict(),
    )  # fmt: skip


@pytest.mark.slow
def test_routes_are_recorded_and_replayed(moe, rollout):
    """With other parameters the router would choose otherwise; replayed, every token goes where it went."""
    policy, params, _ = moe
    assert rollout.routes.shape == (4, 5, 2, 2) and rollout.prompt_routes.shape == (2, 3, 2, 2)
    assert (np.asarray(rollout.routes[:, -1]) == -1).all()  # the last token is never read
    log_pi = jax.jit(lambda params, rollout: score(policy, params, rollout).log_pi)
    mask = np.asarray(rollout.token_mask)
    np.testing.assert_allclose(np.asarray(log_pi(params, rollout))[mask], np.asarray(rollout.log_mu)[mask], atol=1e-5)
    other = jax.tree.map(lambda x: x, params)
    other["layers"]["mlp"]["router"] = -params["layers"]["mlp"]["router"]
    replayed = np.asarray(log_pi(other, rollout))[mask]
    free = np.asarray(log_pi(other, rollout.replace(routes=-jnp.ones_like(rollout.routes))))[mask]
    assert np.abs(replayed - free).max() > 1e-3
    gates = np.asarray(log_pi(params, rollout))[mask]
    assert np.abs(replayed - gates).max() > 1e-3  # the experts' shares still are the live router's


def test_routes_follow_their_prompts_into_minibatches(rollout):
    part = take_prompts(Batch(rollout, jnp.zeros(4)), 1, 2)
    np.testing.assert_array_equal(part.rollout.prompt_routes, rollout.prompt_routes[1:])
    np.testing.assert_array_equal(part.rollout.routes, rollout.routes[2:])


def test_the_load_counts_valid_tokens_only():
    routes = np.array([[[[0, 1]], [[0, 2]], [[3, 3]]], [[[0, 1]], [[-1, -1]], [[3, 3]]]])
    mask = np.array([[True, True, False], [True, True, False]])
    assert _expert_load(routes, mask) == {"experts/busiest_over_mean": 1.5, "experts/used_at_least": 3.0}
    assert _expert_load(np.full_like(routes, -1), mask) == {}


def test_refusals(moe):
    policy, params, _ = moe
    tokens = np.zeros((1, 2), np.int32)
    with pytest.raises(ValueError, match=r"routes must be .* = \(1, 2, 2, 2\), got \(1, 2, 1, 2\)"):
        policy.apply(params, tokens, tokens, np.ones((1, 2), bool), None, routes=np.zeros((1, 2, 1, 2), np.int32))
    dense = policies.build(policies.tiny_config(7))
    with pytest.raises(ValueError, match="the policy has no experts"):
        Sampler(dense, max_new_tokens=1, top_k=0, eos_ids=frozenset(), pad_id=0, record_routes=True)
    with pytest.raises(ValueError, match=r"experts_per_token must be 1 to num_experts \(5\)"):
        dataclasses.replace(CONFIG, experts_per_token=6)
