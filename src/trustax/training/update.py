"""One policy update: score a minibatch, ask the objective, step the optimizer."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from trustax.objectives import Objective
from trustax.policies.policy import Policy
from trustax.scoring.score import FROM_LOGITS, FROM_ROLLOUT, score
from trustax.training.optimizer import apply_update
from trustax.types import Metric, Rollout, pytree_dataclass

FROM_TRAINER = frozenset({"log_anchor", "log_ref"})


@pytree_dataclass
class Batch:
    """A rollout with what the trainer adds to it before the first update."""

    rollout: Rollout
    advantages: Float[Array, "B"]
    log_anchor: Float[Array, "B T"] | None = None
    log_ref: Float[Array, "B T"] | None = None


class Fates(NamedTuple):
    """What the objective decided about each token, for people to look at."""

    keep: Bool[Array, "B T"]
    divergence: Float[Array, "B T"]


class UpdateResult(NamedTuple):
    """The state after an update and what was seen on the way."""

    params: Any
    opt_state: Any
    metrics: dict[str, Metric]
    fates: Fates


def check_needs(objective: Objective) -> None:
    """Refuse an objective whose needs neither the scorer nor the trainer can meet."""
    unmet = objective.needs - FROM_LOGITS - FROM_ROLLOUT - FROM_TRAINER
    if unmet:
        raise ValueError(f"the objective needs {sorted(unmet)}, which this trainer does not compute")


def make_update(
    policy: Policy, optimizer: optax.GradientTransformation, *, micro_batches: int
) -> Callable[..., UpdateResult]:
    """Compile ``update(params, opt_state, objective, batch, version, rate, clip_norm)``; params and state are donated.

    The batch is split into ``micro_batches`` of whole prompts; sums and weights are added up and divided once, so
    that the split changes nothing but memory.
    """

    def loss_sum(params: Any, objective: Objective, batch: Batch, version: Int[Array, ""]):
        stats = score(
            policy,
            params,
            batch.rollout,
            needs=(objective.needs & (FROM_LOGITS | FROM_ROLLOUT)) | {"entropy"},
            differentiable=objective.differentiable,
            advantages=batch.advantages,
            version=version,
        ).replace(log_anchor=batch.log_anchor, log_ref=batch.log_ref)
        out = objective(stats)
        fates = objective.per_token(stats)
        return out.sum, (out.weight, out.metrics, Fates(fates.keep, fates.divergence))

    def gradients(params: Any, objective: Objective, batch: Batch, version: Int[Array, ""]):
        (total, (weight, metrics, fates)), grads = jax.value_and_grad(loss_sum, has_aux=True)(
            params, objective, batch, version
        )
        return total, weight, grads, metrics, fates

    def update(params, opt_state, objective, batch, version, rate, clip_norm) -> UpdateResult:
        if micro_batches == 1:
            total, weight, grads, metrics, fates = gradients(params, objective, batch, version)
        else:
            total, weight, grads, metrics, fates = _accumulate(
                lambda part: gradients(params, objective, part, version), batch, micro_batches
            )
        weight = jnp.maximum(weight, jnp.finfo(weight.dtype).tiny)
        grads = jax.tree.map(lambda g: g / weight.astype(g.dtype), grads)
        new = apply_update(optimizer, grads, opt_state, params, rate=rate, clip_norm=clip_norm)
        one = jnp.ones((), jnp.float32)
        metrics = metrics | {
            "update/loss": Metric(total / weight, one),
            "update/grad_norm": Metric(new.grad_norm, one),
            "update/learning_rate": Metric(rate, one),
        }
        return UpdateResult(new.params, new.opt_state, metrics, fates)

    return jax.jit(update, donate_argnums=(0, 1))


def _accumulate(gradients: Callable[[Batch], tuple], batch: Batch, parts: int) -> tuple:
    """Add up sums, weights and gradients over micro-batches of whole prompts; merge metrics; line up the fates."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[take_prompts(batch, i, parts) for i in range(parts)])
    first = jax.eval_shape(gradients, jax.tree.map(lambda x: x[0], stacked))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), first[:4])

    def add(carry, part):
        total, weight, grads, metrics = carry
        more_total, more_weight, more_grads, more_metrics, fates = gradients(part)
        metrics = {name: metric.merge(more_metrics[name]) for name, metric in metrics.items()}
        return (total + more_total, weight + more_weight, jax.tree.map(jnp.add, grads, more_grads), metrics), fates

    (total, weight, grads, metrics), fates = jax.lax.scan(add, nothing, stacked)
    return total, weight, grads, metrics, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), fates)


def take_prompts(batch: Batch, part: int, parts: int) -> Batch:
    """Part ``part`` of ``parts`` equal ones, made of whole groups: rows of one prompt stay together."""
    rollout = batch.rollout
    prompts, rows = rollout.prompt_tokens.shape[0], rollout.tokens.shape[0]
    if prompts % parts:
        raise ValueError(f"{prompts} prompts do not divide into {parts} equal parts")
    p, b = prompts // parts, rows // parts

    def of_rows(x: Array) -> Array:
        return x[part * b : (part + 1) * b]

    per_prompt = {name: getattr(rollout, name)[part * p : (part + 1) * p] for name in ("prompt_tokens", "prompt_valid")}
    others = {
        field.name: jax.tree.map(of_rows, getattr(rollout, field.name))
        for field in dataclasses.fields(rollout)
        if field.name not in (*per_prompt, "transform", "prompt_index")
    }
    taken = rollout.replace(**per_prompt, **others, prompt_index=of_rows(rollout.prompt_index) - part * p)
    rest = jax.tree.map(of_rows, (batch.advantages, batch.log_anchor, batch.log_ref))
    return Batch(taken, *rest)
