"""The devices that a config asks for."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import Mesh

from trustax.experiment.assemble import as_config_error
from trustax.parallel import MeshConfig, make_mesh
from trustax.policies import Policy
from trustax.training.optimizer import init_optimizer
from trustax.training.placement import Placement, place_on


@contextlib.contextmanager
def mesh_in_force(config: MeshConfig) -> Iterator[Mesh | None]:
    """The mesh that ``config`` asks for, known to all that is traced inside; None where it is one device."""
    if config.devices == 1:
        yield None
        return
    with as_config_error():
        mesh = make_mesh(config)
    with jax.set_mesh(mesh):
        yield mesh


def placement_of(mesh: Mesh | None, policy: Policy, params: Any, optimizer: Any) -> Placement | None:
    """Where the run's arrays live; None without a mesh. ``params`` may be abstract."""
    if mesh is None:
        return None
    with as_config_error():
        return place_on(
            mesh, policy, jax.eval_shape(lambda params: init_optimizer(optimizer, policy.split(params)[0]), params)
        )
