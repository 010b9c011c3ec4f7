"""Every published size can be built abstractly, and has the number of parameters that its publisher's files hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import policies
from trustax.policies.presets import PRESETS

# Parameters in the published safetensors files (their headers' sum, as the model's page shows it).
PUBLISHED = {
    "SmolLM2-135M": 134_515_008,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-7B": 7_615_616_512,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B-Base": 1_720_574_976,
    "Qwen3-4B-Base": 4_022_468_096,
    "Qwen3-8B-Base": 8_190_735_360,
    "Qwen3-30B-A3B-Base": 30_532_122_624,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.1-8B": 8_030_261_248,
    "Mistral-7B-v0.1": 7_241_732_096,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b-text": 3_880_263_168,
}


def test_every_preset_has_a_published_number():
    assert set(PRESETS) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published(name):
    policy = policies.build(policies.preset(name), dtype="bfloat16")
    params = jax.eval_shape(policy.init, jax.random.key(0))
    assert sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params)) == PUBLISHED[name]


@pytest.mark.parametrize("name", ["Qwen3-4B-Base", "Qwen3-30B-A3B-Base", "gemma-3-4b-text"])
def test_a_full_size_model_runs_abstractly(name):
    policy = policies.build(policies.preset(name), dtype="bfloat16", remat=True)
    params = jax.eval_shape(policy.init, jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((2, 4096), jnp.int32)
    valid = jax.ShapeDtypeStruct((2, 4096), jnp.bool_)

    def logits(params, tokens, valid):
        return policy.head(params, policy.apply(params, tokens, tokens, valid, None)[0])

    assert jax.eval_shape(logits, params, tokens, valid).shape == (2, 4096, policy.config.vocab_size)


def test_an_unknown_preset_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no preset 'Qwen3-4B'; known: .*Qwen3-4B-Base"):
        policies.preset("Qwen3-4B")
