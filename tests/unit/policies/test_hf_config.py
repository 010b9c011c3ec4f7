"""config.json: both layouts of rotary settings, every family's defaults, and refusals that name the field."""

import json

import pytest

from trustax.policies import RopeConfig
from trustax.policies.hf_config import from_hf, read_hf_config

LLAMA = {
    "model_type": "llama",
    "vocab_size": 48,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def test_sizes_and_defaults():
    config = from_hf(LLAMA)
    assert (config.hidden_size, config.mlp_size, config.num_layers, config.head_dim) == (64, 96, 3, 16)
    assert (config.num_heads, config.num_kv_heads, config.context_length) == (4, 2, 128)
    assert config.rope == RopeConfig(theta=10_000.0)
    assert config.tie_embeddings is False  # transformers' default for this family
    assert from_hf(LLAMA | {"head_dim": 32}).head_dim == 32
    every_head = {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"}
    assert from_hf(every_head).num_kv_heads == 4


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_old_and_new_layout_agree(key):
    old = from_hf(LLAMA | {"rope_theta": 5e5, "rope_scaling": {key: "llama3", **LLAMA3}})
    new = from_hf(LLAMA | {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}})
    assert old == new
    assert old.rope == RopeConfig(5e5, "llama3", 8.0, 1.0, 4.0, 64)


def test_qwen_windows_begin_at_their_first_layer():
    qwen = LLAMA | {"model_type": "qwen2", "sliding_window": 8, "max_window_layers": 2}
    assert from_hf(qwen | {"use_sliding_window": False}).layer_windows == ()
    assert from_hf(qwen | {"use_sliding_window": True}).layer_windows == (None, None, 8)
    assert from_hf(qwen).qkv_bias


def test_gemma_layer_patterns_without_layer_types():
    gemma = {name: value for name, value in LLAMA.items() if name != "hidden_act"} | {"sliding_window": 8}
    two = from_hf(gemma | {"model_type": "gemma2"})
    assert two.layer_windows == (8, None, 8)
    assert (two.attention_soft_cap, two.logit_soft_cap, two.attention_scale) == (50.0, 30.0, 256**-0.5)
    three = from_hf(
        gemma | {"model_type": "gemma3_text", "sliding_window_pattern": 3, "rope_local_base_freq": 5e3,
                 "rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    )  # fmt: skip
    assert three.layer_windows == (8, 8, None)
    assert three.rope == RopeConfig(1e6, "linear", 8.0)
    assert three.local_rope == RopeConfig(5e3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt_neox"}, "model_type 'gpt_neox' is not implemented; known: gemma2"),
        ({"rotary_dim": 4}, "unknown field rotary_dim = 4"),
        ({"quantization_config": {}}, "unknown field quantization_config"),
        ({"use_sliding_window": True}, "unknown field use_sliding_window"),  # not a field of this family
        ({"attention_bias": True}, "attention_bias = True is not implemented, only False"),
        ({"attention_dropout": 0.1}, "attention_dropout = 0.1 is not implemented"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu' is not implemented; known: gelu_pytorch_tanh, silu"),
        ({"hidden_size": "64"}, "hidden_size must be a positive integer, got '64'"),
        ({"hidden_size": None}, "hidden_size must be a positive integer, got None"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive integer, got True"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be a number above 0"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false, got 'yes'"),
        ({"num_key_value_heads": 3}, r"num_heads \(4\) must be a multiple of num_kv_heads \(3\)"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn' is not implemented; known: default"),
        ({"rope_scaling": {"type": "linear", "rope_type": "llama3"}}, "two types"),
        ({"rope_scaling": {"type": "linear"}}, r"missing \['factor'\]"),
        ({"rope_scaling": {"type": "linear", "factor": -1.0}}, r"not above 0 \['factor'\]"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 1}}, r"unknown \['mscale'\]"),
        ({"rope_scaling": 4.0}, "rope settings must be an object, got 4.0"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_type": "default"}}, "both given"),
    ],
)
def test_refusals_name_the_field(change, message):
    with pytest.raises(ValueError, match=message):
        from_hf(LLAMA | change)


def test_all_problems_are_listed_at_once():
    broken = {name: value for name, value in LLAMA.items() if name != "vocab_size"} | {"alibi": True, "mlp_bias": True}
    with pytest.raises(ValueError, match=r"(?s)alibi.*mlp_bias.*missing field vocab_size"):
        from_hf(broken)


@pytest.mark.parametrize("text", ["", "{", "[]", '"llama"', "\xff"], ids=["empty", "cut", "list", "string", "latin-1"])
def test_malformed_files_are_refused_with_their_path(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"config\.json"):
        read_hf_config(path)


def test_a_file_is_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert read_hf_config(tmp_path / "config.json") == from_hf(LLAMA)


MOE = LLAMA | {"model_type": "qwen3_moe", "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])
def test_experts_under_either_name(name):
    config = from_hf(MOE | {name: 6})
    assert (config.num_experts, config.experts_per_token, config.mlp_size, config.normalize_routes) == (6, 2, 24, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mlp_only_layers": [0]}, r"mlp_only_layers = \[0\] is not implemented"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step = 2 is not implemented, only 1"),
        ({"use_sliding_window": True}, "use_sliding_window = True is not implemented"),
        ({"shared_expert_intermediate_size": 8}, "unknown field shared_expert_intermediate_size"),
        ({"num_experts": 0}, "num_experts must be a positive integer, got 0"),
        ({"num_experts": 1}, r"experts_per_token must be 1 to num_experts \(1\)"),
        ({"num_experts": 4, "num_local_experts": 6}, "num_experts = 4 and num_local_experts = 6 disagree"),
    ],
)
def test_refusals_of_a_mixture(change, message):
    with pytest.raises(ValueError, match=message):
        from_hf(MOE | change)
