"""What every family must satisfy, over the table of golden models: each is a folder that ``transformers`` wrote.

The reference logits are of unpadded sequences without a cache (scripts/golden/policies.py). The tolerances here are
part of the contract: a family that misses them is wrong.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import policies
from trustax.policies.hf_config import FAMILIES

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "policies"
NAMES = sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())
PADDED = 32  # every test uses sequences of this length, so that a family is compiled once

family = pytest.mark.parametrize("name", NAMES)
# Gradients compile slowly: one model per set of parameters is enough for them.
gradient_family = pytest.mark.parametrize("name", ["gemma2", "gemma3", "llama", "qwen2_window", "qwen3", "qwen3_moe"])


class Golden(NamedTuple):
    policy: policies.Policy
    params: dict[str, Any]
    tokens: np.ndarray
    logits: np.ndarray
    run: Any  # (params, tokens, positions, valid) -> logits, without a cache
    step: Any  # (params, tokens, positions, valid, cache) -> logits, cache
    gradient: Any  # of a sum of logits, w.r.t. the network's parameters and (apart, though they may be tied) the head's


@cache
def golden(name: str) -> Golden:
    loaded = policies.load(GOLDEN / name)
    policy = policies.build(loaded.config)
    stored = np.load(GOLDEN / name / "logits.npz")

    def step(params, tokens, positions, valid, state):
        hidden, state, aux = policy.apply(params, tokens, positions, valid, state)
        assert set(aux) == ({"routes", "expert_load"} if policy.config.num_experts else set())
        return policy.head(params, hidden), state

    def run(params, tokens, positions, valid):
        return step(params, tokens, positions, valid, None)[0]

    def seen(params, head_params, tokens, positions, valid, counted):
        hidden, _, _ = policy.apply(params, tokens, positions, valid, None)
        return jnp.sum(jnp.where(counted[..., None], jnp.square(policy.head(head_params, hidden)), 0.0))

    gradient = jax.jit(jax.grad(seen, argnums=(0, 1)))
    return Golden(
        policy,
        loaded.params,
        stored["tokens"],
        stored["logits"],
        jax.jit(run),
        jax.jit(step),
        lambda params, *args: gradient(params, params, *args),
    )


def padded(tokens: np.ndarray, left: int, fill: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, positions and validity with ``left`` slots of padding before and the rest of ``PADDED`` after."""
    batch, length = tokens.shape
    wide = np.full((batch, PADDED), fill, np.int32)
    wide[:, left : left + length] = tokens
    valid = np.zeros((batch, PADDED), bool)
    valid[:, left : left + length] = True
    return wide, np.maximum(np.cumsum(valid, axis=1) - 1, 0).astype(np.int32), valid


def test_every_implemented_family_has_a_golden_model():
    seen = {json.loads((GOLDEN / name / "config.json").read_text())["model_type"] for name in NAMES}
    assert seen == set(FAMILIES)


@family
@pytest.mark.parametrize("left", [0, 3, 8], ids=["right-padded", "padded-both-sides", "left-padded"])
def test_logits_equal_transformers_under_any_padding(name, left):
    g = golden(name)
    got = g.run(g.params, *padded(g.tokens, left))[:, left : left + g.tokens.shape[1]]
    np.testing.assert_allclose(got, g.logits, atol=2e-5, rtol=0)


@family
@pytest.mark.parametrize("left", [0, 8], ids=["unpadded", "left-padded"])
def test_cached_logits_equal_transformers(name, left):
    """Prefill half, then decode one token at a time; the cache is longer than needed."""
    g = golden(name)
    tokens, positions, valid = padded(g.tokens, left)
    state, pieces, end = g.policy.init_cache(2, PADDED), [], left + g.tokens.shape[1]
    for start, stop in [(0, 16), *((i, i + 1) for i in range(16, end))]:
        got, state = g.step(g.params, tokens[:, start:stop], positions[:, start:stop], valid, state)
        pieces.append(got)
    assert state["index"] == end
    np.testing.assert_allclose(np.concatenate(pieces, axis=1)[:, left:end], g.logits, atol=2e-5, rtol=0)


@family
def test_padding_between_prompt_and_completion_is_invisible(name):
    """A right-padded prompt, then its completion: a window counts real tokens, not slots."""
    g = golden(name)
    length, gap = g.tokens.shape[1], PADDED - g.tokens.shape[1]
    tokens = np.concatenate([g.tokens[:, :12], np.full((2, gap), 7, np.int32), g.tokens[:, 12:]], axis=1)
    valid = np.ones((2, PADDED), bool)
    valid[:, 12 : 12 + gap] = False
    positions = (np.cumsum(valid, axis=1) - 1).astype(np.int32)
    got = g.run(g.params, tokens, positions, valid)
    np.testing.assert_allclose(got[:, :12], g.logits[:, :12], atol=2e-5, rtol=0)
    np.testing.assert_allclose(got[:, 12 + gap :], g.logits[:, 12:length], atol=2e-5, rtol=0)


@family
def test_content_of_padding_changes_no_bit(name):
    g = golden(name)
    one, other = (g.run(g.params, *padded(g.tokens, 8, fill=fill)) for fill in (0, 31))
    np.testing.assert_array_equal(one[:, 8:], other[:, 8:])


@family
def test_a_row_does_not_see_its_neighbours(name):
    g = golden(name)
    both = g.run(g.params, *padded(g.tokens, 8))
    for row in range(2):
        alone = g.run(g.params, *padded(np.stack([g.tokens[row]] * 2), 8))
        np.testing.assert_array_equal(alone[row, 8:], both[row, 8:])


@gradient_family
def test_causality_by_gradients(name):
    """Logits up to position 11 have no gradient w.r.t. what later tokens embed to; logits of position 12 do."""
    g = golden(name)
    tokens = np.tile(np.arange(PADDED, dtype=np.int32), (2, 1))  # every position has a token of its own
    positions, valid = tokens, np.ones((2, PADDED), bool)
    counted = np.zeros((2, PADDED), bool)
    counted[:, 11] = True
    network, _ = g.gradient(g.params, tokens, positions, valid, counted)
    moved = np.abs(network["embedding"]).sum(axis=1)
    assert moved[11] > 0
    assert np.all(moved[12:] == 0)


@gradient_family
def test_rows_without_a_token_are_finite_in_value_and_gradient(name):
    g = golden(name)
    tokens, positions, valid = padded(g.tokens, 8)
    valid[1] = False
    assert np.all(np.isfinite(g.run(g.params, tokens, positions, valid)))
    everything = g.gradient(g.params, tokens, positions, valid, np.ones((2, PADDED), bool))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(everything))


@gradient_family
def test_every_parameter_matters(name):
    g = golden(name)
    tokens, positions, valid = padded(g.tokens, 0)
    total = jax.tree.map(jnp.add, *g.gradient(g.params, tokens, positions, valid, valid))
    leaves = jax.tree_util.tree_leaves_with_path(total)
    assert [jax.tree_util.keystr(path) for path, leaf in leaves if not np.any(leaf)] == []


@family
def test_init_has_the_loaded_tree_and_named_axes(name):
    g = golden(name)
    abstract = jax.eval_shape(g.policy.init, jax.random.key(0))
    assert jax.tree.map(jnp.shape, g.params) == jax.tree.map(jnp.shape, abstract)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(g.params))
    axes = g.policy.logical_axes()
    assert jax.tree.structure(axes) == jax.tree.structure(abstract)
    for spec, leaf in zip(jax.tree.leaves(axes), jax.tree.leaves(abstract), strict=True):
        assert len(spec) == leaf.ndim
