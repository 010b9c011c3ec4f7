"""From tensors in files to the parameter tree: check everything first, then read one block at a time.

A leaf is put together where it will live, shard by shard, from the slices of the files that the shard needs. Host
memory beyond the result is one block: a tensor of one layer, or a part of a large table.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trustax.policies.config import ArchitectureConfig
from trustax.policies.hf_names import DERIVED_SUFFIXES, Tensor, tensors

BLOCK_ELEMENTS = 2**24  # a table with more is read in parts of its rows
Index = tuple[slice, ...]


class Stored(NamedTuple):
    """A tensor in a file: its shape and dtype, known before anything is read, and how to read a part of it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[Index], np.ndarray]


def check_names(
    config: ArchitectureConfig,
    stored: Mapping[str, Stored],
    name_of: Callable[[Tensor], str | None],
    rows: Sequence[Tensor],
) -> tuple[list[str], tuple[str, ...]]:
    """Compare the tensors that ``rows`` describe with what the files hold.

    Returns:
        One line for every missing, unused and mis-shaped tensor, and the names of tensors that are rightly ignored: a
        head where the embedding is tied, derived buffers.
    """
    expected = {
        name: tensor.file_shape(config)
        for tensor in rows
        for name in tensor.files(config, _template(tensor, name_of)).values()
    }
    missing = [f"missing: {name} {list(shape)}" for name, shape in expected.items() if name not in stored]
    misshaped = [
        f"mis-shaped: {name} is {list(stored[name].shape)}, the config asks for {list(shape)}"
        for name, shape in expected.items()
        if name in stored and stored[name].shape != shape
    ]
    extra = [name for name in stored if name not in expected]
    ignored = tuple(name for name in extra if _may_be_ignored(config, name))
    unused = [f"unused: {name} {list(stored[name].shape)}" for name in extra if name not in ignored]
    return missing + misshaped + unused, ignored


def assemble(
    config: ArchitectureConfig,
    stored: Mapping[str, Stored],
    name_of: Callable[[Tensor], str | None],
    *,
    shardings: Any = None,
) -> dict[str, Any]:
    """Read every parameter into a float32 tree, whose leaves are placed as ``shardings`` (a tree like it) says."""
    return assemble_tensors(config, tensors(config), stored, name_of, shardings=shardings)


def assemble_tensors(
    config: ArchitectureConfig,
    rows: Sequence[Tensor],
    stored: Mapping[str, Stored],
    name_of: Callable[[Tensor], str | None],
    *,
    shardings: Any = None,
) -> dict[str, Any]:
    """Read the tensors that ``rows`` describe into a tree."""
    tree: dict[str, Any] = {}
    for tensor in rows:
        *branch, name = tensor.path
        sharding = None
        if shardings is not None:
            sharding = functools.reduce(lambda node, key: node[key], tensor.path, shardings)
        leaf = _read_leaf(config, tensor, stored, _template(tensor, name_of), sharding)
        functools.reduce(lambda node, key: node.setdefault(key, {}), branch, tree)[name] = leaf
    return tree


def _read_leaf(
    config: ArchitectureConfig,
    tensor: Tensor,
    stored: Mapping[str, Stored],
    template: str,
    sharding: jax.sharding.Sharding | None,
) -> jax.Array:
    shape, names = tensor.tree_shape(config), tensor.files(config, template)
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shards = [
        _read_shard(names, stored, tensor, shape, index, device)
        for device, index in sharding.addressable_devices_indices_map(shape).items()
    ]
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


def _read_shard(names, stored, tensor: Tensor, shape: tuple[int, ...], index: Any, device: Any) -> jax.Array:
    """The part ``index`` of a leaf, filled block by block on its device."""
    whole = slice(None)
    index = (*(() if index is None else index), *[whole] * len(shape))[: len(shape)]
    ranges = [range(*part.indices(size)) for part, size in zip(index, shape, strict=True)]
    depth = len(next(iter(names)))
    leaf = jax.device_put(jnp.zeros([len(r) for r in ranges], jnp.float32), device)
    for place in itertools.product(*ranges[:depth]):
        offset = [at - r.start for at, r in zip(place, ranges[:depth], strict=True)]
        source = stored[names[place]]
        for part in _blocks(ranges[depth:]):
            start = (*offset, *(at.start - r.start for at, r in zip(part, ranges[depth:], strict=True)))
            values = source.read(tuple(part[::-1] if tensor.transpose else part))
            leaf = _write(leaf, jax.device_put(values, device), np.asarray(start, np.int32), transpose=tensor.transpose)
    return leaf


def _blocks(ranges: list[range]) -> Iterator[list[slice]]:
    """Cut a tensor along its first axis into parts of at most ``BLOCK_ELEMENTS``."""
    rows = max(1, BLOCK_ELEMENTS // max(1, math.prod(len(r) for r in ranges[1:])))
    rest = [slice(r.start, r.stop) for r in ranges[1:]]
    for start in range(ranges[0].start, ranges[0].stop, rows):
        yield [slice(start, min(start + rows, ranges[0].stop)), *rest]


@functools.partial(jax.jit, donate_argnums=0, static_argnames="transpose")
def _write(leaf: jax.Array, values: jax.Array, start: jax.Array, *, transpose: bool) -> jax.Array:
    values = (values.T if transpose else values).astype(leaf.dtype)
    return jax.lax.dynamic_update_slice(leaf, values.reshape((1,) * (leaf.ndim - values.ndim) + values.shape), start)


def _template(tensor: Tensor, name_of: Callable[[Tensor], str | None]) -> str:
    template = name_of(tensor)
    if template is None:
        raise ValueError(f"this file format has no name for {'/'.join(tensor.path)}")
    return template


def _may_be_ignored(config: ArchitectureConfig, name: str) -> bool:
    tied_head = config.tie_embeddings and name in ("lm_head.weight", "output.weight")
    return tied_head or name.endswith(DERIVED_SUFFIXES)
