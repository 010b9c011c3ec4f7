"""Token statistics made safe once, at the entrance: what every term reads.

Values at masked positions are replaced by neutral ones here, before any arithmetic, so that no term can let padding
through. A token whose own numbers are not finite leaves the loss and is counted.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from trustax.objectives.term import Leaf
from trustax.ops.masked import select
from trustax.ops.ratios import positions
from trustax.types import Support, TokenStats, pytree_dataclass, static_field


@pytree_dataclass
class TokenView:
    """``TokenStats`` with neutral values at invalid positions, in one dtype, all but ``log_pi_grad`` detached.

    ``valid`` is ``token_mask`` without non-finite tokens; ``position`` counts valid tokens from 1.
    """

    log_pi_grad: Float[Array, "*B T"]
    log_pi: Float[Array, "*B T"]
    log_mu: Float[Array, "*B T"]
    advantages: Float[Array, "*B T"]
    valid: Bool[Array, "*B T"]
    position: Int[Array, "*B T"]
    length: Int[Array, "*B"]
    nonfinite: Bool[Array, "*B T"]
    log_anchor: Float[Array, "*B T"] | None
    log_ref: Float[Array, "*B T"] | None
    entropy: Float[Array, "*B T"] | None
    sum_sq_pi: Float[Array, "*B T"] | None
    divergence_rate: Float[Array, "*B T"] | None
    policy_staleness: Int[Array, "*B T"] | None
    support: Support | None
    vocab_size: int | None = static_field(default=None)

    @property
    def dtype(self) -> jnp.dtype:
        """The computing dtype: float32, or float64 if the log-probs are."""
        return self.log_pi.dtype

    def full(self, value: Leaf) -> Float[Array, "*B T"]:
        """A constant of the tokens' shape."""
        return jnp.broadcast_to(jnp.asarray(value, self.dtype), self.log_pi.shape)

    def per_sequence(self, values: Shaped[Array, "*B"]) -> Shaped[Array, "*B T"]:
        """One number per sequence, repeated for each of its tokens."""
        return jnp.broadcast_to(values[..., None], self.log_pi.shape)


def _support_nan(support: Support, token_mask: Array) -> Array:
    """Tokens with a NaN in a slot that would be read."""
    read = support.mask & token_mask[..., None]
    return jnp.any(read & (jnp.isnan(support.log_mu) | jnp.isnan(support.log_pi)), axis=-1)


def _safe_support(support: Support, valid: Array, dtype: jnp.dtype) -> Support:
    mask = support.mask & valid[..., None]

    def tail(log_mass: Array | None) -> Array | None:
        return None if log_mass is None else select(log_mass.astype(dtype), valid & ~jnp.isnan(log_mass), -jnp.inf)

    return Support(
        ids=jnp.where(mask, support.ids, jnp.zeros_like(support.ids)),
        log_mu=select(support.log_mu.astype(dtype), mask),
        log_pi=select(support.log_pi.astype(dtype), mask),
        mask=mask,
        sampled_slot=jnp.where(valid, support.sampled_slot, jnp.zeros_like(support.sampled_slot)),
        tail_log_mu=tail(support.tail_log_mu),
        tail_log_pi=tail(support.tail_log_pi),
        tail_log_sum_sq_pi=tail(support.tail_log_sum_sq_pi),
    )


def view_of(stats: TokenStats, needs: frozenset[str], *, detach: bool = True) -> TokenView:
    """Select, cast and detach ``stats``; only fields that ``needs`` names can make a token non-finite."""
    dtype = stats.log_pi.dtype if stats.log_pi.dtype.itemsize >= 4 else jnp.dtype(jnp.float32)
    token_mask = stats.token_mask
    required = [stats.log_pi, stats.log_mu, stats.advantages]
    optional = {name: getattr(stats, name) for name in ("log_anchor", "log_ref", "entropy", "divergence_rate")}
    required += [value for name, value in optional.items() if name in needs and value is not None]
    finite = jnp.all(jnp.stack([jnp.isfinite(value) for value in required]), axis=0)
    support = stats.support
    if support is not None and "support" in needs:
        finite &= ~_support_nan(support, token_mask)
    valid = token_mask & finite

    def safe(values: Array | None) -> Array | None:
        if values is None:
            return None
        return select(values.astype(dtype), valid & jnp.isfinite(values))

    log_pi = select(stats.log_pi.astype(dtype), valid)
    entropy = safe(stats.entropy)
    detached = jax.lax.stop_gradient if detach else lambda x: x
    return TokenView(
        log_pi_grad=log_pi,
        log_pi=detached(log_pi),
        log_mu=detached(select(stats.log_mu.astype(dtype), valid)),
        advantages=detached(select(stats.advantages.astype(dtype), valid)),
        valid=valid,
        position=positions(valid),
        length=jnp.sum(valid, axis=-1),
        nonfinite=token_mask & ~finite,
        log_anchor=detached(safe(stats.log_anchor)),
        log_ref=detached(safe(stats.log_ref)),
        entropy=entropy,
        sum_sq_pi=detached(safe(stats.sum_sq_pi)),
        divergence_rate=detached(safe(stats.divergence_rate)),
        policy_staleness=stats.policy_staleness,
        support=None if support is None else detached(_safe_support(support, valid, dtype)),
        vocab_size=stats.vocab_size,
    )


Statistic = TypeVar("Statistic")


def required(value: Statistic | None, name: str) -> Statistic:
    """``value``, or an error naming the statistic that is missing (checked before, so only a direct call gets here)."""
    if value is None:
        raise ValueError(f"the statistics lack {name!r}: ask the scorer for it (score(..., needs=objective.needs))")
    return value


def support_arguments(view: TokenView) -> tuple[tuple[Array, ...], dict[str, Any]]:
    """What every direction over a support is called with."""
    support = required(view.support, "support")
    known = {
        "sum_sq_pi": view.sum_sq_pi,
        "vocab_size": view.vocab_size,
        "tail_log_pi": support.tail_log_pi,
        "tail_log_mu": support.tail_log_mu,
        "tail_log_sum_sq_pi": support.tail_log_sum_sq_pi,
    }
    return (support.log_pi, support.log_mu, support.mask, support.sampled_slot), known
