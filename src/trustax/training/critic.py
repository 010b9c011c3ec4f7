"""A critic in training: advantages and returns by GAE before the first update, the value loss in each one."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.objectives import Objective
from trustax.ops.advantages import gae
from trustax.ops.masked import masked_whiten, select
from trustax.ops.value_loss import clipped_value_loss
from trustax.policies import Policy
from trustax.scoring.score import token_values
from trustax.training.config import CriticConfig
from trustax.types import Metric, Rollout, pytree_dataclass


@pytree_dataclass
class ValueTargets:
    """What the critic said before the updates, and what it should have said."""

    values: Float[Array, "B T"]
    returns: Float[Array, "B T"]


@jax.jit(static_argnums=(0, 3))
def gae_targets(
    policy: Policy, params: Any, rollout: Rollout, config: CriticConfig
) -> tuple[Float[Array, "B T"], ValueTargets]:
    """Token advantages and the critic's targets. The reward stands at a row's last token, after which V is 0."""
    mask = rollout.token_mask
    places = jnp.broadcast_to(jnp.arange(mask.shape[1]), mask.shape)
    last = places == jnp.max(jnp.where(mask, places, -1), axis=1, keepdims=True)
    assert rollout.rewards is not None
    rewards = jnp.where(last, rollout.rewards[:, None], 0.0)
    values = token_values(policy, params, rollout)
    advantages = gae(rewards, values, mask, gamma=config.gamma, lam=config.lam)
    targets = ValueTargets(values, advantages + select(values, mask))
    return masked_whiten(advantages, mask) if config.whiten else advantages, targets


def value_loss(
    policy: Policy,
    params: Any,
    objective: Objective,
    rollout: Rollout,
    targets: ValueTargets,
    config: CriticConfig,
    *,
    hidden: Float[Array, "B T D"],
) -> tuple[Float[Array, ""], dict[str, Metric]]:
    """The sum that joins the objective's: aggregated as it is, so that one weight divides both."""
    values = token_values(policy, params, rollout, hidden=hidden)
    mask = rollout.token_mask
    losses = clipped_value_loss(values, targets.values, targets.returns, clip=config.clip)
    found = objective.spec.aggregation(losses, mask, jnp.ones_like(mask))
    count = jnp.sum(mask).astype(jnp.float32)
    metrics = {
        "value/loss": Metric(found.sum, found.weight),
        "value/mean": Metric(jnp.sum(select(values, mask)), count),
        "value/return_mean": Metric(jnp.sum(select(targets.returns, mask)), count),
    }
    return config.coefficient * found.sum, jax.lax.stop_gradient(metrics)
