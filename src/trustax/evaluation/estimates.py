"""avg@k, pass@k and maj@k with confidence intervals over prompts. Float64 numpy: these are numbers of a table."""

import collections
import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

RESAMPLES = 2000


class Estimate(NamedTuple):
    """A mean over prompts and its confidence interval."""

    value: float
    low: float
    high: float


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The chance that at least one of k of the samples, drawn without replacement, is correct: 1 − C(n−c, k)/C(n, k).

    Unbiased for 1 − (1 − p)^k, which 1 − (1 − c/n)^k is not (Chen et al., "Evaluating Large Language Models Trained on
    Code", arXiv 2107.03374, eq. 1).
    """
    if not (0 <= correct <= samples and 1 <= k <= samples):
        raise ValueError(
            f"expected 0 <= correct <= samples and 1 <= k <= samples, got {correct}, {samples} and k = {k}"
        )
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def majority(answers: Sequence[Hashable | None], correct: Sequence[bool]) -> float:
    """Whether the most frequent answer is correct; None is no answer. Of several most frequent ones, their mean.

    Answers that read the same but were judged differently count by the share that was judged correct.
    """
    counts = collections.Counter(answer for answer in answers if answer is not None)
    if not counts:
        return 0.0
    most = max(counts.values())
    right = collections.Counter(answer for answer, yes in zip(answers, correct, strict=True) if yes)
    shares = [right[answer] / count for answer, count in counts.items() if count == most]
    return sum(shares) / len(shares)


def majority_at_k(answers: Sequence[Hashable | None], correct: Sequence[bool], k: int) -> float:
    """maj@k as the mean over disjoint blocks of k samples; what is left over at the end is not used."""
    blocks = [slice(start, start + k) for start in range(0, len(answers) - k + 1, k)]
    return sum(majority(answers[block], correct[block]) for block in blocks) / len(blocks)


def bootstrap(
    scores: Float[np.ndarray, "P"], *, confidence: float, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """The mean over prompts with a percentile-bootstrap interval: prompts are drawn anew, with all their samples.

    The spread is widened by sqrt(P / (P − 1)), which resampling P prompts lacks. One prompt gives [0, 1].
    """
    values = np.asarray(scores, np.float64)
    mean = float(values.mean())
    if len(values) == 1:
        return Estimate(mean, 0.0, 1.0)
    rng = np.random.default_rng(seed)
    means = values[rng.integers(len(values), size=(resamples, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    widen = math.sqrt(len(values) / (len(values) - 1))
    bounds = np.clip([mean + (low - mean) * widen, mean + (high - mean) * widen], 0.0, 1.0)
    return Estimate(mean, float(bounds[0]), float(bounds[1]))


def estimates(
    correct: Bool[np.ndarray, "P n"],
    answers: Sequence[Sequence[Hashable | None]],
    *,
    at: Sequence[int],
    confidence: float,
) -> dict[str, Estimate]:
    """``avg@n`` and, for every k of ``at``, ``pass@k`` and ``maj@k``."""
    samples = correct.shape[1]
    counts = correct.sum(axis=1)
    found = {f"avg@{samples}": bootstrap(counts / samples, confidence=confidence)}
    for k in at:
        passes = np.array([pass_at_k(samples, int(count), k) for count in counts])
        found[f"pass@{k}"] = bootstrap(passes, confidence=confidence)
    for k in at:
        votes = [majority_at_k(one, row.tolist(), k) for one, row in zip(answers, correct, strict=True)]
        found[f"maj@{k}"] = bootstrap(np.array(votes), confidence=confidence)
    return found
