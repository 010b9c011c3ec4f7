"""Write Hugging Face's ``config.json`` for an architecture: the inverse of the reader, checked by the reader."""

import dataclasses
from typing import Any

from trustax.policies.config import ArchitectureConfig, RopeConfig
from trustax.policies.hf_config import (
    ACTIVATIONS,
    EXPERTS,
    FAMILIES,
    FULL,
    ROPE_FIELDS,
    SIZES,
    SLIDING,
    Family,
    Json,
    from_hf,
)


def to_hf(config: ArchitectureConfig) -> Json:
    """The fields of a ``config.json`` that describes ``config``; rotary settings in the layout that all versions read.

    Raises:
        ValueError: no family has this combination of switches.
    """
    whole = dataclasses.replace(config, vocab_size=config.rows, embedding_rows=None)  # files don't tell padding apart
    for model_type, family in FAMILIES.items():
        raw = _fields(model_type, family, whole)
        try:
            if from_hf(raw) == whole:
                return raw
        except ValueError:  # a value that this family does not take: the next one may
            continue
    raise ValueError(
        f"no model_type of Hugging Face has this combination of switches, so that it cannot leave as such a folder: "
        f"{config}; known: {', '.join(FAMILIES)}"
    )


def _fields(model_type: str, family: Family, config: ArchitectureConfig) -> Json:
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items() if theirs != "swish"}
    raw: Json = {"architectures": [family.architecture], "model_type": model_type}
    raw |= {theirs: getattr(config, ours) for theirs, ours in SIZES.items()}
    raw |= {
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        family.activation_field: names[config.activation],
        "rope_theta": config.rope.theta,
        "rope_scaling": _scaling(config.rope),
    }
    if config.local_rope is not None:
        raw["rope_local_base_freq"] = config.local_rope.theta
    windows = {window for window in config.layer_windows if window is not None}
    own: dict[str, Any] = {
        "sliding_window": windows.pop() if len(windows) == 1 else None,
        "use_sliding_window": bool(config.layer_windows),
        "layer_types": [FULL if window is None else SLIDING for window in config.layer_windows],
        "final_logit_softcapping": config.logit_soft_cap,
        "attn_logit_softcapping": config.attention_soft_cap,
    }
    own |= {theirs: getattr(config, ours) for theirs, ours in EXPERTS.items()}
    if not config.layer_windows:
        own["layer_types"] = [FULL] * config.num_layers
    if config.attention_scale is not None:
        own["query_pre_attn_scalar"] = _whole(config.attention_scale**-2)
    return raw | {name: value for name, value in own.items() if name in family.fields}


def _scaling(rope: RopeConfig) -> Json | None:
    if rope.scaling == "none":
        return None
    fields = {theirs: getattr(rope, ours) for theirs, ours in ROPE_FIELDS[rope.scaling].items()}
    return {"rope_type": rope.scaling} | fields


def _whole(value: float) -> float:
    """Undo the rounding of a square root."""
    return round(value) if abs(value - round(value)) < 1e-6 else value
