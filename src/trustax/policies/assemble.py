"""From tensors in files to the parameter tree: check everything first, then read one tensor at a time."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trustax.policies.config import ArchitectureConfig
from trustax.policies.hf_names import DERIVED_SUFFIXES, Tensor, tensors


class Stored(NamedTuple):
    """A tensor in a file: its shape, known before anything is read, and how to read it."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def check_names(
    config: ArchitectureConfig, stored: Mapping[str, Stored], name_of: Callable[[Tensor], str | None], where: str
) -> tuple[str, ...]:
    """Compare what the decoder needs with what the files hold.

    Returns:
        The names of tensors that are rightly ignored: a head where the embedding is tied, derived buffers.

    Raises:
        ValueError: listing every missing, unused and mis-shaped tensor.
    """
    expected = {
        name: tensor.file_shape(config) for tensor in tensors(config) for name in _names(config, tensor, name_of)
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
    problems = missing + misshaped + unused
    if problems:
        raise ValueError(
            f"{where}: the tensors do not fit the architecture in its config ({len(problems)} problems):\n  "
            + "\n  ".join(problems)
        )
    return ignored


def assemble(
    config: ArchitectureConfig, stored: Mapping[str, Stored], name_of: Callable[[Tensor], str | None]
) -> dict[str, Any]:
    """Read every tensor into a float32 tree. Host memory beyond the result is one tensor of one layer."""
    tree: dict[str, Any] = {}
    for tensor in tensors(config):
        names = _names(config, tensor, name_of)
        if tensor.stacked:
            leaf = jnp.zeros(tensor.tree_shape(config), jnp.float32)
            for layer, name in enumerate(names):
                leaf = _write_layer(leaf, jnp.int32(layer), _oriented(stored[name].read(), tensor))
        else:
            leaf = jnp.asarray(_oriented(stored[names[0]].read(), tensor))
        branch = functools.reduce(lambda node, key: node.setdefault(key, {}), tensor.path[:-1], tree)
        branch[tensor.path[-1]] = leaf
    return tree


@functools.partial(jax.jit, donate_argnums=0)
def _write_layer(leaf: jax.Array, layer: jax.Array, values: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(leaf, values, layer, axis=0)


def _oriented(values: np.ndarray, tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(values.T if tensor.transpose else values, dtype=np.float32)


def _names(config: ArchitectureConfig, tensor: Tensor, name_of: Callable[[Tensor], str | None]) -> list[str]:
    name = name_of(tensor)
    if name is None:
        raise ValueError(f"this file format has no name for {'/'.join(tensor.path)}")
    return [name.format(layer) for layer in range(config.num_layers)] if tensor.stacked else [name]


def _may_be_ignored(config: ArchitectureConfig, name: str) -> bool:
    tied_head = config.tie_embeddings and name in ("lm_head.weight", "output.weight")
    return tied_head or name.endswith(DERIVED_SUFFIXES)
