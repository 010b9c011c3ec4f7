"""A value head: one number for each prefix, on the policy's trunk or on one of its own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.policies.config import ArchitectureConfig
from trustax.policies.lora import Params, is_adapter, join, take

VALUE, TRUNK = "value", "critic"


class Critic(NamedTuple):
    """Values of prefixes: read off the hidden states that ``policy.apply`` makes of ``trunk(params)``.

    ``own_trunk`` says that these are others than the policy's. ``fresh`` starts the critic anew: zero values, and a
    trunk of its own as a copy of what is trained of the policy's.
    """

    own_trunk: bool
    trunk: Callable[[Params], Params]
    read: Callable[[Params, Float[Array, "*B D"]], Float[Array, "*B"]]
    fresh: Callable[[Params], Params]


def split(params: Params, *, adapters_only: bool) -> tuple[Params, Params]:
    """What is trained, and what is frozen: the base of adapters."""
    if not adapters_only:
        return params, {}
    return take(params, _is_trained), take(params, lambda path: not _is_trained(path))


def _is_trained(path: tuple[str, ...]) -> bool:
    return is_adapter(path) or path[0] in (VALUE, TRUNK)


def without_critic(params: Params) -> Params:
    """The parameters that decide what is sampled."""
    return {name: branch for name, branch in params.items() if name not in (VALUE, TRUNK)}


def make_critic(config: ArchitectureConfig, *, adapters_only: bool, own_trunk: bool) -> Critic:
    """The critic of a policy of which everything, or only the adapters, is trained."""

    def trunk(params: Params) -> Params:
        if not own_trunk:
            return params
        return join(params[TRUNK], split(without_critic(params), adapters_only=adapters_only)[1])

    def read(params: Params, hidden: Float[Array, "*B D"]) -> Float[Array, "*B"]:
        head = params[VALUE]
        return jnp.einsum("...d,d->...", hidden.astype(jnp.float32), head["kernel"]) + head["bias"]

    def fresh(params: Params) -> Params:
        plain = without_critic(params)
        start = plain | {VALUE: {"kernel": jnp.zeros(config.hidden_size), "bias": jnp.zeros(())}}
        if not own_trunk:
            return start
        return start | {TRUNK: jax.tree.map(jnp.copy, split(plain, adapters_only=adapters_only)[0])}

    return Critic(own_trunk, trunk, read, fresh)


def critic_axes(axes: Any, *, adapters_only: bool, own_trunk: bool) -> Any:
    """The logical axes of a decoder's parameters, with those of its critic."""
    value = {VALUE: {"kernel": jax.sharding.PartitionSpec("embed"), "bias": jax.sharding.PartitionSpec()}}
    return axes | value | ({TRUNK: split(axes, adapters_only=adapters_only)[0]} if own_trunk else {})
