"""The gradient of an objective over a batch, in one piece or accumulated over micro-batches of whole prompts."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from trustax.objectives import Objective
from trustax.policies import Policy, join
from trustax.scoring.score import FROM_LOGITS, FROM_ROLLOUT, completion_hidden, score
from trustax.training.config import CriticConfig
from trustax.training.critic import ValueTargets, value_loss
from trustax.types import Metric, Rollout, TokenStats, merge_metrics, pytree_dataclass

FROM_BATCH = frozenset({"log_anchor", "log_ref", "divergence_rate"})


@pytree_dataclass
class Batch:
    """A rollout with what the trainer adds to it: advantages, and log-probs under other parameters where needed."""

    rollout: Rollout
    advantages: Float[Array, "B *T"]
    log_anchor: Float[Array, "B T"] | None = None
    log_ref: Float[Array, "B T"] | None = None
    divergence_rate: Float[Array, "B T"] | None = None
    value_targets: ValueTargets | None = None


class Fates(NamedTuple):
    """What the objective decided about each token, for people to look at."""

    keep: Bool[Array, "B T"]
    divergence: Float[Array, "B T"]


class Gradients(NamedTuple):
    """A loss as a sum and its weight, the gradient of the *sum*, and what was seen."""

    total: Float[Array, ""]
    weight: Float[Array, ""]
    of_sum: Any
    metrics: dict[str, Metric]
    fates: Fates

    def mean(self) -> tuple[Float[Array, ""], Any]:
        """The loss and its gradient: sums divided once by the whole weight; both 0 where nothing counts."""
        weight = jnp.where(self.weight > 0, self.weight, jnp.ones_like(self.weight))
        return self.total / weight, jax.tree.map(lambda g: g / weight.astype(g.dtype), self.of_sum)


def batch_stats(
    policy: Policy,
    params: Any,
    batch: Batch,
    version: Int[Array, ""],
    *,
    needs: frozenset[str],
    differentiable: frozenset[str],
    hidden: Float[Array, "B T D"] | None = None,
) -> TokenStats:
    """Score a batch and join what it carries."""
    return score(
        policy,
        params,
        batch.rollout,
        needs=needs & (FROM_LOGITS | FROM_ROLLOUT),
        differentiable=differentiable,
        advantages=batch.advantages,
        version=version,
        hidden=hidden,
    ).replace(log_anchor=batch.log_anchor, log_ref=batch.log_ref, divergence_rate=batch.divergence_rate)


def loss_gradients(
    policy: Policy,
    params: Any,
    objective: Objective,
    batch: Batch,
    version: Int[Array, ""],
    *,
    micro_batches: int = 1,
    critic: CriticConfig | None = None,
) -> Gradients:
    """The gradient of ``objective``, and of the critic's loss, with respect to what is trained of ``params``.

    The split into ``micro_batches`` changes nothing but memory.

    Except for an objective with ``spec.batch_statistics``: its parts see one micro-batch, not the batch.
    """

    trained, frozen = policy.split(params)

    def loss_sum(trained: Any, part: Batch):
        params = join(trained, frozen)
        # Entropy is looked at, whether or not the objective asks for it; it then carries no gradient.
        needs = objective.needs | {"entropy"}
        hidden = completion_hidden(policy, params, part.rollout)
        stats = batch_stats(
            policy, params, part, version, needs=needs, differentiable=objective.differentiable, hidden=hidden
        )
        out, fates = objective(stats), objective.per_token(stats)
        total, metrics = out.sum, out.metrics
        if critic is not None and part.value_targets is not None:
            added, seen = value_loss(policy, params, objective, part.rollout, part.value_targets, critic, hidden=hidden)
            total, metrics = total + added, metrics | seen
        return total, (out.weight, metrics, Fates(fates.keep, fates.divergence))

    def gradients(part: Batch) -> Gradients:
        (total, (weight, metrics, fates)), grads = jax.value_and_grad(loss_sum, has_aux=True)(trained, part)
        return Gradients(total, weight, grads, metrics, fates)

    if micro_batches == 1:
        return gradients(batch)
    parts = [take_prompts(batch, part, micro_batches) for part in range(micro_batches)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    shapes = jax.eval_shape(gradients, parts[0])._replace(fates=None)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def add(sofar: Gradients, part: Batch) -> tuple[Gradients, Fates]:
        new = gradients(part)
        return _merge(sofar, new), new.fates

    whole, fates = jax.lax.scan(add, nothing, stacked)
    return whole._replace(fates=jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), fates))


def _merge(one: Gradients, other: Gradients) -> Gradients:
    return Gradients(
        total=one.total + other.total,
        weight=one.weight + other.weight,
        of_sum=jax.tree.map(jnp.add, one.of_sum, other.of_sum),
        metrics=merge_metrics([one.metrics, other.metrics]),
        fates=one.fates,
    )


def take_prompts(batch: Batch, part: int, parts: int) -> Batch:
    """Part ``part`` of ``parts`` equal ones, made of whole groups: rows of one prompt stay together."""
    rollout = batch.rollout
    prompts, rows = rollout.prompt_tokens.shape[0], rollout.tokens.shape[0]
    if prompts % parts:
        raise ValueError(f"{prompts} prompts do not divide into {parts} equal parts")
    p, b = prompts // parts, rows // parts

    def of_rows(tree: Any) -> Any:
        return jax.tree.map(lambda x: x[part * b : (part + 1) * b], tree)

    of_prompts = {
        name: None if values is None else values[part * p : (part + 1) * p]
        for name, values in (
            ("prompt_tokens", rollout.prompt_tokens),
            ("prompt_valid", rollout.prompt_valid),
            ("prompt_routes", rollout.prompt_routes),
        )
    }
    whole = {"transform": rollout.transform}
    fields = {field.name for field in dataclasses.fields(rollout)} - of_prompts.keys() - whole.keys()
    by_row = of_rows({name: getattr(rollout, name) for name in sorted(fields)})
    by_row["prompt_index"] = by_row["prompt_index"] - part * p
    added = (batch.advantages, batch.log_anchor, batch.log_ref, batch.divergence_rate, batch.value_targets)
    extras = [of_rows(x) for x in added]
    return Batch(Rollout(**of_prompts, **whole, **by_row), *extras)
