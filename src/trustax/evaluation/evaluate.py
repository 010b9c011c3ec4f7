"""Accuracy on held-out prompts, sampled and greedy."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trustax.data.tokenizer import Tokenizer
from trustax.data.types import Example
from trustax.evaluation.estimates import Estimate, estimates
from trustax.rollouts.collect import Collector, Completion
from trustax.rollouts.samples import sample_records
from trustax.sampling.keys import EVALUATION
from trustax.types import Transform, Verdict
from trustax.verifiers.extract import find_answer
from trustax.verifiers.values import read


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation found: two accuracies, and the first sampled completion of each example as a record.

    ``estimates`` holds avg@k, pass@k and maj@k with their intervals; ``prompts`` every completion of every prompt.
    """

    sampled: float
    greedy: float
    records: list[dict[str, Any]]
    estimates: dict[str, Estimate]
    prompts: list[dict[str, Any]]


def evaluate(
    collector: Collector,
    params: Any,
    examples: Sequence[Example],
    *,
    samples: int,
    temperature: float,
    batch_prompts: int,
    top_p: float = 1.0,
    at: Sequence[int] = (),
    confidence: float = 0.95,
    keep_going: Callable[[], bool] = lambda: True,
) -> Evaluation | None:
    """Sample each example ``samples`` times and once greedily; ``None`` if ``keep_going`` said no on the way.

    The draws are the same at every evaluation of a run, so that two of them differ by the parameters alone. The last
    batch is filled up with repeated prompts, so that every call has one shape; what is repeated is not counted.
    """
    nucleus = Transform(temperature=temperature, top_p=None if top_p == 1.0 else top_p)
    apart = dataclasses.replace(collector, stream=EVALUATION)
    sampling = dataclasses.replace(apart, group_size=samples, transform=nucleus)
    greedy = dataclasses.replace(apart, group_size=1, transform=Transform(greedy=True))
    sampled_rows: list[Completion] = []
    greedy_rows: list[Completion] = []
    log_mu: list[list[float]] = []
    for start in range(0, len(examples), batch_prompts):
        batch = list(examples[start : start + batch_prompts])
        filled = batch + [batch[-1]] * (batch_prompts - len(batch))
        for one, rows in ((sampling, sampled_rows), (greedy, greedy_rows)):
            if not keep_going():
                return None
            rollout, completions = one(params, filled, step=0, version=0)
            rows.extend(completions[: len(batch) * one.group_size])
            if one is sampling:
                recorded = np.asarray(rollout.log_mu, np.float64)[: len(batch) * samples]
                log_mu += [row[np.isfinite(row)].tolist() for row in recorded]
    correct = np.array([row.verdict is Verdict.CORRECT for row in sampled_rows]).reshape(-1, samples)
    answers = [read_answer(row) for row in sampled_rows]
    groups = [slice(start, start + samples) for start in range(0, len(sampled_rows), samples)]
    return Evaluation(
        sampled=accuracy(sampled_rows),
        greedy=accuracy(greedy_rows),
        records=sample_records(sampled_rows[::samples], None, collector.tokenizer),
        estimates=estimates(
            correct, [answers[group] for group in groups], at=sorted({1, samples, *at}), confidence=confidence
        ),
        prompts=[_prompt_record(sampled_rows[group], log_mu[group], collector.tokenizer) for group in groups],
    )


def read_answer(completion: Completion) -> str | None:
    """What counts as the completion's vote: its marked answer in one spelling, or its whole text in one line."""
    answer = find_answer(completion.text)
    if answer is None:
        return None
    value = read(answer)
    return None if value is None else repr(value)


def _prompt_record(rows: Sequence[Completion], log_mu: Sequence[list[float]], tokenizer: Tokenizer) -> dict[str, Any]:
    records = sample_records(rows, None, tokenizer)
    told = [record | {"log_mu": numbers} for record, numbers in zip(records, log_mu, strict=True)]
    return {
        "prompt": rows[0].prompt,
        "answer": rows[0].answer,
        "correct": sum(row.verdict is Verdict.CORRECT for row in rows),
        "samples": [{k: v for k, v in record.items() if k not in ("prompt", "answer")} for record in told],
    }


def accuracy(completions: Sequence[Completion]) -> float:
    """The share of completions that were judged correct."""
    return sum(completion.verdict is Verdict.CORRECT for completion in completions) / len(completions)
