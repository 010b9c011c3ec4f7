"""The loss of a value model. ``B`` sequences, ``T`` tokens."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def clipped_value_loss(
    values: Float[Array, "*B T"],
    behavior_values: Float[Array, "*B T"],
    returns: Float[Array, "*B T"],
    *,
    clip: Float[Array, ""] | float,
) -> Float[Array, "*B T"]:
    """Square the distance of values from returns, with the value's step clipped.

    ``l = ½ max((V − R)², (V_old + clip(V − V_old, ±c) − R)²)``: PPO's clip carried over to values, so that no update
    gains from moving a value by more than c. It is pessimistic: it never lowers the loss.

    Args:
        values: V of each token under the parameters that are trained.
        behavior_values: V_old, from before the update; detached.
        returns: R = A + V_old; detached.
        clip: c > 0 in units of the reward; ``inf`` for the plain squared error.

    Returns: ``[*B, T]``, one loss a token, to be aggregated like the policy's.

    Gradient: V − R where the plain term is the larger or both are equal; 0 where the clipped one is and its step is
    beyond c.

    Edge cases: values that are NaN at invalid tokens give NaN there; the aggregation selects before it sums.

    References: Schulman et al., "Proximal Policy Optimization Algorithms", arXiv 1707.06347, eq. 9 (the plain term);
    the clip is that of its authors' code.

    >>> clipped_value_loss(jnp.array([1.0, 1.0]), jnp.array([0.0, 0.0]), jnp.array([2.0, 2.0]), clip=0.5).tolist()
    [1.125, 1.125]
    """
    limit = jnp.broadcast_to(jnp.asarray(clip, values.dtype), values.shape)
    clipped = behavior_values + jnp.clip(values - behavior_values, -limit, limit)
    plain_error, clipped_error = jnp.square(values - returns), jnp.square(clipped - returns)
    return 0.5 * jnp.where(clipped_error > plain_error, clipped_error, plain_error)
