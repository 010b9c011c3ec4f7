"""Pieces that several recipes share."""

from trustax.objectives.aggregation import Aggregation, Denominator, Mode
from trustax.objectives.directions import NegativeAdvantage, RatioSign
from trustax.objectives.masks import Mask, TrustRegion
from trustax.objectives.proximity import RatioDeviation
from trustax.objectives.ratio import LogRatio
from trustax.objectives.term import Leaf
from trustax.objectives.thresholds import Band

INFINITY = float("inf")


def ratio_clip(ratio: LogRatio, eps_low: Leaf, eps_high: Leaf, *, statistic_of: LogRatio | None = None) -> Mask:
    """PPO's clip as a mask: drop where r > 1 + ε_high and A > 0, or r < 1 − ε_low and A < 0."""
    read = ratio if statistic_of is None else statistic_of
    return TrustRegion(RatioDeviation(read), Band(eps_low, eps_high), RatioSign(read))


def dual_clip(ratio: LogRatio, cap: Leaf) -> Mask:
    """Drop tokens with A < 0 whose ratio exceeds ``cap``: their loss is bounded by −A·cap."""
    return TrustRegion(RatioDeviation(ratio), Band(INFINITY, cap - 1.0), NegativeAdvantage())


def over_horizon(horizon: Leaf) -> Aggregation:
    """Sequence sums over a fixed number of tokens."""
    return Aggregation("sequence_sum_over_horizon", horizon=horizon)


def aggregate(mode: Mode, denominator: Denominator = "original", horizon: Leaf = 1.0) -> Aggregation:
    """An aggregation by name."""
    return Aggregation(mode, denominator, horizon)
