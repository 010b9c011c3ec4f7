"""Rollouts made of random numbers, with the shapes, padding and NaN of real ones."""

import jax
import jax.numpy as jnp
import numpy as np

from trustax.types import FinishReason, Rollout, TopK, Transform


def random_rollout(
    *, prompts: int, group_size: int, prompt_tokens: int, new_tokens: int, vocab_size: int, top_k: int, seed: int
) -> Rollout:
    """A rollout whose μ is a random categorical distribution, with uneven prompts and completions."""
    rng = np.random.default_rng(seed)
    rows = prompts * group_size
    prompt_lengths = rng.integers(1, prompt_tokens + 1, prompts)
    lengths = rng.integers(1, new_tokens + 1, rows)
    mask = np.arange(new_tokens)[None] < lengths[:, None]
    log_probs = np.asarray(jax.nn.log_softmax(2.0 * rng.normal(size=(rows, new_tokens, vocab_size)).astype(np.float32)))
    tokens = rng.integers(0, vocab_size, (rows, new_tokens)).astype(np.int32)
    log_mu = np.take_along_axis(log_probs, tokens[..., None], axis=-1)[..., 0]
    order = np.argsort(-log_probs, axis=-1)[..., :top_k].astype(np.int32)
    top = np.take_along_axis(log_probs, order, axis=-1)
    inside = np.zeros(log_probs.shape, bool)
    np.put_along_axis(inside, order, True, axis=-1)
    np.put_along_axis(inside, tokens[..., None], True, axis=-1)
    tail = np.log(np.where(inside, 0.0, np.exp(log_probs)).sum(-1))
    return Rollout(
        prompt_tokens=jnp.asarray(rng.integers(0, vocab_size, (prompts, prompt_tokens)), jnp.int32),
        prompt_valid=jnp.asarray(np.arange(prompt_tokens)[None] >= prompt_tokens - prompt_lengths[:, None]),
        prompt_index=jnp.repeat(jnp.arange(prompts, dtype=jnp.int32), group_size),
        group_id=jnp.repeat(jnp.arange(prompts, dtype=jnp.int32) + 100, group_size),
        sample_index=jnp.tile(jnp.arange(group_size, dtype=jnp.int32), prompts),
        tokens=jnp.asarray(tokens),
        token_mask=jnp.asarray(mask),
        log_mu=jnp.asarray(np.where(mask, log_mu, np.nan)),
        tail_log_mu=jnp.asarray(np.where(mask, tail, np.nan)),
        version=jnp.zeros((rows, new_tokens), jnp.int32),
        top_k=TopK(jnp.asarray(order), jnp.asarray(np.where(mask[..., None], top, np.nan))),
        finish_reason=jnp.full(rows, int(FinishReason.LENGTH), jnp.int32),
        rewards=jnp.asarray(rng.integers(0, 2, rows), jnp.float32),
        verdict=jnp.zeros(rows, jnp.int32),
        transform=Transform(temperature=jnp.float32(1.0)),
    )
