"""The training loop: rollouts, advantages, several updates a batch, evaluation, checkpoints.

The order inside a step is part of what is reproducible. Do not change it without a line in the CHANGELOG.
"""

import dataclasses
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from trustax.data.stream import PromptStream
from trustax.errors import RunError, RunInterrupted
from trustax.objectives import ADVANTAGES, Objective
from trustax.ops.advantages import GAE
from trustax.ops.masked import masked_mean
from trustax.policies import Policy, join, without_critic
from trustax.rollouts.collect import Collector
from trustax.rollouts.config import RolloutConfig
from trustax.rollouts.dynamic import collect_dynamically
from trustax.rollouts.metrics import rollout_metrics
from trustax.rollouts.overlong import handle_overlong
from trustax.rollouts.samples import sample_records
from trustax.scoring.score import score
from trustax.training.config import OptimizerConfig, TrainConfig
from trustax.training.critic import ValueTargets, gae_targets
from trustax.training.early_warning import early_warning
from trustax.training.gradients import Batch, take_prompts
from trustax.training.optimizer import learning_rate
from trustax.training.state import Pending, TrainState
from trustax.training.update import UpdateResult
from trustax.types import Metric, Rollout, Verdict, merge_metrics


class Recorder(Protocol):
    """Where the loop writes what happened; timings stand apart, so that the rest is reproducible."""

    def step(self, step: int, metrics: dict[str, float], timing: dict[str, float]) -> None: ...

    def samples(self, step: int, records: Sequence[dict[str, Any]]) -> None: ...

    def evaluation(self, step: int, metrics: dict[str, float], timing: dict[str, float]) -> None: ...


class Evaluation(Protocol):
    """What an evaluation found: two accuracies, and completions as records."""

    @property
    def sampled(self) -> float: ...

    @property
    def greedy(self) -> float: ...

    @property
    def records(self) -> list[dict[str, Any]]: ...


@dataclasses.dataclass(frozen=True)
class Trainer:
    """All that a run needs and that does not change while it runs."""

    policy: Policy
    objective: Objective
    collector: Collector
    stream: PromptStream
    update: Callable[..., UpdateResult]
    evaluate: Callable[[Any, Callable[[], bool]], Evaluation | None]
    config: TrainConfig
    rollout: RolloutConfig
    optimizer: OptimizerConfig
    recorder: Recorder
    save: Callable[[TrainState], None]
    stop_requested: Callable[[], bool]


def train(trainer: Trainer, state: TrainState) -> TrainState:
    """Run until ``config.steps`` rollout batches are used up.

    An evaluation belongs to the step before it and is made before that step's checkpoint, so that a resumed run finds
    either both or neither.

    Raises:
      RunInterrupted: after a stop request, with the state saved.
      RunError: at a loss or a gradient that is not finite.
    """
    config = trainer.config
    trainer.stream.set_state(state.stream if state.pending is None else state.pending.stream_after)
    while True:
        if _evaluation_due(config, state):
            _evaluate(trainer, state)
        if _checkpoint_due(config, state):
            trainer.save(state)
        if state.step >= config.steps:
            return state
        _stop_if_asked(trainer, state)
        _step(trainer, state)


def _step(trainer: Trainer, state: TrainState) -> None:
    """One rollout batch and all of its updates."""
    timing = {}
    if state.pending is None:
        clock = time.monotonic()
        _collect(trainer, state)
        timing["rollout_seconds"] = time.monotonic() - clock
        _stop_if_asked(trainer, state)
    assert state.pending is not None
    clock = time.monotonic()
    while state.pending.done < trainer.config.minibatches:
        if state.pending.done:
            _stop_if_asked(trainer, state)
        _update(trainer, state)
    _finish_step(trainer, state, timing | {"update_seconds": time.monotonic() - clock})


def _checkpoint_due(config: TrainConfig, state: TrainState) -> bool:
    if state.pending is not None or state.step == 0:
        return False
    on_schedule = config.checkpoint_every > 0 and state.step % config.checkpoint_every == 0
    return on_schedule or state.step == config.steps


def _stop_if_asked(trainer: Trainer, state: TrainState) -> None:
    if trainer.stop_requested():
        # A rollout that no update has used yet is not kept: its keys and its prompts follow from the saved state.
        if state.pending is not None and state.pending.done == 0:
            state.pending = None
        trainer.save(state)
        raise RunInterrupted(f"stopped after step {state.step}, update {state.updates}; the state is saved")


def _evaluation_due(config: TrainConfig, state: TrainState) -> bool:
    at_an_end = state.step in (0, config.steps)
    on_schedule = config.eval_every > 0 and state.step % config.eval_every == 0
    return state.pending is None and (at_an_end or on_schedule) and str(state.step) not in state.evaluations


def _evaluate(trainer: Trainer, state: TrainState) -> None:
    clock = time.monotonic()
    found = trainer.evaluate(state.params, lambda: not trainer.stop_requested())
    if found is None:
        _stop_if_asked(trainer, state)
        raise RunError("the evaluation ended early although nobody asked to stop")
    state.evaluations[str(state.step)] = {"sampled": found.sampled, "greedy": found.greedy}
    metrics = {"eval/sampled": found.sampled, "eval/greedy": found.greedy}
    trainer.recorder.evaluation(state.step, metrics, {"eval_seconds": time.monotonic() - clock})
    trainer.recorder.samples(state.step, [record | {"phase": "eval"} for record in found.records])


def _collect(trainer: Trainer, state: TrainState) -> None:
    """Draw prompts, sample and judge completions, and add what the objective wants known before the first update."""
    rollout, completions, told = collect_dynamically(
        trainer.collector,
        state.params,
        lambda: next(trainer.stream),
        rounds=trainer.rollout.dynamic_rounds,
        step=state.step,
        version=state.updates,
    )
    before = rollout_metrics(rollout, completions) | told
    rollout, told = handle_overlong(rollout, completions, trainer.rollout)
    rollout, advantages, targets = _estimate(trainer, state.params, rollout)
    needs = trainer.objective.needs
    state.pending = Pending(
        batch=Batch(
            rollout=rollout,
            advantages=advantages,
            log_anchor=_log_probs(trainer.policy, state.params, rollout) if "log_anchor" in needs else None,
            log_ref=_log_ref(trainer.policy, state, rollout) if "log_ref" in needs else None,
            value_targets=targets,
        ),
        stream_after=trainer.stream.get_state(),
        done=0,
        fates=[],
        update_metrics=[],
        rollout_metrics=before | told,
        samples=sample_records(completions, _of_rows(advantages, rollout), trainer.collector.tokenizer),
    )


def _estimate(trainer: Trainer, params: Any, rollout: Rollout) -> tuple[Rollout, jax.Array, ValueTargets | None]:
    """Advantages, one a completion or one a token, and what the critic is to learn where there is one."""
    if trainer.objective.advantage != GAE:
        return *_advantages(trainer.objective.advantage, rollout), None
    rollout = rollout.replace(token_mask=rollout.token_mask & _was_graded(rollout)[:, None])
    return rollout, *gae_targets(trainer.policy, params, rollout, trainer.config.critic)


def _was_graded(rollout: Rollout) -> jax.Array:
    return (rollout.verdict != int(Verdict.TIMEOUT)) & (rollout.verdict != int(Verdict.ERROR))


def _advantages(estimator: str, rollout: Rollout) -> tuple[Rollout, jax.Array]:
    """Estimate advantages. A completion whose grading failed is no wrong answer: it leaves baseline and loss."""
    graded = _was_graded(rollout)
    estimate = ADVANTAGES[estimator]
    lengths = {}
    if "lengths" in inspect.signature(estimate).parameters:
        lengths["lengths"] = rollout.token_mask.sum(axis=-1).astype(jnp.float32)
    advantages = estimate(rollout.rewards, rollout.group_id, valid=graded, **lengths)
    return rollout.replace(token_mask=rollout.token_mask & graded[:, None]), advantages


def _of_rows(advantages: jax.Array, rollout: Rollout) -> np.ndarray:
    """One number a completion for people to look at: that of its tokens on average."""
    return np.asarray(advantages if advantages.ndim == 1 else masked_mean(advantages, rollout.token_mask, axis=-1))


def _log_ref(policy: Policy, state: TrainState, rollout: Rollout) -> jax.Array:
    """Log-probs under the reference, which holds what is trained and shares what is frozen."""
    return _log_probs(policy, join(state.reference, policy.split(state.params)[1]), rollout)


@jax.jit(static_argnums=0)
def _log_probs(policy: Policy, params: Any, rollout: Rollout) -> jax.Array:
    return score(policy, params, rollout).log_pi


def _update(trainer: Trainer, state: TrainState) -> None:
    pending = state.pending
    assert pending is not None
    updates = jnp.int32(state.updates)
    result = trainer.update(
        state.params,
        state.opt_state,
        trainer.objective,
        take_prompts(pending.batch, pending.done, trainer.config.minibatches),
        updates,
        learning_rate(trainer.optimizer, updates),
        jnp.float32(trainer.optimizer.clip_norm),
    )
    state.params, state.opt_state = result.params, result.opt_state
    pending.fates.append(result.fates)
    pending.update_metrics.append(jax.block_until_ready(result.metrics))
    _stop_on_nonfinite(state, pending.update_metrics[-1])
    pending.done += 1
    state.updates += 1


def _stop_on_nonfinite(state: TrainState, metrics: dict[str, Metric]) -> None:
    bad = [name for name in ("update/loss", "update/grad_norm") if not np.isfinite(metrics[name].total)]
    lost = metrics.get("tokens/nonfinite")
    if lost is not None and lost.total > 0:
        bad.append(f"log-probs of {int(lost.total)} tokens")
    if bad:
        raise RunError(
            f"step {state.step}, update {state.updates}: {' and '.join(bad)} are not finite; the run stops and the "
            "last checkpoint is untouched. Look at metrics.jsonl for what grew before; a lower "
            "optimizer.learning_rate or optimizer.clip_norm is the usual remedy"
        )


def _finish_step(trainer: Trainer, state: TrainState, timing: dict[str, float]) -> None:
    """Write the step's record and forget its batch. Metrics merge over minibatches by their own weights."""
    pending = state.pending
    assert pending is not None
    merged = merge_metrics(pending.update_metrics)
    seen = {name: float(metric) for name, metric in merged.items() if metric.weight > 0}
    tokens = int(pending.batch.rollout.token_mask.sum())
    timing = timing | {"compilations": trainer.collector.sampler.traces}
    if "rollout_seconds" in timing:  # absent where the batch was collected before a resumption
        timing["tokens_per_second"] = tokens / max(timing["rollout_seconds"], 1e-9)
    if trainer.config.early_warning:
        seen |= early_warning(_log_probs(trainer.policy, state.params, pending.batch.rollout), pending.batch.rollout)
    step = state.step + 1
    trainer.recorder.step(step, pending.rollout_metrics | seen, timing)
    trainer.recorder.samples(step, _with_fates(pending))
    if _reference_due(trainer.config, state, step):
        state.reference = reference_of(trainer.policy, state.params)
    state.tokens += tokens
    state.step, state.stream, state.pending = step, pending.stream_after, None


def _reference_due(config: TrainConfig, state: TrainState, step: int) -> bool:
    return state.reference is not None and config.reference_every > 0 and step % config.reference_every == 0


def reference_of(policy: Policy, params: Any) -> Any:
    """A copy of what is trained of a policy, without its critic: all that a reference does not share with it."""
    return jax.tree.map(jnp.copy, without_critic(policy.split(params)[0]))


def _with_fates(pending: Pending, count: int = 8) -> list[dict[str, Any]]:
    """The first completions of the batch, each token with the divergence it had and whether it was kept."""
    keep = np.concatenate([np.asarray(fates.keep) for fates in pending.fates])
    divergence = np.concatenate([np.asarray(fates.divergence, np.float64) for fates in pending.fates])
    records = []
    for row, sample in enumerate(pending.samples[:count]):
        length = len(sample["tokens"])
        told = {"kept": keep[row, :length].tolist(), "divergence": divergence[row, :length].tolist()}
        records.append(sample | told | {"phase": "train"})
    return records
