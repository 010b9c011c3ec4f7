"""A mixture of experts in place of the MLP: a router picks ``k`` of ``E`` experts for each token.

``N`` tokens, ``K`` experts a token, ``E`` experts, ``F`` channels of one. Tokens are sorted by expert, so that each
expert's are one contiguous group, and multiplied group by group (``jax.lax.ragged_dot``): the work is that of ``N·K``
rows, never of ``N·E``. Where XLA has no grouped product of its own (the CPU) it masks instead, right and slow: fine for
tests, not for large models.
"""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from trustax.policies.config import ArchitectureConfig
from trustax.types import pytree_dataclass


@pytree_dataclass
class Routing:
    """Which experts the tokens went to, and how many valid tokens each expert got."""

    ids: Int[Array, "*B K"]
    load: Int[Array, "*E"]


class Experts(nn.Module):
    """``y = Σ_k p_k · expert_k(x)`` over the ``k`` most probable experts; expert = down(activation(gate(x)) · up(x)).

    ``p`` is the router's softmax over all experts, in float32, divided by its sum over the chosen ones where
    ``normalize_routes`` says so (Qwen3). Given ``routes`` are taken instead of the router's own choice (where they are
    not negative); ``p`` and its gradient still are the router's.
    """

    config: ArchitectureConfig
    dtype: jnp.dtype
    activation: Callable[[Array], Array]
    down_scale: float

    @nn.compact
    def __call__(
        self, x: Float[Array, "B L D"], routes: Int[Array, "B L K"] | None, valid: Bool[Array, "B L"]
    ) -> tuple[Float[Array, "B L D"], Routing]:
        config = self.config
        experts, count = config.num_experts, config.experts_per_token
        batch, length, width = x.shape
        router = self._kernel("router", (width,), (experts,), ("embed", None))
        gate = self._kernel("gate", (experts, width), (config.mlp_size,), ("experts", "embed", "mlp"))
        up = self._kernel("up", (experts, width), (config.mlp_size,), ("experts", "embed", "mlp"))
        down = self._kernel(
            "down", (experts, config.mlp_size), (width,), ("experts", "mlp", "embed"), scale=self.down_scale
        )
        probabilities = jax.nn.softmax(jnp.einsum("bld,de->ble", x.astype(jnp.float32), router), axis=-1)
        ids = jax.lax.top_k(probabilities, count)[1].astype(jnp.int32)
        if routes is not None:
            ids = jnp.where(routes >= 0, routes.astype(jnp.int32), ids)
        shares = jnp.take_along_axis(probabilities, ids, axis=-1)
        if config.normalize_routes:
            shares = shares / jnp.sum(shares, axis=-1, keepdims=True)

        flat = ids.reshape(-1)
        order = jnp.argsort(flat, stable=True)
        sizes = jnp.bincount(flat, length=experts).astype(jnp.int32)

        def ragged(rows: Float[Array, "NK In"], kernel: Float[Array, "E In Out"]) -> Float[Array, "NK Out"]:
            return jax.lax.ragged_dot(rows, kernel.astype(self.dtype), sizes)

        rows = x.reshape(-1, width)[order // count]
        out = ragged(self.activation(ragged(rows, gate)) * ragged(rows, up), down)
        out = out[jnp.argsort(order)].reshape(batch, length, count, width)
        y = jnp.einsum("blkd,blk->bld", out, shares.astype(self.dtype))
        load = jnp.zeros(experts, jnp.int32).at[flat].add(jnp.repeat(valid.reshape(-1), count).astype(jnp.int32))
        return y, Routing(ids, load)

    def _kernel(self, name, inputs: tuple[int, ...], outputs: tuple[int, ...], axes, scale: float = 1.0) -> Array:
        initial = nn.initializers.variance_scaling(
            scale, "fan_in", "truncated_normal", in_axis=-2, out_axis=-1, batch_axis=tuple(range(len(inputs) - 1))
        )
        return cast(
            Array,
            self.param(name, nn.with_logical_partitioning(initial, axes), (*inputs, *outputs), jnp.float32),
        )
