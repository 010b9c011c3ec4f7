"""One pass over the network that yields everything an objective may ask about a rollout's tokens."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trustax.ops.support import sampled_support
from trustax.ops.tails import tail_statistics
from trustax.ops.transforms import transform_logits
from trustax.parallel.constrain import constrain, count_parts
from trustax.policies.cache import fork_cache, prefill
from trustax.policies.policy import Policy
from trustax.types import Rollout, Support, TokenStats

FROM_LOGITS = frozenset({"support", "sum_sq_pi", "entropy"})
FROM_ROLLOUT = frozenset({"policy_staleness", "vocab_size"})


def score(
    policy: Policy,
    params: Any,
    rollout: Rollout,
    *,
    needs: frozenset[str] = frozenset(),
    advantages: Float[Array, "B *T"] | None = None,
    version: Int[Array, ""] | int | None = None,
    differentiable: frozenset[str] = frozenset(),
    chunk_tokens: int = 512,
    hidden: Float[Array, "B T D"] | None = None,
) -> TokenStats:
    """Score a rollout's tokens under ``params`` with the transform they were sampled with.

    The prompt of a group is computed once; gradients of its completions add up in it. Logits exist for
    ``chunk_tokens`` tokens at a time and are recomputed in the backward pass.

    Args:
      policy: The policy's pure functions.
      params: Its parameters; ``log_pi`` is differentiable with respect to them.
      rollout: Prompts, completions and what the sampler recorded.
      needs: Optional statistics to compute, by the names of ``TokenStats``'s fields; nothing else is computed.
        ``log_anchor``, ``log_ref`` and ``divergence_rate`` need other parameters than these: the caller adds them.
      advantages: One number a sequence, broadcast to its tokens, or one a token; NaN if left out.
      version: The policy version of ``params``, for ``policy_staleness``.
      differentiable: Which of ``needs`` carry a gradient; the others are detached.
      chunk_tokens: How many tokens' logits exist at once on one device; at least one a row.
      hidden: What ``completion_hidden`` gave for these parameters, if the caller has it already.
    """
    if hidden is None:
        hidden = completion_hidden(policy, params, rollout)
    batch, length = rollout.tokens.shape
    support = rollout_support(rollout) if "support" in needs else None
    wanted = needs & FROM_LOGITS

    def from_logits(hidden: Float[Array, "C D"], ids: Int[Array, "C"], support: Support | None) -> dict[str, Array]:
        logits = transform_logits(policy.head(params, hidden), rollout.transform)
        return _statistics(logits, ids, support, wanted, differentiable)

    found = _in_chunks(from_logits, (hidden, rollout.tokens, support), chunk_tokens)

    if support is not None:
        support = dataclasses.replace(
            support,
            log_pi=found["support_log_pi"],
            tail_log_pi=found["tail_log_pi"],
            tail_log_sum_sq_pi=found["tail_log_sum_sq_pi"],
        )
    if advantages is None:
        advantages = jnp.full(batch, jnp.nan, found["log_pi"].dtype)
    staleness = None
    if "policy_staleness" in needs:
        if version is None:
            raise ValueError("'policy_staleness' is needed: pass score the version of its parameters")
        staleness = jnp.asarray(version, rollout.version.dtype) - rollout.version
    return TokenStats(
        log_pi=found["log_pi"],
        log_mu=rollout.log_mu,
        advantages=advantages if advantages.ndim == 2 else jnp.broadcast_to(advantages[:, None], (batch, length)),
        token_mask=rollout.token_mask,
        entropy=found.get("entropy"),
        sum_sq_pi=found.get("sum_sq_pi"),
        policy_staleness=staleness,
        support=support,
        vocab_size=policy.config.vocab_size,
    )


def token_values(
    policy: Policy, params: Any, rollout: Rollout, *, hidden: Float[Array, "B T D"] | None = None
) -> Float[Array, "B T"]:
    """The critic's value of the prefix before each completion token; from ``hidden`` where it shares the trunk."""
    if policy.critic is None:
        raise ValueError("values are asked for, but the policy has no value head; build it with one")
    if policy.critic.own_trunk or hidden is None:
        hidden = completion_hidden(policy, policy.critic.trunk(params), rollout)
    return policy.critic.read(params, hidden)


def completion_hidden(policy: Policy, params: Any, rollout: Rollout) -> Float[Array, "B T D"]:
    """Hidden states that predict each completion token: token 0 from the prompt's end, token t from token t − 1.

    Expert routes that the rollout holds are replayed, the prompt's too.
    """
    first, cache, _ = prefill(policy, params, rollout.prompt_tokens, rollout.prompt_valid, routes=rollout.prompt_routes)
    first = first[rollout.prompt_index][:, None]
    length = rollout.tokens.shape[1]
    if length == 1:
        return first
    # The last token predicts nothing; it comes along where only the whole length divides into shards.
    steps = length - 1 if count_parts("tokens") == 1 else length
    cache = fork_cache(cache, rollout.prompt_index, extra=steps)
    prompt_valid = rollout.prompt_valid[rollout.prompt_index]
    positions = prompt_valid.sum(axis=-1, dtype=jnp.int32)[:, None] + jnp.arange(steps, dtype=jnp.int32)[None]
    valid = jnp.concatenate([prompt_valid, rollout.token_mask[:, :steps]], axis=1)
    routes = None if rollout.routes is None else rollout.routes[:, :steps]
    later, _, _ = policy.apply(params, rollout.tokens[:, :steps], positions, valid, cache, routes=routes)
    return constrain(jnp.concatenate([first, later[:, : length - 1]], axis=1), "rows", "tokens")


def rollout_support(rollout: Rollout) -> Support:
    """The support TopK(μ) ∪ {y} of each token, with what the sampler knew of it; log π is still to come."""
    if rollout.top_k is None:
        raise ValueError("the objective needs 'support', but the rollout holds no top-K: sample with top_k >= 1")
    return sampled_support(
        rollout.top_k.ids, rollout.top_k.log_mu, rollout.tokens, rollout.log_mu, tail_log_mu=rollout.tail_log_mu
    )


def _statistics(
    logits: Float[Array, "C V"],
    ids: Int[Array, "C"],
    support: Support | None,
    wanted: frozenset[str],
    differentiable: frozenset[str],
) -> dict[str, Array]:
    """Statistics of a chunk of tokens. All but log π and what is ``differentiable`` are detached."""
    if support is None:
        slots, mask, sampled = ids[:, None], jnp.ones((ids.shape[0], 1), bool), jnp.zeros_like(ids)
    else:
        slots, mask, sampled = support.ids, support.mask, support.sampled_slot
    # A padding row has an empty support: score its token all the same, nobody reads it.
    mask = mask | (jnp.arange(mask.shape[-1], dtype=sampled.dtype)[None] == sampled[:, None])
    precise = tail_statistics(logits if "support" in differentiable else jax.lax.stop_gradient(logits), slots, mask)
    log_pi = jnp.take_along_axis(precise.log_probs, sampled[:, None], axis=-1)[:, 0]
    found = {"log_pi": _with_gradient_of(log_pi, _plain_log_prob(logits, ids))}
    if support is not None:
        found["support_log_pi"] = precise.log_probs
        found["tail_log_pi"] = precise.tail_log_mass
        found["tail_log_sum_sq_pi"] = precise.tail_log_sum_sq
    if "sum_sq_pi" in wanted:
        found["sum_sq_pi"] = precise.sum_sq
    if "entropy" in wanted:
        plain = _plain_entropy(logits) if "entropy" in differentiable else precise.entropy
        found["entropy"] = _with_gradient_of(precise.entropy, plain)
    return found


def _with_gradient_of(value: Array, plain: Array) -> Array:
    """``value``, which keeps its small numbers, with the gradient of ``plain``, which is cheap to differentiate."""
    return jax.lax.stop_gradient(value) + (plain - jax.lax.stop_gradient(plain))


def _plain_log_prob(logits: Float[Array, "C V"], ids: Int[Array, "C"]) -> Float[Array, "C"]:
    return jnp.take_along_axis(logits, ids[:, None], axis=-1)[:, 0] - jax.nn.logsumexp(logits, axis=-1)


def _plain_entropy(logits: Float[Array, "C V"]) -> Float[Array, "C"]:
    log_probs = jax.nn.log_softmax(logits, axis=-1)
    absent = log_probs == -jnp.inf
    return -jnp.sum(jnp.exp(log_probs) * jnp.where(absent, 0.0, log_probs), axis=-1)


def _in_chunks(function: Callable[..., Any], columns: Any, size: int) -> Any:
    """Map ``function`` over chunks of the tokens of ``[B, T, …]``, recomputing inside a chunk in the backward pass.

    A chunk takes a few tokens of *every* row, and of every shard of the token axis, so that each device has its share
    of each chunk.
    """
    batch, length = jax.tree.leaves(columns)[0].shape[:2]
    shards = count_parts("tokens") if length % count_parts("tokens") == 0 else 1
    devices = count_parts("rows_and_tokens")
    width = min(max(size * devices // (batch * shards), 1), length // shards)  # tokens of one row and shard in a chunk
    if width == length:
        split = lambda x: x.reshape(batch * length, *x.shape[2:])  # noqa: E731
        found = jax.checkpoint(function)(*jax.tree.map(split, columns))
        return jax.tree.map(lambda x: x.reshape(batch, length, *x.shape[1:]), found)
    padding = -(length // shards) % width

    def chunks(x: Array) -> Array:
        x = x.reshape(batch, shards, length // shards, *x.shape[2:])
        x = jnp.pad(x, [(0, 0), (0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 3))
        x = x.reshape(batch, shards, -1, width, *x.shape[3:])
        x = jnp.transpose(x, (2, 1, 0, 3, *range(4, x.ndim)))
        return x.reshape(x.shape[0], shards * batch * width, *x.shape[4:])

    def joined(x: Array) -> Array:
        x = x.reshape(x.shape[0], shards, batch, width, *x.shape[2:])
        x = jnp.transpose(x, (2, 1, 0, 3, *range(4, x.ndim)))
        x = x.reshape(batch, shards, -1, *x.shape[4:])[:, :, : length // shards]
        return x.reshape(batch, length, *x.shape[3:])

    @jax.checkpoint
    def chunk(inputs: Any) -> Any:
        return function(*jax.tree.map(lambda x: constrain(x, "rows_and_tokens"), inputs))

    return jax.tree.map(joined, jax.lax.map(chunk, jax.tree.map(chunks, columns)))
