"""One policy update: score a minibatch, ask the objective, step the optimizer."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from trustax.objectives import Objective
from trustax.ops.advantages import GAE
from trustax.policies import Policy, join
from trustax.scoring.score import FROM_LOGITS, FROM_ROLLOUT
from trustax.training.config import CriticConfig
from trustax.training.divergence_rate import divergence_rate
from trustax.training.gradients import FROM_BATCH, Fates, loss_gradients
from trustax.training.optimizer import apply_update
from trustax.training.placement import Placement
from trustax.types import Metric


class UpdateResult(NamedTuple):
    """The state after an update and what was seen on the way."""

    params: Any
    opt_state: Any
    metrics: dict[str, Metric]
    fates: Fates


def check_needs(objective: Objective, *, has_critic: bool = False) -> None:
    """Refuse an objective whose needs neither the scorer nor the trainer can meet, or a critic that nothing uses."""
    if (objective.advantage == GAE) != has_critic:
        raise ValueError(
            f"advantages by {objective.advantage!r} and {'a' if has_critic else 'no'} value head do not go together: "
            "policy.value_head=shared (or own) belongs to ppo_clip with objective.hyperparameters.critic=true, and to "
            "nothing else"
        )
    unmet = objective.needs - FROM_LOGITS - FROM_ROLLOUT - FROM_BATCH
    if unmet:
        raise ValueError(f"the objective needs {sorted(unmet)}, which this trainer does not compute")


def update_function(
    policy: Policy,
    optimizer: optax.GradientTransformation,
    *,
    micro_batches: int,
    critic: CriticConfig | None = None,
) -> Callable[..., UpdateResult]:
    """``update(params, opt_state, objective, batch, version, rate, clip_norm)``, not compiled.

    The optimizer's state is of what is trained, ``policy.split(params)[0]``.
    """

    def update(params, opt_state, objective, batch, version, rate, clip_norm) -> UpdateResult:
        if "divergence_rate" in objective.needs:
            rates = divergence_rate(
                policy,
                optimizer,
                params,
                opt_state,
                objective,
                batch,
                version=version,
                rate=rate,
                clip_norm=clip_norm,
                micro_batches=micro_batches,
                critic=critic,
            )
            batch = dataclasses.replace(batch, divergence_rate=rates)
        found = loss_gradients(policy, params, objective, batch, version, micro_batches=micro_batches, critic=critic)
        loss, grads = found.mean()
        trained, frozen = policy.split(params)
        new = apply_update(optimizer, grads, opt_state, trained, rate=rate, clip_norm=clip_norm)
        one = jnp.ones((), jnp.float32)
        metrics = found.metrics | {
            "update/loss": Metric(loss, one),
            "update/grad_norm": Metric(new.grad_norm, one),
            "update/learning_rate": Metric(rate, one),
        }
        return UpdateResult(join(new.params, frozen), new.opt_state, metrics, found.fates)

    return update


def make_update(
    policy: Policy,
    optimizer: optax.GradientTransformation,
    *,
    micro_batches: int,
    critic: CriticConfig | None = None,
    placement: Placement | None = None,
) -> Callable[..., UpdateResult]:
    """Compile ``update_function``.

    Parameters and optimizer state are donated: whoever wants to keep the old ones copies them first. With a
    ``placement`` they stay where it puts them, and it puts the batch beside them.
    """
    update = update_function(policy, optimizer, micro_batches=micro_batches, critic=critic)
    if placement is None:
        return jax.jit(update, donate_argnums=(0, 1))
    out = UpdateResult(placement.params, placement.opt_state, cast(Any, None), cast(Any, None))
    sharded = jax.jit(update, donate_argnums=(0, 1), out_shardings=out)

    def placed(params, opt_state, objective, batch, *rest) -> UpdateResult:
        return sharded(params, opt_state, objective, placement.batch(batch), *rest)

    return placed
