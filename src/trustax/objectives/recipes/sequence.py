"""Methods that accept or reject whole sequences, or weigh them: TRM, OPSM, VACO, VESPO."""

from trustax.objectives.aggregation import Denominator
from trustax.objectives.directions import Always, NegativeAdvantage, RatioSign
from trustax.objectives.masks import TrustRegion
from trustax.objectives.proximity import (
    K2,
    K3,
    Absolute,
    LogRatioValue,
    Proximity,
    RatioDeviation,
    SequenceMax,
    SequenceMean,
)
from trustax.objectives.ratio import BEHAVIOR, Anchor, LogRatio, policy_ratio
from trustax.objectives.recipes.parts import INFINITY, Leaf, aggregate, ratio_clip
from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.thresholds import Band, Constant
from trustax.objectives.weights import ClippedRatio, GammaShaped

_TRM = "TRM, arXiv 2512.23075"


def _trm(name: str, proximity: Proximity, delta: Leaf, denominator: Denominator, loss: str) -> ObjectiveSpec:
    return ObjectiveSpec(
        mask=TrustRegion(proximity, Constant(delta), Always()),
        weights=(ClippedRatio(BEHAVIOR),),
        aggregation=aggregate("sequence_mean_of_token_sums", denominator),
        advantage="group_centered",
        name=name,
        loss=loss,
        source=f"{_TRM}; advantage: ours",
    )


def trm_max(*, delta: Leaf = 0.05, denominator: Denominator = "original") -> ObjectiveSpec:
    """Reject a sequence if any token is too far.

    ``keep_i = max_t ½ l_t² ≤ δ``, ``w = keep_i·r``. Longer sequences are rejected more; keep acceptance above 70 %.

    Source: TRM, arXiv 2512.23075 (δ .05); rejected sequences stay in the denominator.
    """
    return _trm("trm_max", SequenceMax(K2(BEHAVIOR)), delta, denominator, "−1[max_t ½·l² ≤ δ]·r·A")


def trm_avg(*, delta: Leaf = 0.001, denominator: Denominator = "original") -> ObjectiveSpec:
    """Reject a sequence if its tokens are too far on average.

    ``keep_i = mean_t (r − 1 − l) ≤ δ``, ``w = keep_i·r``.

    Source: TRM, arXiv 2512.23075 (δ .001); rejected sequences stay in the denominator.
    """
    return _trm("trm_avg", SequenceMean(K3(BEHAVIOR)), delta, denominator, "−1[mean_t (r − 1 − l) ≤ δ]·r·A")


def opsm(
    *, delta: Leaf = 1e-4, eps_low: Leaf = 0.2, eps_high: Leaf = 0.2, anchor: Anchor = "behavior"
) -> ObjectiveSpec:
    """Reject sequences of negative advantage that the policy has already moved away from.

    Drop sequence i iff A_i < 0 and ``mean_t (log μ − log π) > δ``; on top of PPO's clip, ``w = r`` for kept tokens.

    Source: DeepSeek-V3.2's off-policy sequence mask, slime (δ 1e-4); the base (PPO's clip on μ) is ours.
    """
    ratio = policy_ratio(anchor)
    stale = TrustRegion(SequenceMean(LogRatioValue(BEHAVIOR)), Band(delta, INFINITY), NegativeAdvantage())
    return ObjectiveSpec(
        mask=stale & ratio_clip(ratio, eps_low, eps_high),
        weights=(ClippedRatio(ratio),),
        aggregation=aggregate("sequence_mean_of_token_means"),
        advantage="group_normalized",
        name="opsm",
        loss="M·max(−A·r, −A·clip(r, 1−ε_low, 1+ε_high)), M = 0 iff A < 0 and mean_t log(μ/π) > δ",
        source="DeepSeek-V3.2; δ: slime; base: ours",
    )


def vaco(*, bound: Leaf = 0.2, cap: Leaf = 2.0, eps_low: Leaf = 0.2, eps_high: Leaf = 0.2) -> ObjectiveSpec:
    """Drop the tokens that drifted outward in sequences whose rollout differs from the trainer.

    k = α/μ. Drop iff ``mean_t |k − 1| > bound`` and A·log k > 0; ``w = keep·min(k, 2)·(PPO weight on π/α)``.

    Source: VACO, arXiv 2603.01365, in open-instruct's form (cap 2); the bound is not published, .2 is ours.
    """
    mismatch = LogRatio("anchor", "behavior")
    ratio = policy_ratio("anchor")
    drifted = TrustRegion(SequenceMean(Absolute(RatioDeviation(mismatch))), Constant(bound), RatioSign(mismatch))
    return ObjectiveSpec(
        mask=drifted & ratio_clip(ratio, eps_low, eps_high),
        weights=(ClippedRatio(mismatch, high=cap), ClippedRatio(ratio)),
        aggregation=aggregate("token_mean"),
        advantage="group_normalized",
        name="vaco",
        loss="M·sg[min(k, 2)]·max(−A·r, −A·clip(r, 1−ε_low, 1+ε_high)), M = 0 iff mean_t |k − 1| > δ and A·log k > 0",
        source="VACO, arXiv 2603.01365, open-instruct's form; bound: ours",
    )


def vespo(
    *,
    k_positive: Leaf = 2.0,
    lam_positive: Leaf = 3.0,
    k_negative: Leaf = 3.0,
    lam_negative: Leaf = 2.0,
    anchor: Anchor = "anchor",
) -> ObjectiveSpec:
    """Weigh each sequence by a gamma-shaped function of its probability ratio.

    ``w = φ(W) = e^λ W^k e^{−λW}``, W = Π_t r_t in [1e-8, e^20]; φ(1) = 1, the peak at k/λ.

    Source: VESPO, arXiv 2602.10693 ((k, λ) = (2, 3) for A ≥ 0, (3, 2) for A < 0).
    """
    ratio = policy_ratio(anchor, "sequence_sum")
    return ObjectiveSpec(
        weights=(GammaShaped(ratio, k_positive, lam_positive, k_negative, lam_negative),),
        aggregation=aggregate("token_mean"),
        advantage="group_normalized",
        name="vespo",
        loss="−sg[φ(W)]·A·log π, φ(W) = e^λ·W^k·e^(−λW), W = Π_t r_t",
        source="VESPO, arXiv 2602.10693; advantage and aggregation: ours",
    )
