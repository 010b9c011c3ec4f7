"""Generate completions and record exactly what they were drawn from.

One prefill per prompt, shared by its completions; then a decode loop that stops as soon as every row has. At each
step the sampler keeps log μ of the sampled token, TopK(μ) and the log-mass outside TopK(μ) ∪ {y}, all of the
*transformed* distribution.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from trustax.ops.tails import tail_statistics
from trustax.ops.transforms import canonical, draw, transform_logits
from trustax.policies.cache import fork_cache, prefill
from trustax.policies.policy import Policy
from trustax.sampling.keys import token_uniforms
from trustax.types import FinishReason, TopK, Transform

Params = Any


class Generation(NamedTuple):
    """What one call of the sampler returns, in the order of the rows asked for."""

    tokens: Int[Array, "B T"]
    token_mask: Bool[Array, "B T"]
    log_mu: Float[Array, "B T"]
    tail_log_mu: Float[Array, "B T"] | None
    top_k: TopK | None
    finish_reason: Int[Array, "B"]
    routes: Int[Array, "B T L E"] | None = None
    prompt_routes: Int[Array, "P Tp L E"] | None = None


class _Token(NamedTuple):
    """One sampled token a row, with what is recorded of its distribution."""

    token: Int[Array, "B"]
    log_mu: Float[Array, "B"]
    top_ids: Int[Array, "B K"]
    top_log_mu: Float[Array, "B K"]
    tail_log_mu: Float[Array, "B"]


@dataclasses.dataclass
class Sampler:
    """A compiled sampler of one policy; ``traces`` counts its compilations, one a shape.

    ``top_k`` may be 0: then neither the top-K nor the tail is recorded. ``record_routes`` keeps which experts each
    token went to, to be replayed by whoever scores the rollout.
    """

    policy: Policy
    max_new_tokens: int
    top_k: int
    eos_ids: frozenset[int]
    pad_id: int
    record_routes: bool = False
    traces: int = 0
    _generate: Callable[..., Generation] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        vocab_size = self.policy.config.vocab_size
        if not 0 <= self.top_k <= vocab_size:
            raise ValueError(f"top_k is {self.top_k}, expected 0 to the vocabulary's size {vocab_size}")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}, expected at least 1")
        if self.record_routes and not self.policy.config.num_experts:
            raise ValueError("routes are to be recorded, but the policy has no experts; set record_routes to False")
        outside = sorted(i for i in (*self.eos_ids, self.pad_id) if not 0 <= i < vocab_size)
        if outside:
            raise ValueError(f"special token ids {outside} lie outside the vocabulary of {vocab_size}")
        self._generate = jax.jit(self.generate)

    def __call__(
        self,
        params: Params,
        prompt_tokens: Int[Array | np.ndarray, "P Tp"],
        prompt_valid: Bool[Array | np.ndarray, "P Tp"],
        prompt_index: Int[Array | np.ndarray, "B"],
        keys: Key[Array, "B"],
        transform: Transform,
    ) -> Generation:
        """Sample one completion a row of ``prompt_index``; prompts are padded on the left. ``keys`` are consumed."""
        return self._generate(params, prompt_tokens, prompt_valid, prompt_index, keys, canonical(transform))

    def generate(self, params, prompt_tokens, prompt_valid, prompt_index, keys, transform) -> Generation:
        """What is compiled: the same as a call, for a ``canonical`` transform."""
        self.traces += 1
        policy, length = self.policy, self.max_new_tokens
        prompt_lengths = prompt_valid.sum(axis=-1, dtype=jnp.int32)[prompt_index]
        valid = jnp.concatenate([prompt_valid[prompt_index], jnp.ones((keys.shape[0], length), bool)], axis=1)
        hidden, cache, aux = prefill(policy, params, prompt_tokens, prompt_valid)
        cache = fork_cache(cache, prompt_index, extra=length)

        def sample(hidden: Float[Array, "B D"], position: Int[Array, ""]) -> _Token:
            logits = transform_logits(policy.head(params, hidden), transform)
            chosen = draw(logits, token_uniforms(keys, position))
            token = jnp.where(transform.greedy, jnp.argmax(logits, axis=-1).astype(jnp.int32), chosen)
            return _record(logits, token, self.top_k)

        def is_eos(token: Int[Array, "B"]) -> Bool[Array, "B"]:
            return jnp.isin(token, jnp.array(sorted(self.eos_ids), jnp.int32))

        first = sample(hidden[prompt_index], jnp.zeros((), jnp.int32))
        record = jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype).at[0].set(x), first)
        alive = jnp.zeros((length, keys.shape[0]), bool).at[0].set(True)
        routes = None
        if self.record_routes:
            routes = jnp.full((length, keys.shape[0], *aux["routes"].shape[2:]), -1, jnp.int32)

        def unfinished(carry):
            position, running, *_ = carry
            return (position < length) & jnp.any(running)

        def step(carry):
            position, running, alive, record, routes, cache = carry
            last = jax.tree.map(lambda x: x[position - 1], record).token
            places = (prompt_lengths + position - 1)[:, None]
            hidden, cache, seen = policy.apply(params, last[:, None], places, valid, cache)
            if routes is not None:
                routes = routes.at[position - 1].set(seen["routes"][:, 0])
            new = sample(hidden[:, 0], position)
            record = jax.tree.map(lambda all_, x: all_.at[position].set(x), record, new)
            running, alive = running & ~is_eos(new.token), alive.at[position].set(running)
            return position + 1, running, alive, record, routes, cache

        start = (jnp.ones((), jnp.int32), ~is_eos(first.token), alive, record, routes, cache)
        _, running, alive, record, routes, _ = jax.lax.while_loop(unfinished, step, start)
        found = self._finish(alive.T, running, jax.tree.map(lambda x: x.swapaxes(0, 1), record))
        if routes is None:
            return found
        return found._replace(routes=routes.swapaxes(0, 1), prompt_routes=aux["routes"])

    def _finish(self, mask: Bool[Array, "B T"], running: Bool[Array, "B"], record: _Token) -> Generation:
        """Blank what lies behind the end of a row: padding ids, and NaN for what was never a probability."""

        def valid_only(values: Float[Array, "B T *rest"]) -> Float[Array, "B T *rest"]:
            return jnp.where(mask.reshape(mask.shape + (1,) * (values.ndim - 2)), values, jnp.nan)

        return Generation(
            tokens=jnp.where(mask, record.token, self.pad_id),
            token_mask=mask,
            log_mu=valid_only(record.log_mu),
            tail_log_mu=valid_only(record.tail_log_mu) if self.top_k else None,
            top_k=TopK(record.top_ids, valid_only(record.top_log_mu)) if self.top_k else None,
            finish_reason=jnp.where(running, int(FinishReason.LENGTH), int(FinishReason.STOP)).astype(jnp.int32),
        )


def _record(logits: Float[Array, "B V"], token: Int[Array, "B"], top_k: int) -> _Token:
    """What is kept of one distribution; the support is TopK(μ) ∪ {y}, with y's own slot only where it is absent."""
    _, top_ids = jax.lax.top_k(logits, top_k)
    top_ids = top_ids.astype(jnp.int32)
    is_sampled = top_ids == token[:, None]
    absent = ~jnp.any(is_sampled, axis=-1, keepdims=True)
    ids = jnp.concatenate([top_ids, token[:, None]], axis=-1)
    mask = jnp.concatenate([jnp.ones_like(is_sampled), absent], axis=-1)
    found = tail_statistics(logits, ids, mask)
    slot = jnp.where(absent[:, 0], top_k, jnp.argmax(is_sampled, axis=-1) if top_k else 0)
    return _Token(
        token=token,
        log_mu=jnp.take_along_axis(found.log_probs, slot[:, None], axis=-1)[:, 0],
        top_ids=top_ids,
        top_log_mu=found.log_probs[:, :top_k],
        tail_log_mu=found.tail_log_mass,
    )
