"""A policy: pure functions over a parameter tree. Only this package knows that flax stands behind them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from trustax.policies.config import ArchitectureConfig, LoraConfig, ValueHead
from trustax.policies.critic import Critic, critic_axes, make_critic, split
from trustax.policies.decoder import Cache, Decoder
from trustax.policies.lora import adapted, is_adapter, join, take

Params = dict[str, Any]
DTYPES = {name: jnp.dtype(name) for name in ("float32", "bfloat16")}


class Apply(Protocol):
    """The network without its head."""

    def __call__(
        self,
        params: Params,
        tokens: Int[Array | np.ndarray, "B L"],
        positions: Int[Array | np.ndarray, "B L"],
        valid: Bool[Array | np.ndarray, "B S"],
        cache: Cache | None,
        *,
        routes: Int[Array | np.ndarray, "B L layers K"] | None = None,
    ) -> tuple[Float[Array, "B L D"], Cache | None, dict[str, Array]]:
        """Hidden states of ``tokens``, the cache with them added, and a dict of statistics (empty for a dense model).

        With experts it holds ``routes``, which ones each token went to, and ``expert_load [layers, E]``, how many valid
        tokens each one got. Given ``routes`` are replayed; where they are negative the router chooses.

        ``valid[b, s]`` says that slot s holds a real token, the new ones included. The new tokens take the slots from
        ``cache["index"]`` on; a query in slot i sees the valid slots up to i. Without a cache S = L. A query that
        sees no slot yields finite numbers and no gradient through attention.
        """
        ...


class Policy(NamedTuple):
    """What sampler and scorer need to know of a model.

    ``head`` gives float32 logits of the real vocabulary, soft cap applied. ``head_weights`` gives its matrix ``[V, D]``
    for chunked products; the caller then applies ``config.logit_soft_cap``. The cache is
    ``{"k", "v": [layers, B, S, N, Hd], "index": int32 []}``. ``logical_axes`` names the axes of every parameter.

    ``split`` divides parameters into what is trained and what is frozen (nothing, without adapters); ``policies.join``
    puts them together again. ``complete`` gives the parameters of a plain decoder the adapters and the critic of this
    policy; without a key the adapters are there already.
    """

    config: ArchitectureConfig
    init: Callable[[Key[Array, ""]], Params]
    apply: Apply
    head: Callable[[Params, Float[Array, "*B D"]], Float[Array, "*B V"]]
    head_weights: Callable[[Params], Float[Array, "V D"]]
    init_cache: Callable[[int, int], Cache]
    logical_axes: Callable[[], Any]
    lora: LoraConfig
    critic: Critic | None
    split: Callable[[Params], tuple[Params, Params]]
    complete: Callable[[Key[Array, ""] | None, Params], Params]


def build(
    config: ArchitectureConfig,
    *,
    dtype: str = "float32",
    remat: bool = False,
    lora: LoraConfig | None = None,
    value_head: ValueHead = "none",
) -> Policy:
    """Build the policy of ``config``.

    Args:
        config: The architecture.
        dtype: of the computation, ``"float32"`` or ``"bfloat16"``; parameters are float32 either way.
        remat: recompute each layer in the backward pass: less memory, about a third more time.
        lora: Adapters, which then are all that is trained.
        value_head: Whether it has a critic, and whether that shares the policy's trunk.
    """
    lora = LoraConfig() if lora is None else lora
    adapted(config, lora)  # which refuses targets that are not there
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {sorted(DTYPES)}, got {dtype!r}")
    compute = DTYPES[dtype]
    decoder = Decoder(config, compute, lora, remat)

    def boxed_init(key: Key[Array, ""]) -> Any:
        nothing = jnp.zeros((1, 1), jnp.int32)
        return decoder.init(key, nothing, nothing, jnp.ones((1, 1), bool), None, None)["params"]

    only = lora.rank > 0
    critic = None
    if value_head != "none":
        critic = make_critic(config, adapters_only=only, own_trunk=value_head == "own")

    def init(key: Key[Array, ""]) -> Params:
        params = nn.unbox(boxed_init(key))
        return params if critic is None else critic.fresh(params)

    def complete(key: Key[Array, ""] | None, params: Params) -> Params:
        if key is not None and only:
            adapters = jax.jit(lambda key: take(nn.unbox(boxed_init(key)), is_adapter))(key)  # the rest is not computed
            params = join(params, adapters)
        return params if critic is None else critic.fresh(params)

    def apply(params, tokens, positions, valid, cache, *, routes=None) -> tuple[Array, Cache | None, dict[str, Array]]:
        _check_shapes(config, tokens, positions, valid, cache, routes)
        inputs = (jnp.asarray(x) for x in (tokens, positions, valid))  # numpy arrays are welcome
        replayed = None if routes is None else jnp.asarray(routes)
        hidden, cache, routing = cast(Any, decoder.apply({"params": params}, *inputs, cache, replayed))
        aux = {} if routing is None else {"routes": routing.ids, "expert_load": routing.load}
        return hidden, cache, aux

    def head_weights(params: Params) -> Float[Array, "V D"]:
        return params["embedding" if config.tie_embeddings else "head"][: config.vocab_size]

    def head(params: Params, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        weights = head_weights(params).astype(hidden.dtype)
        logits = jnp.einsum("...d,vd->...v", hidden, weights, preferred_element_type=jnp.float32)
        if config.logit_soft_cap is None:
            return logits
        cap = jnp.float32(config.logit_soft_cap)
        return cap * jnp.tanh(logits / cap)

    def init_cache(batch: int, length: int) -> Cache:
        shape = (config.num_layers, batch, length, config.num_kv_heads, config.head_dim)
        return {"k": jnp.zeros(shape, compute), "v": jnp.zeros(shape, compute), "index": jnp.int32(0)}

    def logical_axes() -> Any:
        axes = nn.get_partition_spec(jax.eval_shape(boxed_init, jax.random.key(0)))
        return axes if critic is None else critic_axes(axes, adapters_only=only, own_trunk=critic.own_trunk)

    divide = functools.partial(split, adapters_only=only)
    return Policy(config, init, apply, head, head_weights, init_cache, logical_axes, lora, critic, divide, complete)


def _check_shapes(config: ArchitectureConfig, tokens, positions, valid, cache, routes) -> None:
    problems = []
    expected = (*tokens.shape, config.num_layers, config.experts_per_token)
    if routes is not None and not config.num_experts:
        problems.append("routes were given, but this decoder has no experts")
    elif routes is not None and routes.shape != expected:
        problems.append(f"routes must be [batch, tokens, layers, experts a token] = {expected}, got {routes.shape}")
    if positions.shape != tokens.shape:
        problems.append(f"positions must have the shape of tokens, {tokens.shape}, got {positions.shape}")
    slots = tokens.shape[1] if cache is None else cache["k"].shape[2]
    if valid.shape != (tokens.shape[0], slots):
        problems.append(f"valid must be [batch, slots] = {(tokens.shape[0], slots)}, got {valid.shape}")
    if valid.dtype != bool:
        problems.append(f"valid must be boolean, got {valid.dtype}")
    if cache is not None and cache["k"].shape[1] != tokens.shape[0]:
        problems.append(f"the cache has {cache['k'].shape[1]} rows for {tokens.shape[0]} rows of tokens")
    if tokens.shape[1] > slots:
        problems.append(f"{tokens.shape[1]} new tokens do not fit a cache of {slots} slots")
    if problems:
        raise ValueError("policy.apply: " + "; ".join(problems))
