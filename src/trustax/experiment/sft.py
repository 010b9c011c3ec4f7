"""`trustax sft`: maximise log π of the sources' own answers, and leave a run folder that other commands take up."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trustax import data
from trustax.checkpoint.checkpointer import Checkpointer
from trustax.data import Example, PromptStream
from trustax.errors import ConfigError, RunError, RunInterrupted
from trustax.experiment.assemble import Parts, build_parts, load_split
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.interrupts import Interrupts
from trustax.experiment.recorder import Recorder
from trustax.experiment.run_folder import RunFolder
from trustax.training.config import OptimizerConfig
from trustax.training.optimizer import apply_update, init_optimizer, make_optimizer
from trustax.training.packing import Packed, loss_sum, pack

KIND = "supervised"


def default_folder(config: ExperimentConfig) -> Path:
    """Where a supervised run goes if nobody says where."""
    return Path("runs") / f"{config.name}-sft-seed{config.seed}"


def sft(config: ExperimentConfig, folder: Path, *, overwrite: bool = False) -> float:
    """Train for ``supervised.steps`` or go on with the run in ``folder``; the last loss per token in nats.

    A step reads ``supervised.batch_size`` examples; checkpoints come every ``train.checkpoint_every`` steps.
    """
    settings = config.supervised
    if settings.steps < 1:
        raise ConfigError("supervised.steps is 0: say how many steps to train, e.g. supervised.steps=300")
    parts = build_parts(config)
    source = load_split(parts, "train")
    optimizer = make_optimizer(OptimizerConfig(learning_rate=settings.learning_rate))
    rate, clip = jnp.float32(settings.learning_rate), jnp.float32(config.optimizer.clip_norm)

    @jax.jit(donate_argnums=(0, 1))
    def update(params: Any, opt_state: Any, batch: Packed) -> tuple[Any, Any, jax.Array, jax.Array]:
        def mean(params: Any) -> jax.Array:
            total, weight = loss_sum(parts.policy, params, batch)
            return total / jnp.maximum(weight, 1.0)

        loss, grads = jax.value_and_grad(mean)(params)
        new = apply_update(optimizer, grads, opt_state, params, rate=rate, clip_norm=clip)
        return new.params, new.opt_state, loss, new.grad_norm

    params, loss, done = jax.tree.map(jnp.copy, parts.params), float("nan"), 0
    stream = PromptStream(source, batch_size=settings.batch_size, seed=config.seed, shuffle=config.data.shuffle)
    opt_state = init_optimizer(optimizer, params)
    with (
        RunFolder(folder, config, overwrite=overwrite) as run,
        Interrupts() as interrupts,
        Checkpointer(run.checkpoints, keep=config.train.keep_checkpoints) as checkpointer,
    ):
        last = checkpointer.latest_step()
        if last is not None:
            params, opt_state, record = _restore(checkpointer, last, parts, opt_state)
            done, loss = record["step"], record["loss"]
            stream.set_state(record["stream"])
        with Recorder(run, total_steps=settings.steps, after_step=None if last is None else done) as recorder:
            while done < settings.steps:
                began = time.monotonic()
                batch = _batch(parts, next(stream))
                params, opt_state, value, norm = update(params, opt_state, batch)
                loss, done = float(value), done + 1
                if not np.isfinite(loss):
                    raise RunError(f"step {done}: the supervised loss is {loss}; lower supervised.learning_rate")
                used = {"sft/loss": loss, "sft/grad_norm": float(norm), "sft/row_use": float(np.mean(batch.valid))}
                recorder.step(done, used, {"step_seconds": time.monotonic() - began})
                stop = interrupts.stop_requested() and done < settings.steps
                due = config.train.checkpoint_every > 0 and done % config.train.checkpoint_every == 0
                if due or stop or done == settings.steps:
                    state = {"kind": KIND, "step": done, "loss": loss, "stream": stream.get_state()}
                    checkpointer.save(done, {"params": params, "opt_state": opt_state}, state)
                if stop:
                    checkpointer.wait()
                    raise RunInterrupted(f"stopped after step {done}; the state is saved")
    return loss


def _batch(parts: Parts, examples: Sequence[Example]) -> Packed:
    rollout = parts.config.rollout
    return pack(
        [parts.collector.encode(example) for example in examples],
        [data.supervised_ids(example, parts.tokenizer) for example in examples],
        length=rollout.max_prompt_tokens + rollout.max_new_tokens,
        pad_id=parts.tokenizer.pad_id,
        packed=parts.config.supervised.packed,
    )


def _restore(checkpointer: Checkpointer, step: int, parts: Parts, opt_state: Any) -> tuple[Any, Any, dict[str, Any]]:
    if "kind" not in checkpointer.read_record(step):
        raise ConfigError("the folder holds a run of `trustax train`, not of `trustax sft`; name another with --output")
    template = {
        "params": jax.eval_shape(lambda x: x, parts.params),
        "opt_state": jax.eval_shape(lambda x: x, opt_state),
    }
    arrays, record = checkpointer.restore(step, template)
    return arrays["params"], arrays["opt_state"], record
