"""Devices: the mesh, the rules that lay arrays out on it, and programs compiled for machines that are not here."""

from trustax.parallel.mesh import AXES, MeshConfig, make_mesh
from trustax.parallel.rules import RULES, batch_sharding, parameter_shardings, replicated, rows_or_whole, shardings_like

__all__ = [
    "AXES",
    "RULES",
    "MeshConfig",
    "batch_sharding",
    "make_mesh",
    "parameter_shardings",
    "replicated",
    "rows_or_whole",
    "shardings_like",
]
