"""One mesh for sampler, scorer and optimizer. Its axes always exist; one of size 1 costs nothing."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from trustax.typed import refuse, type_problems

AXES = ("data", "fsdp", "expert", "sequence", "tensor")


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """How many devices each axis has; their product is the number of devices used. All 1: one device.

    ``data`` splits the batch, ``fsdp`` the batch and the parameters, ``expert`` the batch and the experts, ``sequence``
    the completion's tokens, ``tensor`` heads, feed-forward and vocabulary. The later an axis, the closer its devices.
    """

    data: int = 1
    fsdp: int = 1
    expert: int = 1
    sequence: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        refuse(self, type_problems(self) or [f"{k} must be at least 1, got {v}" for k, v in self.sizes() if v < 1])

    def sizes(self) -> list[tuple[str, int]]:
        return [(axis, getattr(self, axis)) for axis in AXES]

    @property
    def devices(self) -> int:
        return math.prod(size for _, size in self.sizes())


def make_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """The mesh over ``devices`` (default: all there are), with axes that the compiler propagates by itself.

    Raises:
      ValueError: the axes ask for another number of devices than there are.
    """
    there = list(jax.devices() if devices is None else devices)
    if len(there) != config.devices:
        product = " × ".join(f"{axis} {size}" for axis, size in config.sizes() if size > 1) or "1"
        raise ValueError(f"the mesh asks for {product} = {config.devices} devices, but there are {len(there)}")
    shape = tuple(size for _, size in config.sizes())
    return Mesh(np.asarray(there).reshape(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES))
