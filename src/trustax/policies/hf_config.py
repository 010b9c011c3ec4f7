"""Read Hugging Face's ``config.json``: one table of families, and a refusal of every field that is not implemented.

A family is a row of ``FAMILIES``: the values its fields have where the file leaves them out (the defaults of
``transformers``), the switches it sets in ``ArchitectureConfig``, and the fields that only it has.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trustax.policies.config import Activation, ArchitectureConfig, RopeConfig

Json = dict[str, Any]

# Fields with no influence on the network.
IGNORED = frozenset(
    ("architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "use_cache",
     "initializer_range", "pretraining_tp", "bos_token_id", "eos_token_id", "pad_token_id", "cache_implementation")
)  # fmt: skip
# Fields that are implemented for one value only; a field with another value is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "attention_dropout": (0, 0.0),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1, 1.0),
    "use_bidirectional_attention": (None, False),
}
SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "mlp_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "max_position_embeddings": "context_length",
}
EXPERTS = {
    "moe_intermediate_size": "mlp_size",
    "num_experts": "num_experts",
    "num_experts_per_tok": "experts_per_token",
    "norm_topk_prob": "normalize_routes",
}
ROPE = ("rope_theta", "rope_scaling", "rope_parameters")
COMMON = (*SIZES, *ROPE, "num_key_value_heads", "head_dim", "rms_norm_eps", "tie_word_embeddings")
ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
SLIDING, FULL = "sliding_attention", "full_attention"
REQUIRED = object()


@dataclasses.dataclass(frozen=True)
class Family:
    """How a ``model_type`` maps to the decoder's switches; ``architecture`` is its class in ``transformers``.

    ``fields`` are those beside ``COMMON``; their value is the default, ``REQUIRED`` where there is none. ``windows``
    gives one window per layer; ``None`` for a family without them. ``ignored`` are its own fields without influence,
    ``neutral`` those that are implemented for one value only. ``experts``: its MLP is a mixture of experts.
    """

    architecture: str
    activation_field: str = "hidden_act"
    switches: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    neutral: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    experts: bool = False
    tied: bool = False
    head_dim: int | None = None
    theta: float = 10_000.0
    local_theta: float | None = None
    windows: Callable[[Json], tuple[int | None, ...]] | None = None


def _every_layer(raw: Json) -> tuple[int | None, ...]:
    return (raw["sliding_window"],) * raw["num_hidden_layers"]


def _qwen_layers(raw: Json) -> tuple[int | None, ...]:
    if not raw["use_sliding_window"]:
        return ()
    first = raw["max_window_layers"]
    return _by_type(raw, [SLIDING if i >= first else FULL for i in range(raw["num_hidden_layers"])])


def _gemma2_layers(raw: Json) -> tuple[int | None, ...]:
    return _by_type(raw, [FULL if i % 2 else SLIDING for i in range(raw["num_hidden_layers"])])


def _gemma3_layers(raw: Json) -> tuple[int | None, ...]:
    key = "sliding_window_pattern" if raw["_sliding_window_pattern"] is None else "_sliding_window_pattern"
    period = raw[key]
    return _by_type(raw, [SLIDING if (i + 1) % period else FULL for i in range(raw["num_hidden_layers"])])


def _by_type(raw: Json, default: list[str]) -> tuple[int | None, ...]:
    types = default if raw["layer_types"] is None else raw["layer_types"]
    unknown = sorted(set(types) - {SLIDING, FULL})
    if unknown:
        raise ValueError(f"layer_types {unknown} are not implemented; known: {SLIDING}, {FULL}")
    return tuple(raw["sliding_window"] if kind == SLIDING else None for kind in types)


_QWEN_WINDOWS = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 28, "layer_types": None}
_GEMMA_SWITCHES = {"norm_plus_one": True, "post_norms": True, "scale_embeddings": True}
_GEMMA_FIELDS = {"query_pre_attn_scalar": 256, "sliding_window": 4096, "layer_types": None}

FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaForCausalLM"),
    "mistral": Family("MistralForCausalLM", fields={"sliding_window": 4096}, windows=_every_layer),
    "qwen2": Family("Qwen2ForCausalLM", switches={"qkv_bias": True}, fields=_QWEN_WINDOWS, windows=_qwen_layers),
    "qwen3": Family(
        "Qwen3ForCausalLM", switches={"qk_norm": True}, fields=_QWEN_WINDOWS, windows=_qwen_layers, head_dim=128
    ),
    "qwen3_moe": Family(
        "Qwen3MoeForCausalLM",
        switches={"qk_norm": True},
        fields={
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "norm_topk_prob": False,
        },
        ignored=("sliding_window", "max_window_layers", "router_aux_loss_coef"),
        neutral={
            "use_sliding_window": (False,),
            "decoder_sparse_step": (1,),
            "mlp_only_layers": ([], None),
            "output_router_logits": (False,),
        },
        experts=True,
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        activation_field="hidden_activation",
        switches=_GEMMA_SWITCHES,
        fields=_GEMMA_FIELDS | {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
        ignored=("hidden_act",),
        tied=True,
        head_dim=256,
        windows=_gemma2_layers,
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM",
        activation_field="hidden_activation",
        switches=_GEMMA_SWITCHES | {"qk_norm": True},
        fields=_GEMMA_FIELDS
        | {
            "final_logit_softcapping": None,
            "attn_logit_softcapping": None,
            "_sliding_window_pattern": None,
            "sliding_window_pattern": 6,
            "rope_local_base_freq": None,
        },
        ignored=("hidden_act",),
        tied=True,
        head_dim=256,
        theta=1_000_000.0,
        local_theta=10_000.0,
        windows=_gemma3_layers,
    ),
}
DEFAULT_ACTIVATION = {"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"}


def read_hf_config(path: Path) -> ArchitectureConfig:
    """The architecture that a ``config.json`` describes.

    Raises:
        ValueError: naming every field that is missing, malformed or not implemented.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(raw).__name__}")
    try:
        return from_hf(raw)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def from_hf(raw: Json) -> ArchitectureConfig:
    """The architecture that the fields of a ``config.json`` describe."""
    model_type = raw.get("model_type")
    if model_type not in FAMILIES:
        raise ValueError(f"model_type {model_type!r} is not implemented; known: {', '.join(sorted(FAMILIES))}")
    family = FAMILIES[model_type]
    raw = _renamed(raw)
    defaults = {
        "num_key_value_heads": None,
        "head_dim": family.head_dim,
        "tie_word_embeddings": family.tied,
        family.activation_field: DEFAULT_ACTIVATION[family.activation_field],
        **family.fields,
    }
    problems = _field_problems(raw, family, defaults)
    if problems:
        raise ValueError(f"this {model_type} config is not understood:\n  " + "\n  ".join(problems))
    raw = defaults | raw
    sizes = {ours: raw[theirs] for theirs, ours in SIZES.items()}
    if family.experts:
        sizes |= {ours: raw[theirs] for theirs, ours in EXPERTS.items()}
    heads, kv_heads, head_dim = raw["num_attention_heads"], raw["num_key_value_heads"], raw["head_dim"]
    rope, local_rope = _ropes(raw, family)
    windows = () if family.windows is None else family.windows(raw)
    return ArchitectureConfig(
        num_kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=raw["hidden_size"] // heads if head_dim is None else head_dim,
        rope=rope,
        local_rope=local_rope,
        norm_eps=float(raw["rms_norm_eps"]),
        tie_embeddings=raw["tie_word_embeddings"],
        activation=ACTIVATIONS[raw[family.activation_field]],
        attention_scale=raw["query_pre_attn_scalar"] ** -0.5 if "query_pre_attn_scalar" in family.fields else None,
        attention_soft_cap=raw["attn_logit_softcapping"] if "attn_logit_softcapping" in family.fields else None,
        logit_soft_cap=raw["final_logit_softcapping"] if "final_logit_softcapping" in family.fields else None,
        layer_windows=windows if any(window is not None for window in windows) else (),
        **family.switches,
        **sizes,
    )


def _renamed(raw: Json) -> Json:
    """The config with one name for the number of experts, for which there are two."""
    if "num_local_experts" not in raw:
        return raw
    if raw.get("num_experts", raw["num_local_experts"]) != raw["num_local_experts"]:
        raise ValueError(
            f"num_experts = {raw['num_experts']} and num_local_experts = {raw['num_local_experts']} disagree; keep one"
        )
    return {name: value for name, value in raw.items() if name != "num_local_experts"} | {
        "num_experts": raw["num_local_experts"]
    }


def _field_problems(raw: Json, family: Family, defaults: Json) -> list[str]:
    """Every field that is unknown, that has a value which is not implemented, that is missing, or malformed."""
    neutral = {**NEUTRAL, **family.neutral}
    known = {*COMMON, *defaults, *neutral, *IGNORED, *family.ignored}
    problems = [f"unknown field {name} = {value!r}" for name, value in raw.items() if name not in known]
    problems += [
        f"{name} = {raw[name]!r} is not implemented, only {allowed[0]!r}"
        for name, allowed in neutral.items()
        if name in raw and raw[name] not in allowed
    ]
    required = [*SIZES, "rms_norm_eps"]
    problems += [f"missing field {name}" for name in required if name not in raw]
    whole = [*SIZES, "num_key_value_heads", "head_dim", "sliding_window", "max_window_layers"]
    whole += ["sliding_window_pattern", "_sliding_window_pattern"]
    whole += ["num_experts", "num_experts_per_tok", "moe_intermediate_size"]
    optional = {name for name, value in defaults.items() if value is None} | {"head_dim", "sliding_window"}
    problems += [
        f"{name} must be a positive integer, got {raw[name]!r}"
        for name in whole
        if name in raw
        and name not in family.ignored
        and not (_is_positive_int(raw[name]) or (raw[name] is None and name in optional))
    ]
    problems += [
        f"{name} must be a number above 0, got {raw[name]!r}"
        for name in ("rms_norm_eps", "query_pre_attn_scalar")
        if name in raw and not _is_positive(raw[name])
    ]
    problems += [
        f"{name} must be true or false, got {raw[name]!r}"
        for name in ("tie_word_embeddings", "use_sliding_window", "norm_topk_prob")
        if name in raw and not isinstance(raw[name], bool)
    ]
    activation = raw.get(family.activation_field, defaults[family.activation_field])
    if activation not in ACTIVATIONS:
        problems.append(
            f"{family.activation_field} = {activation!r} is not implemented; known: {', '.join(sorted(ACTIVATIONS))}"
        )
    return problems


def _ropes(raw: Json, family: Family) -> tuple[RopeConfig, RopeConfig | None]:
    """The rotary settings, and those of the layers with a window where the family has its own for them."""
    for name in ("rope_parameters", "rope_scaling"):
        if not isinstance(raw.get(name), dict | None):
            raise ValueError(f"rope settings must be an object, got {raw[name]!r}")
    new = raw.get("rope_parameters")
    if new is None:
        theta = raw.get("rope_theta", family.theta)
        rope = _rope({"rope_theta": theta} | ({} if raw.get("rope_scaling") is None else raw["rope_scaling"]))
        if family.local_theta is None:
            return rope, None
        local = raw["rope_local_base_freq"]
        return rope, RopeConfig(theta=family.local_theta if local is None else local)
    old = [name for name in ("rope_theta", "rope_scaling", "rope_local_base_freq") if raw.get(name) is not None]
    if old:
        raise ValueError(f"rope_parameters and {old} are both given; keep one of the two layouts")
    if family.local_theta is None:
        return _rope({"rope_theta": family.theta} | new), None
    if set(new) != {FULL, SLIDING}:
        raise ValueError(f"rope_parameters must hold {FULL} and {SLIDING}, got {sorted(new)}")
    return (
        _rope({"rope_theta": family.theta} | new[FULL]),
        _rope({"rope_theta": family.local_theta} | new[SLIDING]),
    )


ROPE_FIELDS = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_frequency_factor",
        "high_freq_factor": "high_frequency_factor",
        "original_max_position_embeddings": "original_context_length",
    },
}


def _rope(raw: Json) -> RopeConfig:
    """Rotary settings from one flat object of either layout."""
    kinds = {raw[name] for name in ("rope_type", "type") if name in raw}
    if len(kinds) > 1:
        raise ValueError(f"rope settings name two types, {sorted(kinds)}")
    kind = kinds.pop() if kinds else "default"
    if kind not in ROPE_FIELDS:
        raise ValueError(f"rope type {kind!r} is not implemented; known: {', '.join(ROPE_FIELDS)}")
    names = ROPE_FIELDS[kind]
    missing = [name for name in names if name not in raw]
    # ``original_max_position_embeddings`` and a neutral partial factor may stand beside any type.
    unknown = set(raw) - {"rope_theta", "rope_type", "type", "original_max_position_embeddings", *names}
    if raw.get("partial_rotary_factor") == 1.0:
        unknown.discard("partial_rotary_factor")
    malformed = [name for name in ("rope_theta", *names) if name in raw and not _is_positive(raw[name])]
    if missing or unknown or malformed:
        raise ValueError(
            f"rope settings of type {kind!r}: missing {missing}, unknown {sorted(unknown)}, not above 0 {malformed}"
        )
    settings = {ours: raw[theirs] for theirs, ours in names.items()}
    return RopeConfig(theta=float(raw["rope_theta"]), scaling="none" if kind == "default" else kind, **settings)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_positive_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
