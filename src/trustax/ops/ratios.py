"""Probability ratios of two policies at token, prefix and sequence level, in log space.

``l_t = log π_t − log α_t`` for the sampled token, α the anchor. Every function takes ``[..., T]`` with the sequence
along the last axis and skips tokens where ``token_mask`` is false: they neither add to a product nor advance the
position. Results are 0 at masked tokens unless said otherwise. Exponents are limited to ±20 (``LOG_RATIO_LIMIT``).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from trustax.ops.masked import masked_mean, masked_sum, select

LOG_RATIO_LIMIT = 20.0
"""e^±20 ≈ 5e8: beyond it a ratio carries no information, and float32 products stay finite."""


def log_ratio(
    log_pi: Float[Array, "*B T"],
    log_anchor: Float[Array, "*B T"],
    token_mask: Bool[Array, "*B T"],
    *,
    limit: float = LOG_RATIO_LIMIT,
) -> Float[Array, "*B T"]:
    """Compute the token log-ratio, limited in size.

    ``l_t = clip(log π_t − log α_t, −limit, limit)``, 0 at masked tokens. The limit keeps ``exp`` finite for a very
    stale token; it biases only ratios beyond e^limit, towards 1.

    Args:
        log_pi: log-probs of the sampled tokens under the policy.
        log_anchor: the same under the anchor.
        token_mask: tokens to read; the others may hold NaN or inf.
        limit: the largest absolute value.

    Gradient: 1 with respect to ``log_pi`` inside the limit, 0 beyond it and at masked tokens.

    >>> log_ratio(jnp.array([-1.0, -1.0, 900.0]), jnp.array([-1.5, -901.0, jnp.nan]),
    ...           jnp.array([True, True, False])).tolist()
    [0.5, 20.0, 0.0]
    """
    bound = jnp.asarray(limit, log_pi.dtype)
    return jnp.clip(select(log_pi, token_mask) - select(log_anchor, token_mask), -bound, bound)


def positions(token_mask: Bool[Array, "*B T"]) -> Int[Array, "*B T"]:
    """Number the valid tokens of each sequence 1, 2, …; a masked token repeats its predecessor's number.

    >>> positions(jnp.array([True, True, False, True])).tolist()
    [1, 2, 2, 3]
    """
    return jnp.cumsum(token_mask.astype(jnp.int32), axis=-1)


def prefix_log_ratio(log_ratios: Float[Array, "*B T"], token_mask: Bool[Array, "*B T"]) -> Float[Array, "*B T"]:
    """Sum the log-ratios of a prefix, the current token included.

    ``S_t = Σ_{j≤t, m_j} l_j``. It is the exact importance weight of token t's policy-gradient term if its advantage
    depends on the prefix only: later factors then have conditional mean one. (An outcome reward depends on the rest
    too.) At a masked token it repeats the last value.

    Gradient: the reversed cumulative sum; detach it if only the current token's gradient is meant (CTPO).

    References: CTPO, arXiv 2605.07331, §3.

    >>> prefix_log_ratio(jnp.array([0.5, -0.25, 9.0, 1.0]), jnp.array([True, True, False, True])).tolist()
    [0.5, 0.25, 0.25, 1.25]
    """
    return jnp.cumsum(select(log_ratios, token_mask), axis=-1)


def prefix_min_log_ratio(
    log_ratios: Float[Array, "*B T"], token_mask: Bool[Array, "*B T"], *, cap_at_one: bool = False
) -> Float[Array, "*B T"]:
    """Take the smallest log-ratio *before* each token.

    ``log b_t = min_{j<t, m_j} l_j``, 0 for the first valid token. With ``cap_at_one`` the minimum starts from 0, so
    that ``b_t ≤ 1`` always; else ``b_2 = r_1`` may exceed 1 (the literal reading of the formula).

    References: MinPRO, arXiv 2601.22718, eq. for b_t; the empty-prefix convention is ours.

    >>> prefix_min_log_ratio(jnp.array([0.5, -0.25, 9.0, 1.0]), jnp.array([True, True, False, True])).tolist()
    [0.0, 0.5, -0.25, -0.25]
    """
    running = jax.lax.cummin(select(log_ratios, token_mask, jnp.inf), axis=log_ratios.ndim - 1)
    start = jnp.full_like(running[..., :1], jnp.inf)
    before = jnp.concatenate([start, running[..., :-1]], axis=-1)
    before = jnp.where(jnp.isinf(before), jnp.zeros_like(before), before)
    return jnp.minimum(before, jnp.zeros_like(before)) if cap_at_one else before


def sequence_log_ratio(log_ratios: Float[Array, "*B T"], token_mask: Bool[Array, "*B T"]) -> Float[Array, "*B"]:
    """Sum the log-ratios of a sequence: the logarithm of the sequence's probability ratio.

    ``Σ_{t, m_t} l_t``; 0 for a sequence without a valid token.

    >>> float(sequence_log_ratio(jnp.array([0.5, -0.25, 9.0]), jnp.array([True, True, False])))
    0.25
    """
    return masked_sum(log_ratios, token_mask, axis=-1)


def sequence_mean_log_ratio(log_ratios: Float[Array, "*B T"], token_mask: Bool[Array, "*B T"]) -> Float[Array, "*B"]:
    """Average the log-ratios of a sequence: the logarithm of the geometric-mean ratio.

    ``log s = (1/n) Σ_{t, m_t} l_t``, n the valid tokens; 0 for a sequence without one.

    References: GSPO, arXiv 2507.18071, eq. 7.

    >>> float(sequence_mean_log_ratio(jnp.array([0.5, -0.25, 9.0]), jnp.array([True, True, False])))
    0.125
    """
    return masked_mean(log_ratios, token_mask, axis=-1)
