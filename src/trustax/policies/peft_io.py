"""Adapters in PEFT's layout: ``adapter_config.json`` and ``adapter_model.safetensors``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trustax.policies.assemble import assemble_tensors, check_names
from trustax.policies.config import ArchitectureConfig, LoraConfig
from trustax.policies.export import tensors_to_write, writing
from trustax.policies.lora import adapter_tensors
from trustax.policies.safetensors_io import hf_name, read_file, write_safetensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Fields without influence on what an adapter computes.
IGNORED = frozenset(
    ("base_model_name_or_path", "task_type", "inference_mode", "revision", "lora_dropout", "init_lora_weights",
     "auto_mapping", "peft_version", "lora_ga_config", "eva_config", "corda_config", "loftq_config",
     "qalora_group_size", "megatron_core", "runtime_config")
)  # fmt: skip
NEUTRAL: dict[str, tuple[Any, ...]] = {"peft_type": ("LORA",), "bias": ("none",)}
OFF = (None, False, [], {}, "")


def save_adapter(
    folder: str | Path, config: ArchitectureConfig, lora: LoraConfig, params: Mapping[str, Any], *, base: str = ""
) -> list[str]:
    """Write the adapters of ``params``; ``base`` names the model that they belong to. Returns the files' names.

    Raises:
        ValueError: there are no adapters, or the folder holds something.
    """
    if not lora.rank:
        raise ValueError("this policy has no adapters (lora.rank is 0); save the whole policy")
    raw = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "target_modules": sorted(lora.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    content = tensors_to_write(config, adapter_tensors(config, lora), params, lambda name: np.dtype(np.float32))
    with writing(folder) as temporary:
        write_safetensors(temporary, content, shard_bytes=2**63, single=WEIGHTS)
        (temporary / CONFIG).write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    return sorted(path.name for path in Path(folder).iterdir())


def load_adapter(folder: str | Path, config: ArchitectureConfig, lora: LoraConfig) -> dict[str, Any]:
    """The adapters in ``folder`` as a tree, if they are such as ``lora`` describes.

    Raises:
        ValueError: everything that is unknown, missing, mis-shaped, or of another rank, alpha or targets.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{folder}: no {CONFIG} found; expected a folder that PEFT wrote")
    try:
        raw = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder / CONFIG}: cannot be read as JSON ({error})") from error
    rows = adapter_tensors(config, lora)
    contents = read_file(folder, WEIGHTS)
    found, _ = check_names(config, contents.tensors, hf_name, rows)
    problems = _config_problems(raw, lora) + contents.all_problems(found)
    if problems:
        raise ValueError(
            f"{folder}: these adapters do not fit ({len(problems)} problem{'s' if len(problems) > 1 else ''}):\n  "
            + "\n  ".join(problems)
        )
    return assemble_tensors(config, rows, contents.tensors, hf_name)


def _config_problems(raw: Any, lora: LoraConfig) -> list[str]:
    if not isinstance(raw, dict):
        return [f"{CONFIG} must hold a JSON object, got {type(raw).__name__}"]
    targets = raw.get("target_modules")
    known = isinstance(targets, list) and all(isinstance(target, str) for target in targets)
    wanted = {"r": lora.rank, "lora_alpha": lora.alpha, "target_modules": sorted(lora.targets)}
    given = {**raw, "target_modules": sorted(targets) if known and targets is not None else targets}
    names = {"r": "rank", "lora_alpha": "alpha", "target_modules": "targets"}
    problems = [
        f"{name} = {given.get(name)!r}, but policy.lora.{names[name]} is {value!r}"
        for name, value in wanted.items()
        if given.get(name) != value
    ]
    problems += [
        f"{name} = {raw[name]!r} is not implemented, only {allowed[0]!r}"
        for name, allowed in NEUTRAL.items()
        if name in raw and raw[name] not in allowed
    ]
    return problems + [
        f"{name} = {value!r} is not implemented"
        for name, value in raw.items()
        if name not in wanted and name not in NEUTRAL and name not in IGNORED and value not in OFF
    ]
