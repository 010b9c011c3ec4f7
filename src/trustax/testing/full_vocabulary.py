"""Token statistics made from whole distributions, for tests and benchmarks that can afford ``[B, T, V]``."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from trustax.types import Support, TokenStats


def support_of(
    log_probs_pi: Float[Array, "B T V"], log_probs_mu: Float[Array, "B T V"], tokens: Int[Array, "B T"], top_k: int
) -> Support:
    """TopK(μ) ∪ {y} with exact tails."""
    vocab = log_probs_pi.shape[-1]
    _, ids = jax.lax.top_k(log_probs_mu, top_k)
    tokens = tokens.astype(ids.dtype)
    found = ids == tokens[..., None]
    inside = found.any(-1)
    ids = jnp.concatenate([ids, tokens[..., None]], -1)
    mask = jnp.concatenate([jnp.ones_like(found), ~inside[..., None]], -1)
    taken = (jax.nn.one_hot(ids, vocab, dtype=jnp.int32) * mask[..., None].astype(jnp.int32)).sum(-2) > 0

    def tail(values: Array) -> Array:
        return jax.scipy.special.logsumexp(jnp.where(taken, -jnp.inf, values), axis=-1)

    return Support(
        ids=ids,
        log_mu=jnp.take_along_axis(log_probs_mu, ids, -1),
        log_pi=jnp.take_along_axis(log_probs_pi, ids, -1),
        mask=mask,
        sampled_slot=jnp.where(inside, jnp.argmax(found, -1), top_k),
        tail_log_mu=tail(log_probs_mu),
        tail_log_pi=tail(log_probs_pi),
        tail_log_sum_sq_pi=tail(2.0 * log_probs_pi),
    )


def token_stats(
    log_probs_pi: Float[Array, "B T V"],
    log_probs_mu: Float[Array, "B T V"],
    tokens: Int[Array, "B T"],
    advantages: Float[Array, "B T"],
    token_mask: Bool[Array, "B T"],
    *,
    top_k: int,
    log_probs_anchor: Float[Array, "B T V"] | None = None,
    log_probs_ref: Float[Array, "B T V"] | None = None,
    divergence_rate: Float[Array, "B T"] | None = None,
) -> TokenStats:
    """Every statistic an objective may need, from the distributions themselves."""

    def sampled(log_probs: Array | None) -> Array | None:
        return None if log_probs is None else jnp.take_along_axis(log_probs, tokens[..., None], -1)[..., 0]

    log_pi = jnp.take_along_axis(log_probs_pi, tokens[..., None], -1)[..., 0]
    return TokenStats(
        log_pi=log_pi,
        log_mu=jnp.take_along_axis(log_probs_mu, tokens[..., None], -1)[..., 0],
        advantages=advantages,
        token_mask=token_mask,
        log_anchor=sampled(log_probs_anchor),
        log_ref=sampled(log_probs_ref),
        entropy=-jnp.sum(jnp.exp(log_probs_pi) * log_probs_pi, axis=-1),
        sum_sq_pi=jnp.sum(jnp.exp(2.0 * log_probs_pi), axis=-1),
        divergence_rate=divergence_rate,
        policy_staleness=jnp.zeros(tokens.shape, jnp.int32),
        support=support_of(log_probs_pi, log_probs_mu, tokens, top_k),
        vocab_size=log_probs_pi.shape[-1],
    )
