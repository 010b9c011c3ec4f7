"""The policy's functions on a small decoder: padded vocabulary, cache, dtype, gradients through a shared prompt."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax.policies import ArchitectureConfig, build, tiny_config
from trustax.policies.decoder import RMSNorm

CONFIG = tiny_config(12, hidden_size=16, num_layers=2, mlp_size=24, context_length=32)
POLICY = build(CONFIG)
PARAMS = jax.jit(POLICY.init)(jax.random.key(0))


def positions_of(valid: np.ndarray) -> np.ndarray:
    return np.maximum(np.cumsum(valid, axis=1) - 1, 0).astype(np.int32)


def test_padded_vocabulary_is_never_seen():
    """Head of width 8, tokenizer of 6, logits 0 for real and 10 for padded rows: log-probs are -ln 6."""
    config = dataclasses.replace(CONFIG, vocab_size=6, embedding_rows=8, tie_embeddings=False)
    policy = build(config)
    params = jax.eval_shape(policy.init, jax.random.key(0))
    params = {name: jnp.zeros(params[name].shape) for name in ("embedding", "head")}
    params["head"] = params["head"].at[6:, 0].set(10.0)
    logits = policy.head(params, jnp.zeros((1, 16)).at[:, 0].set(1.0))
    assert logits.shape == (1, 6)
    assert policy.head_weights(params).shape == (6, 16)
    np.testing.assert_allclose(jax.nn.log_softmax(logits), -1.791759, atol=1e-6)


def test_logit_soft_cap():
    """Cap 30, logit 60: 30 tanh 2 = 28.9208."""
    policy = build(dataclasses.replace(CONFIG, logit_soft_cap=30.0))
    params = {"embedding": jnp.full((12, 16), 60.0 / 16)}
    np.testing.assert_allclose(policy.head(params, jnp.ones((1, 16))), 28.9208, atol=1e-4)


def test_norm_is_per_head():
    """Heads of ones and of threes both become ones; a norm over all heads would give 0.447 and 1.342."""
    heads = jnp.asarray([1.0, 3.0])[:, None] * jnp.ones((2, 4))
    norm = RMSNorm(0.0, False)
    np.testing.assert_allclose(norm.apply({"params": {"scale": jnp.ones(4)}}, heads), np.ones((2, 4)), rtol=1e-6)
    shapes = jax.eval_shape(POLICY.init, jax.random.key(0))["layers"]["attention"]
    assert shapes["query_norm"]["scale"].shape == (2, CONFIG.head_dim)


def test_head_dim_is_its_own():
    """64 channels, 4 heads of 32: the query projection is 64 × 128."""
    config = ArchitectureConfig(
        vocab_size=8, hidden_size=64, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=32, mlp_size=8,
        context_length=8,
    )  # fmt: skip
    attention = jax.eval_shape(build(config).init, jax.random.key(0))["layers"]["attention"]
    assert attention["query"]["kernel"].shape == (1, 64, 128)
    assert attention["key"]["kernel"].shape == (1, 64, 64)
    assert attention["output"]["kernel"].shape == (1, 128, 64)


def test_left_padded_batch_decodes_like_single_rows():
    """Masks [0 0 1 1 1] and [1 1 1 1 1], two more steps: positions 3, 4 and 5, 6."""
    tokens = np.asarray([[9, 9, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7]], np.int32)
    valid = np.ones((2, 7), bool)
    valid[0, :2] = False
    positions = positions_of(valid)
    assert positions[:, 5:].tolist() == [[3, 4], [5, 6]]

    @jax.jit
    def decode(tokens, positions, valid):
        hidden, cache, _ = POLICY.apply(PARAMS, tokens[:, :5], positions[:, :5], valid, POLICY.init_cache(2, 7))
        pieces = [hidden]
        for i in (5, 6):
            hidden, cache, _ = POLICY.apply(PARAMS, tokens[:, i : i + 1], positions[:, i : i + 1], valid, cache)
            pieces.append(hidden)
        return POLICY.head(PARAMS, jnp.concatenate(pieces, axis=1))

    together = decode(tokens, positions, valid)
    for row, real in ((0, slice(2, 7)), (1, slice(0, 7))):
        row_tokens = tokens[row : row + 1, real]
        everything = np.ones(row_tokens.shape, bool)
        hidden, _, _ = POLICY.apply(PARAMS, row_tokens, positions_of(everything), everything, None)
        np.testing.assert_allclose(together[row, real], POLICY.head(PARAMS, hidden)[0], atol=1e-5)


def test_gradient_through_a_shared_prompt_equals_whole_sequences():
    """What the scorer does: prefill two prompts, gather cache rows for four completions, apply on them."""
    rng = np.random.default_rng(0)
    prompts = rng.integers(0, 12, (2, 5)).astype(np.int32)
    prompt_valid = np.asarray([[False, False, True, True, True], [True] * 5])
    completions = rng.integers(0, 12, (4, 3)).astype(np.int32)
    prompt_index = np.asarray([1, 0, 1, 1])
    valid = np.concatenate([prompt_valid[prompt_index], np.ones((4, 3), bool)], axis=1)
    positions = positions_of(valid)
    weights = rng.normal(size=(4, 3, 12)).astype(np.float32)

    def shared(params):
        cache = POLICY.init_cache(2, 8)
        room = np.concatenate([prompt_valid, np.zeros((2, 3), bool)], axis=1)
        _, cache, _ = POLICY.apply(params, prompts, positions_of(prompt_valid), room, cache)
        cache = {"k": cache["k"][:, prompt_index], "v": cache["v"][:, prompt_index], "index": cache["index"]}
        hidden, _, _ = POLICY.apply(params, completions, positions[:, 5:], valid, cache)
        return jnp.sum(POLICY.head(params, hidden) * weights)

    def whole(params):
        tokens = np.concatenate([prompts[prompt_index], completions], axis=1)
        hidden, _, _ = POLICY.apply(params, tokens, positions, valid, None)
        return jnp.sum(POLICY.head(params, hidden[:, 5:]) * weights)

    (one, one_gradient), (two, two_gradient) = (jax.jit(jax.value_and_grad(f))(PARAMS) for f in (shared, whole))
    np.testing.assert_allclose(one, two, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(one_gradient), jax.tree.leaves(two_gradient), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5 * float(np.abs(b).max() + 1))


def test_remat_changes_nothing():
    tokens = np.arange(8, dtype=np.int32)[None]
    valid = np.ones((1, 8), bool)

    def gradient(policy):
        def loss(params):
            hidden, _, _ = policy.apply(params, tokens, tokens, valid, None)
            return jnp.sum(jnp.square(policy.head(params, hidden)))

        return jax.jit(jax.grad(loss))

    one, two = gradient(POLICY)(PARAMS), gradient(build(CONFIG, remat=True))(PARAMS)
    # Gradients reach 4, where a float32 step is 5e-7; newer compilers order the sums differently.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=5e-6), one, two)
    # The two programs differ: the backward pass of one runs the block again.
    assert "remat" in str(jax.make_jaxpr(gradient(build(CONFIG, remat=True)))(PARAMS))
    assert "remat" not in str(jax.make_jaxpr(gradient(POLICY))(PARAMS))


@pytest.mark.slow
def test_bfloat16_computes_in_bfloat16_and_scores_in_float32():
    policy = build(CONFIG, dtype="bfloat16")
    tokens = np.arange(8, dtype=np.int32)[None]
    valid = np.ones((1, 8), bool)

    @jax.jit
    def run(params):
        hidden, cache, _ = policy.apply(params, tokens, tokens, valid, policy.init_cache(1, 8))
        return hidden, cache, policy.head(params, hidden)

    hidden, cache, logits = run(PARAMS)
    assert (hidden.dtype, cache["k"].dtype, logits.dtype) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    exact = POLICY.head(PARAMS, POLICY.apply(PARAMS, tokens, tokens, valid, None)[0])
    assert 0 < np.abs(logits - exact).max() < 0.05
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(jnp.square(run(params)[2]))))(PARAMS)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradient))


def test_new_parameters_give_new_answers_and_the_function_keeps_no_state():
    tokens = np.arange(6, dtype=np.int32)[None]
    valid = np.ones((1, 6), bool)
    run = jax.jit(lambda params: POLICY.head(params, POLICY.apply(params, tokens, tokens, valid, None)[0]))
    before, scaled = run(PARAMS), jax.tree.map(lambda x: x * 1.5, PARAMS)
    after = run(scaled)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(run(PARAMS), before)
    layers = {"layers": jax.tree.map(lambda x: x.at[1].multiply(1.5), PARAMS["layers"])}
    for part in ({"embedding": PARAMS["embedding"] * 1.5}, layers):  # an update of a part counts as well
        assert np.abs(run(PARAMS | part) - before).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": np.zeros((1, 3), np.int32)}, "positions must have the shape of tokens"),
        ({"valid": np.ones((1, 5), bool)}, r"valid must be \[batch, slots\] = \(1, 4\)"),
        ({"valid": np.ones((1, 4), np.int32)}, "valid must be boolean"),
        ({"cache": POLICY.init_cache(1, 3)}, "4 new tokens do not fit a cache of 3 slots"),
        ({"cache": POLICY.init_cache(2, 4)}, "the cache has 2 rows for 1 rows"),
        ({"routes": np.zeros(1)}, "no experts"),
    ],
    ids=["positions", "valid-shape", "valid-dtype", "cache-length", "cache-rows", "routes"],
)
def test_wrong_shapes_are_refused_by_name(change, message):
    arguments = {
        "tokens": np.zeros((1, 4), np.int32),
        "positions": np.zeros((1, 4), np.int32),
        "valid": np.ones((1, 4), bool),
        "cache": None,
    } | change
    with pytest.raises(ValueError, match=message):
        POLICY.apply(PARAMS, **arguments)


def test_unknown_dtype_is_refused():
    with pytest.raises(ValueError, match="got 'float16'"):
        build(CONFIG, dtype="float16")
