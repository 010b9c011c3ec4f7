"""Safetensors, single or sharded: headers first, then one block or one tensor at a time. Never pickle."""

import itertools
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from trustax.policies.assemble import Index, Stored
from trustax.policies.hf_names import Tensor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
DTYPES = {code: np.dtype(kind) for code, kind in
          (("F64", np.float64), ("F32", np.float32), ("F16", np.float16), ("BF16", jnp.bfloat16))}  # fmt: skip
_CODES = {dtype: code for code, dtype in DTYPES.items()}


def hf_name(tensor: Tensor) -> str:
    """The tensor's name in a Hugging Face checkpoint."""
    return tensor.hf


class Contents(NamedTuple):
    """What the headers of a checkpoint's files say.

    ``problems`` has one line for every missing shard, unreadable or truncated file, and stray tensor; ``damaged`` names
    the tensors that are known of but cannot be read, ``"*"`` standing for those of a file whose header is lost.
    """

    tensors: dict[str, Stored]
    problems: list[str]
    damaged: frozenset[str]

    def all_problems(self, lines: list[str]) -> list[str]:
        """Its own problems and ``check_names``'s ``lines``, without those that follow from a damaged file."""
        told = tuple(f"missing: {name} " for name in self.damaged)
        lost_header = "*" in self.damaged  # whose tensors nobody knows: whatever is missing may be in it
        return self.problems + [
            line for line in lines if not (line.startswith(told) or (lost_header and line.startswith("missing: ")))
        ]


def read_headers(folder: Path) -> Contents:
    """Every tensor of the folder's checkpoint, by name; nothing but headers is read yet.

    Raises:
        ValueError: there is no checkpoint, or its index is none.
    """
    return _contents(folder, *_shards(folder))


def read_file(folder: Path, name: str) -> Contents:
    """The tensors of one file, of whatever name."""
    if not (folder / name).is_file():
        return Contents({}, [f"{name}: not there"], frozenset({"*"}))
    return _contents(folder, [name], None)


def _contents(folder: Path, shards: list[str], index: dict[str, str] | None) -> Contents:
    problems: list[str] = []
    stored: dict[str, Stored] = {}
    owner: dict[str, str] = {}
    damaged: set[str] = set()
    for shard in shards:
        listed = [name for name, place in index.items() if place == shard] if index is not None else ["*"]
        if not (folder / shard).is_file():
            problems.append(f"{shard}: the index names it, but it is not there")
            damaged.update(listed)
            continue
        try:
            found, complaints = _read_header(folder / shard)
        except ValueError as error:
            problems.append(f"{shard}: {error}")
            damaged.update(listed)
            continue
        problems += [f"{shard}: {name}: {complaint}" for name, complaint in complaints.items()]
        damaged.update(complaints)
        for name, tensor in found.items():
            if name in owner:
                problems.append(f"stray: {name} is in {owner[name]} and in {shard}")
            owner[name], stored[name] = shard, tensor
    if index is not None:
        problems += [
            f"missing: {name}: the index puts it in {shard}, where it is not"
            for name, shard in index.items()
            if owner.get(name) != shard and name not in damaged
        ]
        problems += [f"stray: {name} is in {owner[name]}, but not in the index" for name in stored if name not in index]
        damaged.update(index)  # what the index tells of and the files lack has been reported here
    return Contents(stored, problems, frozenset(damaged - stored.keys()))


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


def _read_header(path: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors of one file, and what is wrong with the others: every offset is checked against the file's size."""
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
    start, problems, stored, spans = 8 + length, {}, {}, []
    for name, entry in header.items():
        try:
            dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            if not all(isinstance(number, int) and number >= 0 for number in (*shape, begin, end)):
                raise ValueError("a negative or fractional size")
        except (KeyError, TypeError, ValueError) as error:
            problems[name] = f"malformed entry ({error!r})"
            continue
        if dtype not in DTYPES:
            problems[name] = f"dtype {dtype} is not implemented; known: {', '.join(DTYPES)}"
        elif end - begin != math.prod(shape) * DTYPES[dtype].itemsize:
            problems[name] = f"{end - begin} bytes cannot hold {list(shape)} of {dtype}"
        elif start + end > size:
            problems[name] = f"ends at byte {start + end}, the file has {size}: it is truncated"
        else:
            spans.append((begin, end, name))
            stored[name] = Stored(shape, DTYPES[dtype], _reader(path, start + begin, shape, DTYPES[dtype]))
    spans.sort()
    problems |= {b[2]: f"overlaps {a[2]}" for a, b in itertools.pairwise(spans) if b[0] < a[1]}
    return {name: tensor for name, tensor in stored.items() if name not in problems}, problems


def _reader(path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Callable[[Index], np.ndarray]:
    def read(index: Index) -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape, dtype)[index]
        mapped = np.memmap(path, dtype, mode="r", offset=offset, shape=shape)  # unmapped again with the block
        return np.array(mapped[index], order="C")

    return read


class Tensors(NamedTuple):
    """Tensors to write: shape and dtype of each, known beforehand, and how to get its values when their turn comes."""

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]
    values: Callable[[str], np.ndarray]

    def size(self, name: str) -> int:
        """Bytes of one tensor."""
        return math.prod(self.shapes[name]) * self.dtypes[name].itemsize


def write_safetensors(folder: Path, tensors: Tensors, *, shard_bytes: int, single: str = SINGLE) -> list[str]:
    """Write one file, or shards of at most ``shard_bytes`` with an index; only one tensor is in memory at a time.

    Returns:
        The names of the files. A tensor above ``shard_bytes`` gets a shard of its own.
    """
    shards: list[list[str]] = [[]]
    room = shard_bytes
    for name in sorted(tensors.shapes):
        if shards[-1] and tensors.size(name) > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(name)
        room -= tensors.size(name)
    if len(shards) == 1:
        _write_file(folder / single, shards[0], tensors)
        return [single]
    files = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for file, names in zip(files, shards, strict=True):
        _write_file(folder / file, names, tensors)
    total = sum(map(tensors.size, tensors.shapes))
    weight_map = {name: file for file, names in zip(files, shards, strict=True) for name in names}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return [*files, INDEX]


def _write_file(path: Path, names: list[str], tensors: Tensors) -> None:
    # Wider dtypes first, so that every tensor starts at a multiple of its dtype's size.
    names = sorted(names, key=lambda name: -tensors.dtypes[name].itemsize)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # without it transformers refuses the file
    end = 0
    for name in names:
        begin, end = end, end + tensors.size(name)
        shape = list(tensors.shapes[name])
        header[name] = {"dtype": _CODES[tensors.dtypes[name]], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            values = np.ascontiguousarray(tensors.values(name), tensors.dtypes[name])
            file.write(values.reshape(-1).view(np.uint8).data)
