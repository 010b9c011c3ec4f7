"""Corrections for a trainer and a rollout engine that disagree: weights by k = α/μ, on top of any objective.

α is the policy at the start of the update, recomputed by the trainer. ``spec -> spec``; all weights are detached.
"""

from trustax.objectives.directions import Always
from trustax.objectives.masks import TrustRegion
from trustax.objectives.proximity import RatioDeviation
from trustax.objectives.ratio import Level, LogRatio
from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.term import Leaf
from trustax.objectives.thresholds import Band
from trustax.objectives.weights import ClippedRatio


def _mismatch(level: Level) -> LogRatio:
    return LogRatio(numerator="anchor", denominator="behavior", level=level)


def truncated(spec: ObjectiveSpec, *, cap: Leaf = 2.0, level: Level = "token") -> ObjectiveSpec:
    """Multiply by ``min(k, cap)`` (TIS). ``level="sequence_sum"`` takes the product over the sequence."""
    return spec.replace(weights=(*spec.weights, ClippedRatio(_mismatch(level), high=cap)))


def masked(spec: ObjectiveSpec, *, cap: Leaf = 2.0, level: Level = "token") -> ObjectiveSpec:
    """Multiply by ``k·1[k ≤ cap]`` (MIS)."""
    return banded(spec, low=0.0, high=cap, level=level)


def banded(spec: ObjectiveSpec, *, low: Leaf = 0.5, high: Leaf = 5.0, level: Level = "token") -> ObjectiveSpec:
    """Multiply by ``k·1[low ≤ k ≤ high]`` (IcePop)."""
    ratio = _mismatch(level)
    region = TrustRegion(RatioDeviation(ratio), Band(1.0 - low, high - 1.0), Always())
    return spec.replace(mask=spec.mask & region, weights=(*spec.weights, ClippedRatio(ratio)))
