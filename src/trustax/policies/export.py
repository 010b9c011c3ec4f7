"""``save``: from parameters to a Hugging Face folder that ``transformers`` and vLLM open."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trustax.policies.config import ArchitectureConfig
from trustax.policies.hf_config_write import to_hf
from trustax.policies.hf_names import Tensor, tensors
from trustax.policies.safetensors_io import DTYPES, Tensors, read_headers, write_safetensors

# What stands beside weights and says how to use them. Taken over as it is.
CARRIED = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
           "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "generation_config.json",
           "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "USE_POLICY.md")  # fmt: skip
DTYPE_NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
SHARD_BYTES = 5_000_000_000


def save(
    folder: str | Path,
    config: ArchitectureConfig,
    params: Mapping[str, Any],
    *,
    source: str | Path | None = None,
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> list[str]:
    """Write ``params`` as ``config.json`` and ``*.safetensors``; one tensor of one layer is in memory at a time.

    Args:
        folder: Where to; must be absent or empty. It appears only once it is whole.
        config: The architecture.
        params: The parameter tree of ``policies.build(config)``.
        source: The folder that the policy came from: its ``config.json`` (where it is one of Hugging Face), tokenizer
            and generation files are carried along.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``; by default what each tensor had in ``source``, else
            float32.
        shard_bytes: The most that one file holds; more tensors make shards with an index.

    Returns:
        The names of the files, sorted.

    Raises:
        ValueError: the folder holds something, the dtype is unknown, or a value does not fit it.
    """
    folder, source = Path(folder), None if source is None else Path(source)
    if dtype is not None and dtype not in DTYPE_NAMES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPE_NAMES)}, got {dtype!r}")
    if shard_bytes < 1:
        raise ValueError(f"a shard must hold at least 1 byte, got {shard_bytes}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there already and not an empty folder; name another one")
    from_hf = source is not None and (source / "config.json").is_file()
    raw = json.loads((source / "config.json").read_text(encoding="utf-8")) if source and from_hf else to_hf(config)
    content = _content(config, params, read_headers(source).tensors if source and from_hf else {}, dtype)
    kinds = {np.dtype(kind).name for kind in content.dtypes.values()}
    if len(kinds) == 1:
        raw["torch_dtype" if "torch_dtype" in raw else "dtype"] = kinds.pop()  # the older name is kept where it is used
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        write_safetensors(temporary, content, shard_bytes=shard_bytes)
        (temporary / "config.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
        for name in CARRIED:
            if source is not None and (source / name).is_file():
                shutil.copyfile(source / name, temporary / name)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(path.name for path in folder.iterdir())


def _content(config: ArchitectureConfig, params: Mapping[str, Any], stored: Mapping, dtype: str | None) -> Tensors:
    """Every tensor of the folder under its name there, cut from its leaf when it is asked for."""
    places: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        name: (tensor, place) for tensor in tensors(config) for place, name in tensor.files(config, tensor.hf).items()
    }
    kept = DTYPES["F32"] if dtype is None else DTYPES[DTYPE_NAMES[dtype]]
    dtypes = {name: stored[name].dtype if dtype is None and name in stored else kept for name in places}

    def values(name: str) -> np.ndarray:
        tensor, place = places[name]
        leaf: Any = params
        for key in tensor.path:
            leaf = leaf[key]
        wide = np.asarray(leaf[place] if place else leaf)
        with np.errstate(over="ignore"):
            cast = (wide.T if tensor.transpose else wide).astype(dtypes[name])
        if np.any(np.isinf(cast)) and np.all(np.isfinite(wide)):
            raise ValueError(f"{name}: {np.abs(wide).max():g} does not fit {dtypes[name]}; save as bfloat16 or float32")
        return cast

    return Tensors({name: tensor.file_shape(config) for name, (tensor, _) in places.items()}, dtypes, values)
