"""Low-rank adapters (LoRA): ``y = x W + (alpha / rank) · x A B``, beside the linear maps that a config names.

A tree with adapters has, next to a map ``query``, a branch ``query_adapter`` with ``a`` and ``b``: they are what is
trained and what a checkpoint holds. ``b`` starts at zero, so that the policy starts as its base.
"""

from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from trustax.policies.config import ArchitectureConfig, LoraConfig
from trustax.policies.hf_names import Tensor, tensors

Params = dict[str, Any]
SUFFIX = "_adapter"


class Adapter(nn.Module):
    """The low-rank part of a linear map. ``a`` starts as PEFT's does: uniform within ±1/√inputs."""

    features: int
    lora: LoraConfig
    axes: tuple[str, str]
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "*B In"]) -> Float[Array, "*B Out"]:
        inputs, outputs = self.axes
        uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
        start = nn.with_logical_partitioning(uniform, (inputs, None))
        end = nn.with_logical_partitioning(nn.initializers.zeros_init(), (None, outputs))
        a = cast(Array, self.param("a", start, (x.shape[-1], self.lora.rank), jnp.float32))
        b = cast(Array, self.param("b", end, (self.lora.rank, self.features), jnp.float32))
        low = jnp.einsum("...i,ir->...r", x.astype(self.dtype), a.astype(self.dtype))
        return jnp.einsum("...r,ro->...o", low, b.astype(self.dtype)) * jnp.asarray(self.lora.scale, self.dtype)


def adapted(config: ArchitectureConfig, lora: LoraConfig) -> dict[str, Tensor]:
    """The linear maps that get an adapter, by their target name.

    Raises:
        ValueError: naming every target that the architecture has no linear map for.
    """
    if not lora.rank:
        return {}
    maps = {
        tensor.hf.removesuffix(".weight").split(".")[-1]: tensor
        for tensor in tensors(config)
        if tensor.path[-1] == "kernel"
    }
    unknown = [target for target in lora.targets if target not in maps]
    if unknown:
        raise ValueError(
            f"lora.targets {unknown} are not linear maps of this architecture that take an adapter; "
            f"known: {', '.join(maps)}"
        )
    return {target: maps[target] for target in lora.targets}


def adapter_tensors(config: ArchitectureConfig, lora: LoraConfig) -> tuple[Tensor, ...]:
    """The leaves of all adapters, with their names in PEFT's files."""

    def row(tensor: Tensor, part: str) -> Tensor:
        stem = "base_model.model." + tensor.hf.removesuffix("weight")
        path = (*tensor.path[:-2], tensor.path[-2] + SUFFIX, part)
        if part == "a":
            return Tensor(path, f"{stem}lora_A.weight", None, lambda c: (tensor.shape(c)[0], lora.rank), transpose=True)
        return Tensor(path, f"{stem}lora_B.weight", None, lambda c: (lora.rank, tensor.shape(c)[1]), transpose=True)

    return tuple(row(tensor, part) for tensor in adapted(config, lora).values() for part in ("a", "b"))


def take(tree: Params, wanted: Any, path: tuple[str, ...] = ()) -> Params:
    """The branches of ``tree`` whose leaves' paths ``wanted`` says yes to; empty branches are left out."""
    found: Params = {}
    for key, node in tree.items():
        here = (*path, key)
        if isinstance(node, dict):
            branch = take(node, wanted, here)
            if branch:
                found[key] = branch
        elif wanted(here):
            found[key] = node
    return found


def join(one: Params, other: Params) -> Params:
    """One tree with the leaves of both, which have none in common."""
    both = dict(one)
    for key, node in other.items():
        both[key] = join(both[key], node) if key in both else node
    return both


def is_adapter(path: tuple[str, ...]) -> bool:
    """Whether a leaf belongs to an adapter."""
    return any(key.endswith(SUFFIX) for key in path)


def merge(params: Params, lora: LoraConfig) -> Params:
    """The tree without adapters that computes the same: ``W + (alpha / rank) · A B`` in their places."""
    found: Params = {}
    for key, node in params.items():
        if key.endswith(SUFFIX):
            continue
        if not isinstance(node, dict):
            found[key] = node
        elif key + SUFFIX in params:
            found[key] = node | {"kernel": _added(node["kernel"], **params[key + SUFFIX], scale=lora.scale)}
        else:
            found[key] = merge(node, lora)
    return found


@jax.jit
def _added(kernel: Array, a: Array, b: Array, scale: Array | float) -> Array:
    return kernel + scale * jnp.einsum("lir,lro->lio", a, b)
