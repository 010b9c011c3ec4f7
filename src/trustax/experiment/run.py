"""The jobs of the command line: train, sample, evaluate."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from trustax.analysis.plots import plot_run
from trustax.checkpoint.checkpointer import Checkpointer
from trustax.data import Example, PromptStream, Source
from trustax.errors import ConfigError, RunInterrupted
from trustax.evaluation.evaluate import Evaluation
from trustax.evaluation.evaluate import evaluate as run_evaluation
from trustax.evaluation.off_policy import OffPolicyOptions, evaluate_off_policy
from trustax.experiment.assemble import Parts, build_objective, build_parts, held_out, load_split, warm_started
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.difficulty import filter_by_difficulty
from trustax.experiment.eval_report import check_tokenizer, evaluated_policy
from trustax.experiment.interrupts import Interrupts
from trustax.experiment.on_mesh import mesh_in_force, placement_of
from trustax.experiment.recorder import Recorder
from trustax.experiment.run_folder import RunFolder, versions
from trustax.experiment.summary import Summary, read_summary
from trustax.ope.completions import Report
from trustax.policies import Policy, join, without_critic
from trustax.rollouts.importers import LoggedReader
from trustax.rollouts.samples import logged_records, sample_records
from trustax.training.loop import Trainer, reference_of
from trustax.training.loop import train as run_training
from trustax.training.optimizer import init_optimizer, make_optimizer
from trustax.training.state import TrainState, from_checkpoint, to_checkpoint
from trustax.training.update import make_update
from trustax.types import Transform


def train(config: ExperimentConfig, folder: Path, *, overwrite: bool = False) -> Summary:
    """Train as ``config`` says, or go on with the run that ``folder`` holds.

    Raises:
      ConfigError: bad input; nothing was changed.
      RunInterrupted: asked to stop; the state is saved and the same command goes on.
      RunError: the run failed; the last good checkpoint is untouched.
    """
    with mesh_in_force(config.mesh) as mesh:
        return _train(config, folder, mesh, overwrite=overwrite)


def _train(config: ExperimentConfig, folder: Path, mesh: Mesh | None, *, overwrite: bool) -> Summary:
    started = time.monotonic()
    objective = build_objective(config)
    parts = build_parts(config)
    source = load_split(parts, "train")
    examples = held_out(parts)
    with RunFolder(folder, config, overwrite=overwrite) as run, Interrupts() as interrupts:
        with Checkpointer(run.checkpoints, keep=config.train.keep_checkpoints) as checkpointer:
            last = checkpointer.latest_step()
            if last is not None and "kind" in checkpointer.read_record(last):
                raise ConfigError(
                    f"{folder} holds a run of `trustax sft`; name another folder and set policy.start to it"
                )
            if last is not None and run.summary_file.exists():
                finished = read_summary(run.summary_file)
                if finished.steps == config.train.steps:
                    return finished
            optimizer = make_optimizer(config.optimizer)
            start = _start(parts, source) if last is None else None
            source = filter_by_difficulty(parts, start, source, run.path / "difficulty.json")
            stream = PromptStream(
                source, batch_size=config.rollout.prompts_per_step, seed=config.seed, shuffle=config.data.shuffle
            )
            placement = placement_of(mesh, parts.policy, parts.params, optimizer)
            if last is None:
                state = _initial_state(parts, start, optimizer, stream, objective.needs)
            else:
                state = _restore(checkpointer, last, parts, optimizer, objective.needs)
            if placement is not None:
                state = placement.state(state)
            clock = _Clock(started - state.seconds)
            with Recorder(
                run, total_steps=config.train.steps, after_step=None if last is None else state.step
            ) as recorder:
                if run.version_changes:
                    recorder.note(f"resumed under other versions ({'; '.join(run.version_changes)})")
                trainer = Trainer(
                    policy=parts.policy,
                    objective=objective,
                    collector=parts.collector,
                    stream=stream,
                    update=make_update(
                        parts.policy,
                        optimizer,
                        micro_batches=config.train.micro_batches,
                        critic=config.train.critic,
                        placement=placement,
                    ),
                    evaluate=lambda params, go_on: _evaluate(parts, params, examples, go_on),
                    config=config.train,
                    rollout=config.rollout,
                    optimizer=config.optimizer,
                    recorder=recorder,
                    save=lambda state: _save(checkpointer, parts.policy, state, clock),
                    stop_requested=interrupts.stop_requested,
                )
                try:
                    state = run_training(trainer, state)
                except RunInterrupted as stop:
                    checkpointer.wait()
                    if interrupts.signal_number is not None:
                        stop.signal_number = interrupts.signal_number
                    raise
        summary = _summarise(config, state, clock.seconds())
        plot_run(run.metrics_file, run.plots)
        summary.write(run.summary_file)
    return summary


def sample(
    config: ExperimentConfig, *, checkpoint: Path | None, prompts: list[str] | None, count: int, greedy: bool
) -> list[dict[str, Any]]:
    """Complete each prompt ``count`` times (the held-out ones if none are given); one record a completion."""
    parts = build_parts(config)
    params = trained_params(parts, checkpoint)
    if prompts is None:
        examples = held_out(parts)
    else:
        if not prompts or not all(prompts):
            raise ConfigError("an empty prompt: give at least one prompt with some text")
        examples = [Example(index=i, prompt=prompt, answer="") for i, prompt in enumerate(prompts)]
    transform = Transform(temperature=config.rollout.temperature, greedy=greedy)
    collector = dataclasses.replace(parts.collector, group_size=count, transform=transform)
    _, completions = collector(params, examples, step=0, version=0)
    return sample_records(completions, None, parts.tokenizer)


def log_rollouts(config: ExperimentConfig, *, checkpoint: Path | None, count: int) -> list[dict[str, Any]]:
    """Complete each held-out prompt ``count`` times as an evaluation does; records that ``off_policy`` reads."""
    parts = build_parts(config)
    params, examples = trained_params(parts, checkpoint), held_out(parts)
    transform = Transform(temperature=config.evaluation.temperature)
    collector = dataclasses.replace(parts.collector, group_size=count, transform=transform)
    return logged_records(*collector(params, examples, step=0, version=0))


def off_policy(
    config: ExperimentConfig,
    *,
    checkpoint: Path | None,
    rollouts: Path,
    options: OffPolicyOptions,
    layout: str | None = None,
    skip_bad: bool = False,
) -> Report:
    """What a checkpoint is worth, sampled at ``evaluation.temperature``, by completions that another policy wrote."""
    parts = build_parts(config)
    reader = LoggedReader(rollouts, layout=layout, skip_bad=skip_bad, vocab_size=parts.policy.config.vocab_size)
    rows = list(reader)
    return evaluate_off_policy(
        parts.policy,
        trained_params(parts, checkpoint),
        rows,
        encode=lambda text: parts.collector.encode(Example(index=0, prompt=text, answer="")),
        pad_id=parts.tokenizer.pad_id,
        transform=Transform(temperature=config.evaluation.temperature),
        options=options,
        seed=config.seed,
    )


def evaluate(config: ExperimentConfig, *, checkpoint: Path | None) -> Evaluation:
    """Accuracy on the held-out prompts, of a checkpoint, a Hugging Face folder, or the policy before training."""
    config, checkpoint = evaluated_policy(config, checkpoint)
    parts = build_parts(config)
    if checkpoint is not None:
        check_tokenizer(parts, checkpoint)
    found = _evaluate(parts, trained_params(parts, checkpoint), held_out(parts), lambda: True)
    assert found is not None
    return found


def _evaluate(parts: Parts, params: Any, examples: list[Example], keep_going: Callable[[], bool]) -> Evaluation | None:
    settings = parts.config.evaluation
    return run_evaluation(
        parts.collector,
        params,
        examples,
        samples=settings.samples,
        temperature=settings.temperature,
        top_p=settings.top_p,
        at=settings.at,
        confidence=settings.confidence,
        batch_prompts=parts.config.rollout.prompts_per_step,
        keep_going=keep_going,
    )


def _start(parts: Parts, source: Source) -> Any:
    """The parameters that training starts from."""
    if parts.config.policy.start is not None:
        return trained_params(parts, Path(parts.config.policy.start))
    return warm_started(parts, source)


def _initial_state(
    parts: Parts, params: Any, optimizer: Any, stream: PromptStream, needs: frozenset[str]
) -> TrainState:
    trained, _ = parts.policy.split(params)
    reference = reference_of(parts.policy, params) if "log_ref" in needs else None
    return TrainState(params, init_optimizer(optimizer, trained), stream=stream.get_state(), reference=reference)


def _restore(checkpointer: Checkpointer, step: int, parts: Parts, optimizer: Any, needs: frozenset[str]) -> TrainState:
    trained, frozen = parts.policy.split(parts.params)
    trained = jax.eval_shape(lambda x: x, trained)
    templates: dict[str, Any] = {
        "params": trained,
        "opt_state": jax.eval_shape(lambda x: init_optimizer(optimizer, x), trained),
    }
    if "log_ref" in needs:
        templates["reference"] = without_critic(trained)
    if checkpointer.read_record(step)["pending"] is not None:
        templates["pending"] = None
    state = from_checkpoint(*checkpointer.restore(step, templates))
    return dataclasses.replace(state, params=join(state.params, frozen))


def _save(checkpointer: Checkpointer, policy: Policy, state: TrainState, clock: "_Clock") -> None:
    """Save what is trained; what is frozen is read from the policy's source again."""
    if not checkpointer.has(state.updates):
        trained, _ = policy.split(state.params)
        state = dataclasses.replace(state, params=trained, seconds=clock.seconds())
        checkpointer.save(state.updates, *to_checkpoint(state))


def trained_params(parts: Parts, checkpoint: Path | None) -> Any:
    """Parameters of a checkpoint (a run folder or its ``checkpoints``), or those before training."""
    if checkpoint is None:
        return warm_started(parts, load_split(parts, "train")) if parts.config.supervised.steps else parts.params
    folder = checkpoint / "checkpoints" if (checkpoint / "checkpoints").is_dir() else checkpoint
    with Checkpointer(folder) as checkpointer:
        last = checkpointer.latest_step()
        if last is None:
            raise ConfigError(f"{checkpoint} holds no complete checkpoint")
        trained, frozen = parts.policy.split(parts.params)
        arrays, _ = checkpointer.restore(last, {"params": jax.eval_shape(lambda x: x, trained)})
    return join(arrays["params"], frozen)


def _summarise(config: ExperimentConfig, state: TrainState, seconds: float) -> Summary:
    before, after = state.evaluations["0"], state.evaluations[str(state.step)]
    return Summary(
        name=config.name,
        objective=config.objective.recipe,
        seed=config.seed,
        steps=state.step,
        eval_before=before["sampled"],
        eval_after=after["sampled"],
        greedy_before=before["greedy"],
        greedy_after=after["greedy"],
        wall_seconds=seconds,
        tokens_per_second=state.tokens / max(seconds, 1e-9),
        versions=versions(),
    )


class _Clock:
    """Seconds of this run since it was started, those before a resumption included."""

    def __init__(self, start: float) -> None:
        self._start = start

    def seconds(self) -> float:
        return time.monotonic() - self._start
