"""``save``: from parameters to a Hugging Face folder that ``transformers`` and vLLM open."""

import contextlib
import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

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
    from_hf = source is not None and (source / "config.json").is_file()
    raw = json.loads((source / "config.json").read_text(encoding="utf-8")) if source and from_hf else to_hf(config)
    stored = read_headers(source).tensors if source and from_hf else {}
    kept = DTYPES["F32"] if dtype is None else DTYPES[DTYPE_NAMES[dtype]]

    def dtype_of(name: str) -> np.dtype:
        return stored[name].dtype if dtype is None and name in stored else kept

    content = tensors_to_write(config, tensors(config), params, dtype_of)
    kinds = {np.dtype(kind).name for kind in content.dtypes.values()}
    if len(kinds) == 1:
        raw["torch_dtype" if "torch_dtype" in raw else "dtype"] = kinds.pop()  # the older name is kept where it is used
    with writing(folder) as temporary:
        write_safetensors(temporary, content, shard_bytes=shard_bytes)
        (temporary / "config.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
        for name in CARRIED:
            if source is not None and (source / name).is_file():
                shutil.copyfile(source / name, temporary / name)
    return sorted(path.name for path in folder.iterdir())


@contextlib.contextmanager
def writing(folder: str | Path) -> Iterator[Path]:
    """A temporary folder beside ``folder``, which takes its name once everything is in it."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there already and not an empty folder; name another one")
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def tensors_to_write(
    config: ArchitectureConfig,
    rows: Sequence[Tensor],
    params: Mapping[str, Any],
    dtype_of: Callable[[str], np.dtype],
) -> Tensors:
    """The tensors that ``rows`` describe under their names in files, each cut from its leaf when it is asked for."""
    places: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        name: (tensor, place) for tensor in rows for place, name in tensor.files(config, tensor.hf).items()
    }
    dtypes = {name: dtype_of(name) for name in places}

    def values(name: str) -> np.ndarray:
        tensor, place = places[name]
        leaf = functools.reduce(lambda node, key: node[key], tensor.path, cast(Any, params))
        wide = np.asarray(leaf[place] if place else leaf)
        with np.errstate(over="ignore"):
            narrow = (wide.T if tensor.transpose else wide).astype(dtypes[name])
        if np.any(np.isinf(narrow)) and np.all(np.isfinite(wide)):
            raise ValueError(f"{name}: {np.abs(wide).max():g} does not fit {dtypes[name]}; save as bfloat16 or float32")
        return narrow

    return Tensors({name: tensor.file_shape(config) for name, (tensor, _) in places.items()}, dtypes, values)
