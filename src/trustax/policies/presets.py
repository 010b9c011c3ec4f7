"""Published models as data: the fields of their ``config.json`` that decide the network.

``policies.build(preset(name))`` with ``jax.eval_shape`` builds any of them on a laptop; the tests compare the number of
parameters with the published one. Weights are loaded from a folder, not from here.
"""

from typing import Any

from trustax.policies.config import ArchitectureConfig
from trustax.policies.hf_config import from_hf

Json = dict[str, Any]


def _model(model_type: str, layers: int, width: int, mlp: int, heads: tuple[int, int, int], **fields: Any) -> Json:
    """Fields that all have; ``heads`` are those of queries, of keys and values, and the channels of each."""
    queries, keys, channels = heads
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_attention_heads": queries,
        "num_key_value_heads": keys,
        "head_dim": channels,
        "rms_norm_eps": 1e-6,
        **fields,
    }


def _qwen2(layers: int, width: int, mlp: int, heads: tuple[int, int, int], **fields: Any) -> Json:
    return _model("qwen2", layers, width, mlp, heads) | {"vocab_size": 151936, "rope_theta": 1e6} | fields


def _qwen3(layers: int, width: int, mlp: int, heads: tuple[int, int, int], **fields: Any) -> Json:
    common = {"model_type": "qwen3", "vocab_size": 151936, "rope_theta": 1e6, "max_position_embeddings": 32768}
    return _model("qwen3", layers, width, mlp, heads) | common | fields


def _llama3(layers: int, width: int, mlp: int, heads: tuple[int, int, int], factor: float, **fields: Any) -> Json:
    scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}  # fmt: skip
    common = {"vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5}
    rope = {"rope_theta": 5e5, "rope_scaling": scaling}
    return _model("llama", layers, width, mlp, heads) | common | rope | fields


def _gemma2(layers: int, width: int, mlp: int, heads: tuple[int, int, int], scalar: int) -> Json:
    own = {"vocab_size": 256000, "max_position_embeddings": 8192, "sliding_window": 4096}
    return _model("gemma2", layers, width, mlp, heads, query_pre_attn_scalar=scalar, **own)


def _gemma3(layers: int, width: int, mlp: int, heads: tuple[int, int, int], window: int, **fields: Any) -> Json:
    own = {"max_position_embeddings": 32768, "sliding_window": window, "vocab_size": 262144, "rope_theta": 1e6,
           "rope_local_base_freq": 1e4, "sliding_window_pattern": 6, "query_pre_attn_scalar": 256}  # fmt: skip
    return _model("gemma3_text", layers, width, mlp, heads) | own | fields


_LINEAR8 = {"rope_type": "linear", "factor": 8.0}

PRESETS: dict[str, Json] = {
    "SmolLM2-135M": _model(
        "llama", 30, 576, 1536, (9, 3, 64), vocab_size=49152, max_position_embeddings=8192, rope_theta=1e5,
        tie_word_embeddings=True,
    ) | {"rms_norm_eps": 1e-5},
    "Qwen2.5-0.5B": _qwen2(
        24, 896, 4864, (14, 2, 64), max_position_embeddings=32768, tie_word_embeddings=True
    ),
    "Qwen2.5-1.5B": _qwen2(28, 1536, 8960, (12, 2, 128), max_position_embeddings=131072, tie_word_embeddings=True),
    "Qwen2.5-7B": _qwen2(28, 3584, 18944, (28, 4, 128), max_position_embeddings=131072, vocab_size=152064),
    "DeepSeek-R1-Distill-Qwen-1.5B": _qwen2(
        28, 1536, 8960, (12, 2, 128), max_position_embeddings=131072, rope_theta=1e4
    ),
    "Qwen3-0.6B": _qwen3(28, 1024, 3072, (16, 8, 128), tie_word_embeddings=True, max_position_embeddings=40960),
    "Qwen3-1.7B-Base": _qwen3(28, 2048, 6144, (16, 8, 128), tie_word_embeddings=True),
    "Qwen3-4B-Base": _qwen3(36, 2560, 9728, (32, 8, 128), tie_word_embeddings=True),
    "Qwen3-8B-Base": _qwen3(36, 4096, 12288, (32, 8, 128)),
    "Qwen3-30B-A3B-Base": _qwen3(
        48, 2048, 6144, (32, 4, 128), model_type="qwen3_moe", num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=768, norm_topk_prob=True,
    ),
    "Llama-3.2-1B": _llama3(16, 2048, 8192, (32, 8, 64), 32.0, tie_word_embeddings=True),
    "Llama-3.2-3B": _llama3(28, 3072, 8192, (24, 8, 128), 32.0, tie_word_embeddings=True),
    "Llama-3.1-8B": _llama3(32, 4096, 14336, (32, 8, 128), 8.0),
    "Mistral-7B-v0.1": _model(
        "mistral", 32, 4096, 14336, (32, 8, 128), vocab_size=32000, max_position_embeddings=32768, sliding_window=4096
    ) | {"rms_norm_eps": 1e-5},
    "gemma-2-2b": _gemma2(26, 2304, 9216, (8, 4, 256), 256),
    "gemma-2-9b": _gemma2(42, 3584, 14336, (16, 8, 256), 256),
    "gemma-3-1b": _gemma3(26, 1152, 6912, (4, 1, 256), 512),
    "gemma-3-4b-text": _gemma3(
        34, 2560, 10240, (8, 4, 256), 1024, vocab_size=262208, max_position_embeddings=131072, rope_scaling=_LINEAR8
    ),
}  # fmt: skip


def preset(name: str) -> ArchitectureConfig:
    """The architecture of a published model.

    Raises:
        ValueError: there is no preset of this name.
    """
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}; known: {', '.join(PRESETS)}")
    return from_hf(PRESETS[name])
