"""Does the interval hold on a policy that was really trained? Later checkpoints, judged by an earlier one's rollouts.

Run:     python experiments/ope/trained_policy.py    (writes records/trained_policy.json)
Task:    a character-level policy from scratch, taught a little of sums of two numbers below 100, then trained by RL to
         write even digits: it goes from less than half of the reward to most of it in 14 steps, so checkpoints differ.
Trials:  for each pair (A, B) of checkpoints, rollouts of A on held-out prompts that no other trial has, the estimate of
         B's mean reward with its 90 % interval, and B's mean reward over all held-out prompts, sampled.
"""

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path

import jax
import numpy as np

from trustax.checkpoint.checkpointer import Checkpointer
from trustax.errors import UserError
from trustax.evaluation.off_policy import OffPolicyOptions, evaluate_off_policy
from trustax.experiment import run
from trustax.experiment.assemble import build_parts, load_split
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.config_files import load_config
from trustax.experiment.overrides import apply_overrides
from trustax.rollouts.importers import Logged
from trustax.types import Transform

HERE = Path(__file__).parent
SETTINGS = [
    "verifier.name=python",
    'verifier.options={"path": "trained_policy:even_digits"}',
    "supervised.steps=60",
    "supervised.batch_size=32",
    "optimizer.learning_rate=3e-4",
    "rollout.prompts_per_step=16",
    "rollout.group_size=8",
    "train.steps=14",
    "train.minibatches=2",
    "train.checkpoint_every=2",
    "train.keep_checkpoints=20",
    "evaluation.prompts=16",
    "evaluation.samples=1",
]
PAIRS = [(2, 4), (2, 6), (4, 8), (6, 10), (8, 14)]
"""Steps of A and of B."""


def even_digits(*, completion: str, example_prompt: str, answer: str, metadata: str) -> float:
    """The share of even digits."""
    del example_prompt, answer, metadata
    return sum(char in "02468" for char in completion) / max(len(completion), 1)


def main() -> None:
    """Train, run the trials, write the record."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--trials", type=int, default=10, help="for each pair")
    options.add_argument("--prompts", type=int, default=60, help="in a trial")
    options.add_argument("--samples", type=int, default=8, help="completions of a prompt")
    options.add_argument("--truth-prompts", type=int, default=2000, help="held-out prompts that B is sampled on")
    options.add_argument("--folder", type=Path, help="a run folder to use, or to go on with")
    chosen = options.parse_args()
    config = apply_overrides(load_config(HERE.parents[1] / "configs" / "tiny.py"), SETTINGS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run" if chosen.folder is None else chosen.folder
        run.train(config, folder)
        record = study(config, folder, chosen)
    text = json.dumps(record, indent=1) + "\n"
    (HERE / "records" / "trained_policy.json").write_text(text, encoding="utf-8")
    print({key: value for key, value in record.items() if key != "trials"})


def study(config: ExperimentConfig, folder: Path, chosen: argparse.Namespace) -> dict:
    """All trials, and how many intervals held the truth."""
    parts = build_parts(config)
    source = load_split(parts, "test")
    order = np.random.default_rng(0).permutation(len(source))
    steps = sorted({step for pair in PAIRS for step in pair})
    params = checkpoints(config, folder, parts.params, steps)
    prompts = [int(i) for i in order[: chosen.truth_prompts]]
    truth = {step: mean_reward(parts, params[step], source, prompts) for step in sorted({b for _, b in PAIRS})}
    trials = []
    for pair, (a, b) in enumerate(PAIRS):
        for trial in range(chosen.trials):
            start = (pair * chosen.trials + trial) * chosen.prompts
            asked = order[np.arange(start, start + chosen.prompts) % len(order)]
            rows = rollouts(parts, params[a], [source[int(i)] for i in asked], chosen.samples, seed=1000 + trial)
            trials.append({"a": a, "b": b, "truth": truth[b]} | judge(parts, params[b], rows))
    told = [t for t in trials if "estimate" in t]
    held = [t["low"] <= t["truth"] <= t["high"] for t in told]
    refused = [t for t in trials if "estimate" not in t]
    return {
        "settings": SETTINGS,
        "prompts": chosen.prompts,
        "samples": chosen.samples,
        "trials_told": len(told),
        "refused": len(refused),
        "held": int(np.sum(held)),
        "coverage": float(np.mean(held)),
        "trials": trials,
    }


def checkpoints(config: ExperimentConfig, folder: Path, template: object, steps: list[int]) -> dict[int, object]:
    """Parameters after each of ``steps``; a checkpoint's number counts updates."""
    shapes = jax.eval_shape(lambda x: x, template)
    with Checkpointer(folder / "checkpoints") as checkpointer:
        return {
            step: checkpointer.restore(step * config.train.minibatches, {"params": shapes})[0]["params"]
            for step in steps
        }


def rollouts(parts, params, examples, samples: int, seed: int) -> list[Logged]:
    """Completions of ``params``, as another process would read them."""
    transform = Transform(temperature=parts.config.evaluation.temperature)
    collector = dataclasses.replace(parts.collector, group_size=samples, transform=transform, seed=seed)
    rollout, completions = collector(params, examples, step=0, version=0)
    log_mu = np.asarray(rollout.log_mu, np.float64)
    return [
        Logged(
            place=f"completion {row}",
            prompt=tuple(parts.collector.encode(examples[row // samples])),
            tokens=np.array(one.token_ids),
            log_mu=log_mu[row, : len(one.token_ids)],
            token_mask=np.ones(len(one.token_ids), bool),
            reward=one.reward,
            group=row // samples,
        )
        for row, one in enumerate(completions)
    ]


def mean_reward(parts, params, source, prompts: list[int], *, at_once: int = 200) -> float:
    """What ``params`` earn, by sampling: four completions of every prompt."""
    rewards = []
    for start in range(0, len(prompts), at_once):
        rows = rollouts(parts, params, [source[i] for i in prompts[start : start + at_once]], 4, seed=77)
        rewards += [row.reward for row in rows]
    return float(np.mean(rewards))


def judge(parts, params, rows: list[Logged]) -> dict[str, float]:
    """The estimate by each value, its interval from the group mean, or nothing where it is refused."""
    shared = {
        "encode": parts.tokenizer.encode,
        "pad_id": parts.tokenizer.pad_id,
        "transform": Transform(temperature=parts.config.evaluation.temperature),
    }
    try:
        found = evaluate_off_policy(parts.policy, params, rows, options=OffPolicyOptions(), **shared)
    except UserError:
        return {}
    names = ("behavior", "estimate", "low", "high", "normalized", "effective", "truncated", "tau", "rollouts")
    return {name: vars(found)[name] for name in names}


if __name__ == "__main__":
    main()
