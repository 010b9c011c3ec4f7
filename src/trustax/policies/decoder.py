"""The decoder: one block, scanned over the layers, whose switches come from ``ArchitectureConfig``.

Every parameter names its logical axes where it is declared. Parameters are float32 and cast to ``dtype`` where they
are used; norms' statistics, rotary angles, attention's softmax and logits are float32 whatever ``dtype`` is.
"""

from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from trustax.parallel.constrain import constrain
from trustax.policies.attention import KeyValues, attend
from trustax.policies.config import ArchitectureConfig, LoraConfig
from trustax.policies.experts import Experts, Routing
from trustax.policies.lora import SUFFIX, Adapter, adapted
from trustax.policies.rope import rope_tables, rotate
from trustax.types import pytree_dataclass

Cache = dict[str, Array]

NO_WINDOW = jnp.iinfo(jnp.int32).max
ACTIVATIONS = {"silu": nn.silu, "gelu_tanh": lambda x: nn.gelu(x, approximate=True)}


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis, with float32 statistics (linen's breaks under strict promotion)."""

    eps: float
    plus_one: bool
    axis: str | None = "embed"

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        initial = nn.initializers.zeros_init() if self.plus_one else nn.initializers.ones_init()
        named = nn.with_logical_partitioning(initial, (self.axis,))
        scale = cast(Array, self.param("scale", named, (x.shape[-1],), jnp.float32))
        wide = x.astype(jnp.float32)
        normed = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + jnp.float32(self.eps))
        scale = scale + 1.0 if self.plus_one else scale
        return (normed * jnp.broadcast_to(scale, normed.shape)).astype(x.dtype)


@pytree_dataclass
class Shared:
    """What all layers have in common: which new tokens are real, rotations, and what a query may see.

    ``cached_*`` is None without a cache.
    ``*_distance`` counts the real tokens between query and slot; it is None where no layer has a window.
    """

    valid: Bool[Array, "B L"]
    rope: tuple[Array, Array]
    local_rope: tuple[Array, Array] | None
    new_mask: Bool[Array, "B L L"]
    new_distance: Int[Array, "B L L"] | None
    cached_mask: Bool[Array, "B L S"] | None
    cached_distance: Int[Array, "B L S"] | None


class Attention(nn.Module):
    """Self-attention with grouped query heads, optional biases and a per-head norm of queries and keys."""

    config: ArchitectureConfig
    dtype: jnp.dtype
    lora: LoraConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B L D"],
        cached: tuple[Array, Array] | None,
        window: Int[Array, ""] | None,
        shared: Shared,
    ) -> tuple[Float[Array, "B L D"], tuple[Array, Array]]:
        config = self.config
        batch, length, _ = x.shape

        def project(name: str, heads: int, axis: str) -> Float[Array, "B L Heads Hd"]:
            features, axes = heads * config.head_dim, ("embed", axis)
            y = linear(x, features, axes, self, name=name, use_bias=config.qkv_bias)
            return y.reshape(batch, length, heads, config.head_dim)

        queries = project("query", config.num_heads, "heads")
        keys = project("key", config.num_kv_heads, "kv_heads")
        values = project("value", config.num_kv_heads, "kv_heads")
        if config.qk_norm:
            queries = RMSNorm(config.norm_eps, config.norm_plus_one, axis=None, name="query_norm")(queries)
            keys = RMSNorm(config.norm_eps, config.norm_plus_one, axis=None, name="key_norm")(keys)
        cos, sin = shared.rope
        if shared.local_rope is not None and window is not None:
            is_local = window < NO_WINDOW
            cos, sin = (jnp.where(is_local, *pair) for pair in zip(shared.local_rope, shared.rope, strict=True))
        queries, keys = rotate(queries, cos, sin), rotate(keys, cos, sin)

        parts = [KeyValues(keys, values, _windowed(shared.new_mask, shared.new_distance, window))]
        if cached is not None and shared.cached_mask is not None:
            parts.insert(0, KeyValues(*cached, _windowed(shared.cached_mask, shared.cached_distance, window)))
        scale = config.head_dim**-0.5 if config.attention_scale is None else config.attention_scale
        out = attend(queries, parts, scale=scale, soft_cap=config.attention_soft_cap)
        out = out.reshape(batch, length, config.num_heads * config.head_dim)
        axes, scale = ("heads", "embed"), _residual_scale(config)
        return linear(out, config.hidden_size, axes, self, name="output", scale=scale), (keys, values)


class MLP(nn.Module):
    """Gated feed-forward layer: down(activation(gate(x)) · up(x))."""

    config: ArchitectureConfig
    dtype: jnp.dtype
    lora: LoraConfig

    @nn.compact
    def __call__(self, x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
        config = self.config
        gate = linear(x, config.mlp_size, ("embed", "mlp"), self, name="gate")
        up = linear(x, config.mlp_size, ("embed", "mlp"), self, name="up")
        inner, scale = ACTIVATIONS[config.activation](gate) * up, _residual_scale(config)
        return linear(inner, config.hidden_size, ("mlp", "embed"), self, name="down", scale=scale)


class Block(nn.Module):
    """One layer of the decoder, in the form ``nn.scan`` wants: ``(carry, per layer, shared) -> (carry, output)``."""

    config: ArchitectureConfig
    dtype: jnp.dtype
    lora: LoraConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B L D"],
        cached: tuple[Array, Array] | None,
        window: Int[Array, ""] | None,
        routes: Int[Array, "B L K"] | None,
        shared: Shared,
    ) -> tuple[Float[Array, "B L D"], tuple[tuple[Array, Array] | None, Routing | None]]:
        config = self.config

        def norm(name: str) -> RMSNorm:
            return RMSNorm(config.norm_eps, config.norm_plus_one, name=name)

        attended, keys_values = Attention(config, self.dtype, self.lora, name="attention")(
            norm("attention_norm")(x), cached, window, shared
        )
        x = x + (norm("attention_post_norm")(attended) if config.post_norms else attended)
        inputs, routing = norm("mlp_norm")(x), None
        if config.num_experts:
            activation, scale = ACTIVATIONS[config.activation], _residual_scale(config)
            experts = Experts(config, self.dtype, activation, scale, name="mlp")
            transformed, routing = experts(inputs, routes, shared.valid)
        else:
            transformed = MLP(config, self.dtype, self.lora, name="mlp")(inputs)
        x = x + (norm("mlp_post_norm")(transformed) if config.post_norms else transformed)
        x = constrain(x, "rows", "tokens")
        return x, (None if cached is None else keys_values, routing)


class Decoder(nn.Module):
    """Token ids to hidden states, which are already normed: logits are their product with the head."""

    config: ArchitectureConfig
    dtype: jnp.dtype
    lora: LoraConfig
    remat: bool

    @nn.compact
    def __call__(
        self,
        tokens: Int[Array, "B L"],
        positions: Int[Array, "B L"],
        valid: Bool[Array, "B S"],
        cache: Cache | None,
        routes: Int[Array, "B L layers K"] | None,
    ) -> tuple[Float[Array, "B L D"], Cache | None, Routing | None]:
        config = self.config
        table = nn.with_logical_partitioning(nn.initializers.normal(0.02), ("vocab", "embed"))
        embedding = cast(Array, self.param("embedding", table, (config.rows, config.hidden_size), jnp.float32))
        if not config.tie_embeddings:
            self.param("head", table, (config.rows, config.hidden_size), jnp.float32)
        x = constrain(jnp.take(embedding, tokens, axis=0, mode="clip").astype(self.dtype), "rows", "tokens")
        if config.scale_embeddings:
            x = x * jnp.asarray(config.hidden_size**0.5, self.dtype)

        old = None
        if cache is not None:
            # New tokens need slots of their own, so that those of the cache end before the last L. A single token
            # looks at all the same: cutting it off would copy the cache at every step of a decode loop.
            slots, length = valid.shape[1], tokens.shape[1]
            seen = slots - length if length > 1 else slots
            old = (cache["k"][:, :, :seen], cache["v"][:, :, :seen])
        shared = _shared(config, positions, valid, None if cache is None else (cache["index"], seen))
        windows = None
        if any(window is not None for window in config.layer_windows):
            windows = jnp.asarray([NO_WINDOW if w is None else w for w in config.layer_windows], jnp.int32)
        block = nn.remat(Block, prevent_cse=False) if self.remat else Block
        layers = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=cast(Any, (0, 0, 0, nn.broadcast)),
            length=config.num_layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )(config, self.dtype, self.lora, name="layers")
        by_layer = None if routes is None else jnp.moveaxis(routes, 2, 0)
        x, (new, routing) = layers(x, old, windows, by_layer, shared)
        hidden = RMSNorm(config.norm_eps, config.norm_plus_one, name="final_norm")(x)
        if routing is not None:
            routing = Routing(jnp.moveaxis(routing.ids, 0, 2), routing.load)
        return hidden, None if cache is None else _written(cache, new), routing


def linear(
    x: Float[Array, "*B In"],
    features: int,
    axes: tuple[str, str],
    module: Attention | MLP,
    *,
    name: str,
    use_bias: bool = False,
    scale: float = 1.0,
) -> Float[Array, "*B Out"]:
    """A linear map inside ``module``, and its adapter; the kernel starts with standard deviation √(scale / inputs)."""
    kernel = nn.initializers.variance_scaling(scale, "fan_in", "truncated_normal")
    y = nn.Dense(
        features,
        use_bias=use_bias,
        dtype=module.dtype,
        param_dtype=jnp.float32,
        kernel_init=nn.with_logical_partitioning(kernel, axes),
        bias_init=nn.with_logical_partitioning(nn.initializers.zeros_init(), axes[1:]),
        name=name,
    )(x)
    if name not in {tensor.path[-2] for tensor in adapted(module.config, module.lora).values()}:
        return y
    return y + Adapter(features, module.lora, axes, module.dtype, name=name + SUFFIX)(x)


def _residual_scale(config: ArchitectureConfig) -> float:
    """Each of 2 L additions to the residual stream starts with 1/(2 L) of the variance (as in GPT-2)."""
    return 1.0 / (2 * config.num_layers)


def _shared(
    config: ArchitectureConfig,
    positions: Int[Array, "B L"],
    valid: Bool[Array, "B S"],
    cached: tuple[Int[Array, ""], int] | None,
) -> Shared:
    """Rotations and masks. A query in slot i sees the valid slots up to i.

    ``cached``: slots before an index are the cache's, of which a number stands before the queries' own slots.
    Without a cache a row may hold several sequences one after the other: each begins at position 0 and sees only
    itself.
    """
    length, (index, slots) = positions.shape[1], (None, 0) if cached is None else cached
    new_valid = valid if index is None else jax.lax.dynamic_slice_in_dim(valid, index, length, axis=1)
    causal = jnp.tril(jnp.ones((length, length), bool))
    new_mask = causal[None, :, :] & new_valid[:, None, :]
    cached_mask = None
    if index is None:
        sequence = jnp.cumsum((positions == 0).astype(jnp.int32), axis=1)
        new_mask &= sequence[:, :, None] == sequence[:, None, :]
    if index is not None:
        in_cache = valid[:, :slots] & (jnp.arange(slots) < index)[None, :]
        cached_mask = jnp.broadcast_to(in_cache[:, None, :], (valid.shape[0], length, slots))
    new_distance = cached_distance = None
    if config.layer_windows:
        # Counted in real tokens, so that padding between prompt and completion does not shorten a window.
        ordinal = jnp.cumsum(valid.astype(jnp.int32), axis=1)
        new = ordinal if index is None else jax.lax.dynamic_slice_in_dim(ordinal, index, length, axis=1)
        new_distance = new[:, :, None] - new[:, None, :]
        cached_distance = None if index is None else new[:, :, None] - ordinal[:, None, :slots]
    local = config.local_rope
    return Shared(
        valid=new_valid,
        rope=rope_tables(config.rope, config.head_dim, positions),
        local_rope=None if local is None else rope_tables(local, config.head_dim, positions),
        new_mask=new_mask,
        new_distance=new_distance,
        cached_mask=cached_mask,
        cached_distance=cached_distance,
    )


def _windowed(
    mask: Bool[Array, "B L S"], distance: Int[Array, "B L S"] | None, window: Int[Array, ""] | None
) -> Bool[Array, "B L S"]:
    if distance is None or window is None:
        return mask
    return mask & (distance < window)


def _written(cache: Cache, new: Any) -> Cache:
    """The cache with all layers' new keys and values at its index: one small write, in place inside a loop."""
    keys, values = new
    start = cache["index"]
    return {
        "k": jax.lax.dynamic_update_slice_in_dim(cache["k"], keys.astype(cache["k"].dtype), start, axis=2),
        "v": jax.lax.dynamic_update_slice_in_dim(cache["v"], values.astype(cache["v"].dtype), start, axis=2),
        "index": start + jnp.int32(keys.shape[2]),
    }
