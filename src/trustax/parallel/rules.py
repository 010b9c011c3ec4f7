"""From the names of an array's axes to the devices that hold its parts: one table for every parameter."""

from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROWS = ("data", "fsdp", "expert")
Rules = Mapping[str, str | tuple[str, ...] | None]

# Logical axis → mesh axes. "embed" is every weight's model axis: what FSDP splits.
RULES: Rules = {
    "vocab": "tensor",
    "embed": "fsdp",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "experts": "expert",
    "layers": None,
    "lora": None,
}


def parameter_shardings(mesh: Mesh, logical_axes: Any, shapes: Any, *, rules: Rules = RULES) -> Any:
    """A sharding for every parameter.

    Args:
      mesh: The devices.
      logical_axes: A tree of ``PartitionSpec`` with one logical name (or None) an axis.
      shapes: The same tree of arrays or of ``ShapeDtypeStruct``.
      rules: Which mesh axes split a logical axis.

    Raises:
      ValueError: naming every parameter that no rule covers or whose axis the mesh does not divide.
    """
    problems: list[str] = []

    def sharding(path: Any, axes: PartitionSpec, leaf: Any) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if len(axes) > len(leaf.shape):
            problems.append(f"{name}: {len(axes)} axis names for shape {leaf.shape}")
            return NamedSharding(mesh, PartitionSpec())
        spec = []
        for axis, size in zip(axes, leaf.shape, strict=False):
            if axis is not None and axis not in rules:
                problems.append(f"{name}: no rule for its axis {axis!r} (rules: {', '.join(rules)})")
                axis = None
            target = None if axis is None else rules[axis]
            count = _count(mesh, target)
            if size % count:
                problems.append(f"{name}: axis {axis!r} of {size} does not divide into {count} parts ({target})")
            spec.append(target if count > 1 else None)
        return NamedSharding(mesh, PartitionSpec(*spec))

    is_spec = lambda x: isinstance(x, PartitionSpec)  # noqa: E731
    found = jax.tree_util.tree_map_with_path(sharding, logical_axes, shapes, is_leaf=is_spec)
    if problems:
        raise ValueError("; ".join(problems))
    return found


def batch_sharding(mesh: Mesh, shape: tuple[int, ...], *, tokens: int | None = None) -> NamedSharding:
    """Rows over the data-like axes; axis ``tokens``, if there is one, over ``sequence``.

    Raises:
      ValueError: the rows do not divide.
    """
    count = _count(mesh, ROWS)
    if shape and shape[0] % count:
        axes = " × ".join(axis for axis in ROWS if mesh.shape[axis] > 1)
        raise ValueError(f"{shape[0]} rows do not divide into the {count} parts of the mesh ({axes})")
    spec: list[Any] = [ROWS] + [None] * (len(shape) - 1) if shape else []
    if tokens is not None and shape[tokens] % mesh.shape["sequence"] == 0:
        spec[tokens] = "sequence"
    return NamedSharding(mesh, PartitionSpec(*spec))


def rows_or_whole(mesh: Mesh, shape: tuple[int, ...]) -> NamedSharding:
    """Rows over the data-like axes where they divide; else the whole array everywhere."""
    return batch_sharding(mesh, shape) if shape and shape[0] % _count(mesh, ROWS) == 0 else replicated(mesh)


def shardings_like(tree: Any, parameters: Any, shardings: Any, mesh: Mesh) -> Any:
    """Shardings for a tree that holds copies of the parameters' tree inside (an optimizer's moments).

    A leaf whose path ends in a parameter's path, with its shape, lies where that parameter lies; the rest everywhere.
    """
    known = {
        tuple(map(str, path)): (leaf.shape, sharding)
        for (path, leaf), sharding in zip(
            jax.tree_util.tree_flatten_with_path(parameters)[0], jax.tree.leaves(shardings), strict=True
        )
    }

    def of_leaf(path: Any, leaf: Any) -> NamedSharding:
        names = tuple(map(str, path))
        for start in range(len(names)):
            shape, sharding = known.get(names[start:], (None, None))
            if sharding is not None and shape == leaf.shape:
                return sharding
        return replicated(mesh)

    return jax.tree_util.tree_map_with_path(of_leaf, tree)


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def _count(mesh: Mesh, axes: str | tuple[str, ...] | None) -> int:
    if axes is None:
        return 1
    count = 1
    for axis in (axes,) if isinstance(axes, str) else axes:
        count *= mesh.shape[axis]
    return count
