"""Where a run's arrays live on a mesh: parameters and moments by the rules, rows of a batch beside each other."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from trustax.parallel import batch_sharding, parameter_shardings, replicated, rows_or_whole, shardings_like
from trustax.policies.policy import Policy
from trustax.training.gradients import Batch
from trustax.training.state import TrainState

OF_PROMPTS = ("prompt_tokens", "prompt_valid", "prompt_routes")


@dataclasses.dataclass(frozen=True)
class Placement:
    """A mesh with the shardings of one policy's parameters and of the optimizer's state."""

    mesh: Mesh
    params: Any
    opt_state: Any

    def batch(self, batch: Batch) -> Batch:
        """A batch's arrays on the mesh.

        Raises:
          ValueError: its rows do not divide, or do not stand prompt by prompt, equally many for each.
        """
        check_groups(np.asarray(batch.rollout.prompt_index), batch.rollout.prompt_tokens.shape[0])
        return jax.device_put(batch, batch_shardings(self.mesh, batch))

    def state(self, state: TrainState) -> TrainState:
        """A run's state with its parameters, its reference and the optimizer's state on the mesh."""
        reference = state.reference
        if reference is not None:
            reference = jax.device_put(reference, shardings_like(reference, state.params, self.params, self.mesh))
        return dataclasses.replace(
            state,
            params=jax.device_put(state.params, self.params),
            opt_state=jax.device_put(state.opt_state, self.opt_state),
            reference=reference,
        )


def place_on(mesh: Mesh, policy: Policy, opt_state: Any) -> Placement:
    """Shardings from the shapes of ``policy`` and of an ``opt_state``, which may be abstract."""
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    params = parameter_shardings(mesh, policy.logical_axes(), shapes)
    return Placement(mesh, params, shardings_like(opt_state, shapes, params, mesh))


def batch_shardings(mesh: Mesh, batch: Batch) -> Batch:
    """A sharding for each array of a batch, which may be abstract.

    Fewer prompts than devices are held, and computed, everywhere.
    """
    whole = replicated(mesh)

    def rows(x: Any) -> NamedSharding:
        return batch_sharding(mesh, x.shape, tokens=1 if len(x.shape) > 1 else None)

    def of_leaf(path: Any, x: Any) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if not x.shape:
            return whole
        return rows_or_whole(mesh, x.shape) if name.removeprefix("rollout.") in OF_PROMPTS else rows(x)

    return jax.tree_util.tree_map_with_path(of_leaf, batch)


def check_groups(prompt_index: np.ndarray, prompts: int) -> None:
    """Refuse rows that do not stand prompt by prompt: on a mesh, a prompt's cache is repeated where it lies."""
    rows = prompt_index.shape[0]
    if rows % prompts or not np.array_equal(prompt_index, np.repeat(np.arange(prompts), rows // prompts)):
        raise ValueError(
            f"on a mesh the {rows} rows of a batch must stand prompt by prompt, equally many for each of the {prompts} "
            "prompts"
        )
