"""Where the compiler needs to be told how an intermediate value lies. Without a mesh nothing happens."""

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array

from trustax.parallel.rules import ROWS

# What a value's axis may be called → mesh axes.
AXES_OF_VALUES: dict[str, tuple[str, ...]] = {
    "rows": ROWS,
    "tokens": ("sequence",),
    "rows_and_tokens": ("sequence", *ROWS),
    "heads": ("tensor",),
    "vocab": ("tensor",),
}


def count_parts(name: str) -> int:
    """Into how many parts the mesh in force splits an axis of that name; 1 without a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    count = 1
    for axis in () if mesh.empty else AXES_OF_VALUES[name]:
        count *= mesh.shape[axis]
    return count


def constrain(x: Array, *names: str | None) -> Array:
    """Lay the leading axes of ``x`` out by name; whole are those without one, and those that do not divide."""
    if jax.sharding.get_abstract_mesh().empty:
        return x
    spec = [
        AXES_OF_VALUES[name] if name is not None and size % count_parts(name) == 0 else None
        for name, size in zip(names, x.shape, strict=False)
    ]
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*spec))
