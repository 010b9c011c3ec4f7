"""Sums over a whole file, batch by batch, in memory that does not grow with it."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from trustax.types import Metric, Reduction, TokenStats

Values = Any
"""A JAX array where it is computed, a NumPy array once it is on the host."""


class Decision(NamedTuple):
    """What a recipe decides about tokens, ``[B, T]``; only ``valid`` ones, which are trained on, say anything."""

    valid: Values
    keep: Values
    far: Values
    outward: Values
    divergence: Values
    direction: Values


class LogHistogram:
    """Counts of numbers ≥ 0 in bins that are 0.1 % wide: a quantile of any number of values, to 0.05 %."""

    smallest, largest, ratio = 1e-12, 1e6, 1.001

    def __init__(self) -> None:
        size = int(np.log(self.largest / self.smallest) / np.log(self.ratio)) + 2
        self.counts = np.zeros(size, np.int64)  # the first bin holds what is below ``smallest``

    def add(self, values: np.ndarray) -> None:
        """Count values; those beyond the largest count as the largest."""
        inside = np.clip(values, self.smallest, self.largest)
        bins = 1 + (np.log(inside / self.smallest) / np.log(self.ratio)).astype(np.int64)
        bins = np.where(values < self.smallest, 0, bins)
        self.counts += np.bincount(np.minimum(bins, len(self.counts) - 1), minlength=len(self.counts))

    def quantile(self, share: float) -> float:
        """The smallest value that at least ``share`` of the values do not exceed; 0 if there is none."""
        rank = max(1, int(np.ceil(share * self.counts.sum())))
        index = int(np.searchsorted(np.cumsum(self.counts), rank))
        if index == 0 or index == len(self.counts):
            return 0.0
        return float(self.smallest * self.ratio ** (index - 0.5))


class _Sum(NamedTuple):
    total: float
    weight: float
    reduction: Reduction

    def merge(self, other: "_Sum") -> "_Sum":
        """As ``Metric.merge``, on the host."""
        if not self.weight or not other.weight:
            return self if self.weight else other
        combine = {"mean": np.add, "sum": np.add, "max": np.maximum, "min": np.minimum}[self.reduction]
        return _Sum(float(combine(self.total, other.total)), self.weight + other.weight, self.reduction)

    def value(self) -> float:
        return self.total / self.weight if self.reduction == "mean" else self.total


class RecipeTotals:
    """One recipe's metrics over all batches, with an exact effective sample size and a 95th percentile."""

    def __init__(self) -> None:
        self.sums: dict[str, _Sum] = {}
        self.divergence = LogHistogram()

    def add(self, metrics: Mapping[str, Metric], decision: Decision) -> None:
        """Take in one batch."""
        for name, metric in metrics.items():
            new = _Sum(float(metric.total), float(metric.weight), metric.reduction)
            self.sums[name] = self.sums[name].merge(new) if name in self.sums else new
        self.divergence.add(decision.divergence[decision.valid])

    def summary(self) -> dict[str, float]:
        """Every metric by name; what was never seen is left out."""
        found = {name: total.value() for name, total in self.sums.items() if total.weight > 0}
        if "divergence/mean" in found:
            found["divergence/p95"] = self.divergence.quantile(0.95)
        if "weight/mean_square" in found:
            square = found.pop("weight/mean_square")
            found["weight/ess"] = found["weight/mean"] ** 2 / square if square > 0 else 0.0
        return found


@dataclasses.dataclass
class Reading:
    """How far the trainer is from the sampler, whatever the recipe: counts and sums over trainable tokens."""

    tokens: int = 0
    positive: int = 0
    negative: int = 0
    log_ratio: float = 0.0
    gap: float = 0.0
    largest_gap: float = 0.0
    opposed: int = 0

    def add(self, stats: TokenStats, decision: Decision) -> None:
        """Take in one batch, ``decision`` being that of the recipe whose D and G are shown."""
        valid = decision.valid
        advantages = np.asarray(stats.advantages)[valid]
        log_ratio = (np.asarray(stats.log_pi) - np.asarray(stats.log_mu))[valid]
        self.tokens += int(valid.sum())
        self.positive += int((advantages > 0).sum())
        self.negative += int((advantages < 0).sum())
        self.log_ratio += float(log_ratio.sum())
        self.gap += float(np.abs(log_ratio).sum())
        self.largest_gap = max(self.largest_gap, float(np.abs(log_ratio).max(initial=0.0)))
        differ = np.sign(decision.direction[valid]) != np.sign(log_ratio)
        self.opposed += int((differ & (advantages != 0)).sum())

    def summary(self) -> dict[str, float]:
        """Shares and means; what no token speaks of is left out."""
        judged = self.positive + self.negative
        found: dict[str, float] = {"tokens": self.tokens}
        if self.tokens:
            found |= {
                "advantage/positive": self.positive / self.tokens,
                "advantage/negative": self.negative / self.tokens,
                "advantage/zero": (self.tokens - judged) / self.tokens,
                "log_ratio/mean": self.log_ratio / self.tokens,
                "log_ratio/mean_abs": self.gap / self.tokens,
                "log_ratio/max_abs": self.largest_gap,
            }
        if judged:
            found["direction/disagreement"] = self.opposed / judged
        return found
