"""Dynamic sampling: keep the groups that can teach something, and draw further prompts in place of the others.

After DAPO (Yu et al., arXiv 2503.14476, section 3.2). It prefers prompts of middling difficulty and, where wrong
answers are longer, other lengths than the policy writes: both are reported.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trustax.data.types import Example
from trustax.rollouts.collect import Collector, Completion
from trustax.types import Rollout, Verdict

FAILED = (Verdict.TIMEOUT, Verdict.ERROR)


def informative(completions: Sequence[Completion]) -> bool:
    """Whether the group's rewards differ; completions whose grading failed don't count."""
    rewards = {completion.reward for completion in completions if completion.verdict not in FAILED}
    return len(rewards) > 1


def collect_dynamically(
    collector: Collector, params: Any, draw: Callable[[], list[Example]], *, rounds: int, step: int, version: int
) -> tuple[Rollout, list[Completion], dict[str, float]]:
    """A batch as ``collector`` makes it, of informative groups as far as ``rounds`` draws have them.

    Every draw has the batch's full size, so that nothing new is compiled. Informative groups beyond the batch are
    dropped.
    """
    size, wanted = collector.group_size, 0
    rollouts: list[Rollout] = []
    groups: list[tuple[int, int]] = []  # which rollout, which of its prompts
    completions: dict[tuple[int, int], list[Completion]] = {}
    for number in range(rounds):
        examples = draw()
        wanted = len(examples)
        rollout, found = collector(params, examples, step=step, version=version, round_number=number)
        rollouts.append(rollout)
        for prompt in range(len(examples)):
            completions[number, prompt] = found[prompt * size : (prompt + 1) * size]
        groups = [group for group, rows in completions.items() if informative(rows)]
        if len(groups) >= wanted:
            break
    if rounds == 1:  # nothing was drawn anew: the batch as it is
        return rollouts[0], [c for rows in completions.values() for c in rows], {}
    dull = [group for group in completions if group not in set(groups)]
    chosen = sorted([*groups, *dull][:wanted])
    kept = [completion for group in chosen for completion in completions[group]]
    return take_groups(rollouts, chosen, size), kept, _metrics(completions, chosen, len(groups), len(rollouts))


def take_groups(rollouts: Sequence[Rollout], groups: Sequence[tuple[int, int]], size: int) -> Rollout:
    """The groups (which rollout, which of its prompts) as one rollout; shorter prompts are padded on the left."""
    width = max(rollout.prompt_tokens.shape[1] for rollout in rollouts)

    def of_prompts(field: str) -> jax.Array:
        rows = []
        for which, prompt in groups:
            row = getattr(rollouts[which], field)[prompt]
            padding = [(width - row.shape[0], 0)] + [(0, 0)] * (row.ndim - 1)
            rows.append(jnp.pad(row, padding, constant_values=-1 if field == "prompt_routes" else 0))
        return jnp.stack(rows)

    def of_rows(*leaves: jax.Array) -> jax.Array:
        return jnp.concatenate([leaves[which][prompt * size : (prompt + 1) * size] for which, prompt in groups])

    first = rollouts[0]
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(Rollout):
        value = getattr(first, field.name)
        if field.name in ("transform", "prompt_index") or value is None:
            continue
        if field.name.startswith("prompt_"):
            changes[field.name] = of_prompts(field.name)
        else:
            changes[field.name] = jax.tree.map(of_rows, *(getattr(rollout, field.name) for rollout in rollouts))
    changes["prompt_index"] = jnp.asarray(np.repeat(np.arange(len(groups), dtype=np.int32), size))
    return first.replace(**changes)


def _metrics(
    completions: dict[tuple[int, int], list[Completion]], chosen: Sequence[tuple[int, int]], useful: int, rounds: int
) -> dict[str, float]:
    def mean_length(rows: list[list[Completion]]) -> float:
        return float(np.mean([len(completion.token_ids) for group in rows for completion in group]))

    everything = mean_length(list(completions.values()))
    return {
        "dynamic/rounds": float(rounds),
        "dynamic/informative_groups": useful / len(completions),
        "dynamic/filled_groups": max(0, len(chosen) - useful) / len(chosen),
        "dynamic/length_bias": mean_length([completions[group] for group in chosen]) - everything,
    }
