"""SmolLM2, a real model: its logits and greedy continuations are those of transformers (torch, float32, CPU)."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import policies

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "policies"
FOLDER = ROOT / ".cache" / "smollm2"

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(not list(FOLDER.glob("*.gguf")), reason="SmolLM2 is not in .cache/smollm2"),
]


@pytest.fixture(scope="module")
def loaded():
    return policies.load(FOLDER)


@pytest.fixture(scope="module")
def golden():
    return np.load(GOLDEN / "smollm2.npz")


def left_padded(prompts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From right-padding with −1 to left-padding with 0, and where the tokens are."""
    tokens, valid = np.zeros_like(prompts), np.zeros(prompts.shape, bool)
    for row, prompt in enumerate(prompts):
        real = prompt[prompt >= 0]
        tokens[row, prompts.shape[1] - len(real) :] = real
        valid[row, prompts.shape[1] - len(real) :] = True
    return tokens, valid


def test_logits_equal_transformers(loaded, golden):
    policy = policies.build(loaded.config)
    rows = golden["prompts"][: golden["logit_prompt"].max() + 1]
    tokens, valid = left_padded(rows)
    positions = np.maximum(np.cumsum(valid, axis=1) - 1, 0).astype(np.int32)
    offset = rows.shape[1] - valid.sum(axis=1)
    prompt, slot = golden["logit_prompt"], golden["logit_position"] + offset[golden["logit_prompt"]]

    @jax.jit
    def run(params):
        hidden, _, _ = policy.apply(params, tokens, positions, valid, None)
        return policy.head(params, hidden[prompt, slot])

    logits = np.asarray(run(loaded.params))
    stride = -(-loaded.config.vocab_size // golden["strided_logits"].shape[1])
    np.testing.assert_allclose(logits[:, ::stride], golden["strided_logits"], atol=5e-4, rtol=0)
    top = np.take_along_axis(logits, golden["top_ids"], axis=1)
    np.testing.assert_allclose(top, golden["top_logits"], atol=5e-4, rtol=0)
    print(f"largest difference of logits: {np.abs(top - golden['top_logits']).max():.1e}")


def test_greedy_continuations_equal_transformers(loaded, golden):
    policy = policies.build(loaded.config)
    tokens, prompt_valid = left_padded(golden["prompts"])
    steps = golden["greedy"].shape[1]
    valid = np.concatenate([prompt_valid, np.ones((len(tokens), steps), bool)], axis=1)
    positions = np.maximum(np.cumsum(valid, axis=1) - 1, 0).astype(np.int32)
    start = tokens.shape[1]

    @jax.jit
    def generate(params):
        state = policy.init_cache(len(tokens), start + steps)
        hidden, state, _ = policy.apply(params, tokens, positions[:, :start], valid, state)
        first = jnp.argmax(policy.head(params, hidden[:, -1]), axis=-1).astype(jnp.int32)

        def decode(carry, position):
            state, token = carry
            hidden, state, _ = policy.apply(params, token[:, None], position[:, None], valid, state)
            return (state, jnp.argmax(policy.head(params, hidden[:, -1]), axis=-1).astype(jnp.int32)), token

        return jax.lax.scan(decode, (state, first), jnp.asarray(positions[:, start:].T))[1].T

    got = np.asarray(generate(loaded.params))
    for row, expected in enumerate(golden["greedy"]):
        expected = expected[expected >= 0]
        assert got[row, : len(expected)].tolist() == expected.tolist(), row


def test_unpacked_tokenizer_gives_the_ids_of_transformers(loaded, golden):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(loaded.tokenizer_folder / "tokenizer.json"))
    policies.check_tokenizer_fits(loaded.config, tokenizer.get_vocab_size())
    settings = json.loads((loaded.tokenizer_folder / "tokenizer_config.json").read_text())
    assert (settings["eos_token"], settings["add_bos_token"]) == ("<|im_end|>", False)
    texts = json.loads((GOLDEN / "smollm2_prompts.json").read_text())
    assert len(texts) == 20
    for text, ids in zip(texts, golden["prompts"], strict=True):
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids[ids >= 0].tolist()
