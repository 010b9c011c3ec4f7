"""What a training run is at any moment, and how it is written to a checkpoint and read back."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from trustax.training.critic import ValueTargets
from trustax.training.gradients import Batch, Fates
from trustax.types import Metric, Rollout, TopK, Transform


@dataclasses.dataclass
class Pending:
    """A rollout batch that some of its minibatch updates have still to use.

    ``stream_after`` is the state of the data iterator once this batch was drawn from it.
    """

    batch: Batch
    stream_after: dict[str, Any]
    done: int
    fates: list[Fates]
    update_metrics: list[dict[str, Metric]]
    rollout_metrics: dict[str, float]
    samples: list[dict[str, Any]]


@dataclasses.dataclass
class TrainState:
    """Parameters, optimizer, and the position in the data: all that decides what happens next.

    ``step`` counts finished rollout batches, ``updates`` optimizer updates (the policy's version). ``stream`` is the
    state of the data iterator after the last *finished* batch; ``evaluations`` holds what was found, by step.
    ``tokens`` counts trained tokens, ``seconds`` the time spent up to the last save.
    """

    params: Any
    opt_state: Any
    stream: dict[str, Any]
    step: int = 0
    updates: int = 0
    reference: Any = None
    pending: Pending | None = None
    evaluations: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    tokens: int = 0
    seconds: float = 0.0


def to_checkpoint(state: TrainState) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a state into arrays and a JSON record."""
    arrays = {"params": state.params, "opt_state": state.opt_state}
    record: dict[str, Any] = {
        "stream": state.stream,
        "step": state.step,
        "updates": state.updates,
        "evaluations": state.evaluations,
        "tokens": state.tokens,
        "seconds": state.seconds,
        "pending": None,
    }
    if state.reference is not None:
        arrays["reference"] = state.reference
    if state.pending is not None:
        arrays["pending"] = {
            "batch": _as_dict(state.pending.batch),
            "fates": [fates._asdict() for fates in state.pending.fates],
        }
        record["pending"] = {
            "stream_after": state.pending.stream_after,
            "done": state.pending.done,
            "update_metrics": [
                {name: [float(m.total), float(m.weight), m.reduction] for name, m in metrics.items()}
                for metrics in state.pending.update_metrics
            ],
            "rollout_metrics": state.pending.rollout_metrics,
            "samples": state.pending.samples,
        }
    return arrays, record


def from_checkpoint(arrays: dict[str, Any], record: dict[str, Any]) -> TrainState:
    """Put a state together again: the inverse of ``to_checkpoint``, bit for bit."""
    pending = None
    if record["pending"] is not None:
        saved = record["pending"]
        pending = Pending(
            batch=_batch_from_dict(arrays["pending"]["batch"]),
            stream_after=saved["stream_after"],
            done=saved["done"],
            fates=[Fates(**jax.tree.map(jnp.asarray, fates)) for fates in arrays["pending"]["fates"]],
            update_metrics=[
                {
                    name: Metric(jnp.float32(total), jnp.float32(weight), kind)
                    for name, (total, weight, kind) in m.items()
                }
                for m in saved["update_metrics"]
            ],
            rollout_metrics=saved["rollout_metrics"],
            samples=saved["samples"],
        )
    return TrainState(
        params=arrays["params"],
        opt_state=arrays["opt_state"],
        stream=record["stream"],
        step=record["step"],
        updates=record["updates"],
        reference=arrays.get("reference"),
        pending=pending,
        evaluations=record["evaluations"],
        tokens=record["tokens"],
        seconds=record["seconds"],
    )


def _as_dict(value: Any) -> Any:
    """Nested dataclasses as dicts without the absent fields: plain containers survive any checkpoint format."""
    if not dataclasses.is_dataclass(value):
        return value
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if not f.metadata.get("static")}
    return {name: _as_dict(field) for name, field in fields.items() if field is not None}


def _batch_from_dict(saved: dict[str, Any]) -> Batch:
    rollout = jax.tree.map(jnp.asarray, saved["rollout"])
    top_k = TopK(**rollout.pop("top_k")) if "top_k" in rollout else None
    transform = Transform(**rollout.pop("transform"))
    optional = {"tail_log_mu": None} | rollout
    rest: dict[str, Any] = {
        name: jnp.asarray(saved[name]) for name in ("advantages", "log_anchor", "log_ref") if name in saved
    }
    if "value_targets" in saved:
        rest["value_targets"] = ValueTargets(**jax.tree.map(jnp.asarray, saved["value_targets"]))
    return Batch(rollout=Rollout(**optional, top_k=top_k, transform=transform), **rest)
