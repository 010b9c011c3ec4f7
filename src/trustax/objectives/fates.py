"""What an objective decides about each token: the one computation behind its loss, its metrics and its pictures."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.view import TokenView
from trustax.types import pytree_dataclass


@pytree_dataclass
class TokenFates:
    """Per-token decisions, all ``[B, T]`` and detached.

    Attributes:
        valid: the token is trainable and all its numbers are finite.
        keep: valid and not dropped by the mask.
        weight: the gradient weight w: weights × gates, 0 where not kept.
        surrogate: the same as if nothing had been dropped.
        far: beyond the threshold of the objective's (first) mask.
        outward: the token's update would move it further, by that mask's direction.
        divergence: the size of the statistic that mask reads; binary TV where there is no mask.
        direction: signed; with the advantage's sign it tells outward.
        capped: a cap or a floor decided a factor of the weight.
    """

    valid: Bool[Array, "*B T"]
    keep: Bool[Array, "*B T"]
    weight: Float[Array, "*B T"]
    surrogate: Float[Array, "*B T"]
    far: Bool[Array, "*B T"]
    outward: Bool[Array, "*B T"]
    divergence: Float[Array, "*B T"]
    direction: Float[Array, "*B T"]
    capped: Bool[Array, "*B T"]


def token_fates(spec: ObjectiveSpec, view: TokenView) -> TokenFates:
    """Ask the mask, the weights and the gates about every token."""
    reading = spec.mask(view)
    surrogate, capped = view.full(1.0), jnp.zeros_like(view.valid)
    for weight in spec.weights:
        value, hit = weight(view)
        surrogate, capped = surrogate * value, capped | hit
    for gate in spec.gates:
        surrogate = surrogate * gate(view)
    keep, zero = reading.keep & view.valid, view.full(0.0)
    return TokenFates(
        valid=view.valid,
        keep=keep,
        weight=jnp.where(keep, surrogate, zero),
        surrogate=jnp.where(view.valid, surrogate, zero),
        far=reading.far & view.valid,
        outward=reading.outward & view.valid,
        divergence=jnp.where(view.valid, reading.divergence, zero),
        direction=jnp.where(view.valid, reading.direction, zero),
        capped=capped & view.valid,
    )
