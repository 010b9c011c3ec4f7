"""Read safetensors, single or sharded: headers first, then one tensor at a time. Never pickle."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from trustax.policies.assemble import Stored
from trustax.policies.hf_names import Tensor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": jnp.bfloat16}


def hf_name(tensor: Tensor) -> str:
    """The tensor's name in a Hugging Face checkpoint."""
    return tensor.hf


def read_safetensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of the folder's checkpoint, by name; nothing but headers is read yet.

    Raises:
        ValueError: listing every missing shard, unreadable or truncated file, and stray tensor.
    """
    shards, index = _shards(folder)
    problems: list[str] = []
    stored: dict[str, Stored] = {}
    owner: dict[str, str] = {}
    for shard in shards:
        if not (folder / shard).is_file():
            problems.append(f"{shard}: the index names it, but it is not there")
            continue
        try:
            found = _read_header(folder / shard)
        except ValueError as error:
            problems.append(f"{shard}: {error}")
            continue
        for name, tensor in found.items():
            if name in owner:
                problems.append(f"{name}: in {owner[name]} and in {shard}")
            owner[name], stored[name] = shard, tensor
    if index is not None and not problems:
        problems += [f"{name}: the index puts it in {shard}, where it is not" for name, shard in index.items()
                     if owner.get(name) != shard]  # fmt: skip
        problems += [f"{name}: in {owner[name]}, but not in the index" for name in stored if name not in index]
    if problems:
        raise ValueError(f"{folder}: the checkpoint is not whole; fetch it again:\n  " + "\n  ".join(problems))
    return stored


def _shards(folder: Path) -> tuple[list[str], dict[str, str] | None]:
    """The files to read, and the index where there is one."""
    if (folder / INDEX).is_file():
        try:
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
            shards = sorted(set(index.values()))
        except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder / INDEX}: not an index with a weight_map ({error!r})") from error
        outside = [shard for shard in shards if not isinstance(shard, str) or Path(shard).name != shard]
        if outside:
            raise ValueError(f"{folder / INDEX}: names files outside its folder: {outside}")
        return shards, index
    if (folder / SINGLE).is_file():
        return [SINGLE], None
    shards = sorted(path.name for path in folder.glob("*.safetensors"))
    if not shards:
        raise ValueError(f"{folder}: no *.safetensors file found")
    return shards, None


def _read_header(path: Path) -> dict[str, Stored]:
    """The tensors of one file, every offset checked against the file's size before anything is allocated."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else None
        if length is None or length > size - 8:
            raise ValueError(f"not a safetensors file, or truncated ({size} bytes, header of {length})")
        try:
            header = json.loads(file.read(length).decode("utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"its header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    header.pop("__metadata__", None)
    start, problems, stored, spans = 8 + length, [], {}, []
    for name, entry in header.items():
        try:
            dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            if not all(isinstance(number, int) and number >= 0 for number in (*shape, begin, end)):
                raise ValueError("a negative or fractional size")
        except (KeyError, TypeError, ValueError) as error:
            problems.append(f"{name}: malformed entry ({error!r})")
            continue
        if dtype not in DTYPES:
            problems.append(f"{name}: dtype {dtype} is not implemented; known: {', '.join(DTYPES)}")
        elif end - begin != math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
            problems.append(f"{name}: {end - begin} bytes cannot hold {list(shape)} of {dtype}")
        elif start + end > size:
            problems.append(f"{name}: ends at byte {start + end}, the file has {size}: it is truncated")
        else:
            spans.append((begin, end, name))
            stored[name] = Stored(shape, _reader(path, start + begin, shape, np.dtype(DTYPES[dtype])))
    spans.sort()
    problems += [f"{b[2]}: overlaps {a[2]}" for a, b in zip(spans, spans[1:], strict=False) if b[0] < a[1]]
    if problems:
        raise ValueError("; ".join(problems))
    return stored


def _reader(path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    def read() -> np.ndarray:
        return np.fromfile(path, dtype=dtype, count=math.prod(shape), offset=offset).reshape(shape)

    return read
