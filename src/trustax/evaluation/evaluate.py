"""Accuracy on held-out prompts, sampled and greedy."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from trustax.data.types import Example
from trustax.rollouts.collect import Collector, Completion
from trustax.rollouts.samples import sample_records
from trustax.sampling.keys import EVALUATION
from trustax.types import Transform, Verdict


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation found: two accuracies, and the first sampled completion of each example as a record."""

    sampled: float
    greedy: float
    records: list[dict[str, Any]]


def evaluate(
    collector: Collector,
    params: Any,
    examples: Sequence[Example],
    *,
    samples: int,
    temperature: float,
    batch_prompts: int,
    keep_going: Callable[[], bool] = lambda: True,
) -> Evaluation | None:
    """Sample each example ``samples`` times and once greedily; ``None`` if ``keep_going`` said no on the way.

    The draws are the same at every evaluation of a run, so that two of them differ by the parameters alone. The last
    batch is filled up with repeated prompts, so that every call has one shape; what is repeated is not counted.
    """
    apart = dataclasses.replace(collector, stream=EVALUATION)
    sampling = dataclasses.replace(apart, group_size=samples, transform=Transform(temperature=temperature))
    greedy = dataclasses.replace(apart, group_size=1, transform=Transform(greedy=True))
    sampled_rows: list[Completion] = []
    greedy_rows: list[Completion] = []
    for start in range(0, len(examples), batch_prompts):
        batch = list(examples[start : start + batch_prompts])
        filled = batch + [batch[-1]] * (batch_prompts - len(batch))
        for one, rows in ((sampling, sampled_rows), (greedy, greedy_rows)):
            if not keep_going():
                return None
            _, completions = one(params, filled, step=0, version=0)
            rows.extend(completions[: len(batch) * one.group_size])
    records = sample_records(sampled_rows[::samples], None, collector.tokenizer)
    return Evaluation(accuracy(sampled_rows), accuracy(greedy_rows), records)


def accuracy(completions: Sequence[Completion]) -> float:
    """The share of completions that were judged correct."""
    return sum(completion.verdict is Verdict.CORRECT for completion in completions) / len(completions)
