"""Methods that read the ratio of the prefix: CTPO, MinPRO, CPPO."""

from trustax.objectives.aggregation import Mode
from trustax.objectives.directions import NegativeAdvantage, RatioSign
from trustax.objectives.gates import InverseBudget
from trustax.objectives.masks import KeepAll, TrustRegion
from trustax.objectives.proximity import BinaryTV, LogRatioValue, LumpedDivergence, Position, PositionWeighted
from trustax.objectives.ratio import BEHAVIOR, Anchor, policy_ratio
from trustax.objectives.recipes.parts import INFINITY, Leaf, aggregate, over_horizon
from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.thresholds import PowerOfPosition, PrefixBudget
from trustax.objectives.weights import ClippedRatio, MinimumPrefix

_LARGEST_PREFIX_RATIO = 22026.465794806718
"""e^10: the published code's cap on the log of the prefix ratio."""


def ctpo(
    *,
    eps_low: Leaf = 0.025,
    eps_high: Leaf = 0.05,
    dual: Leaf = 0.05,
    power: Leaf = 0.5,
    anchor: Anchor = "anchor",
    aggregation: Mode = "sequence_mean_of_token_means",
) -> ObjectiveSpec:
    """Clip the prefix ratio in a band that widens with the position.

    S_t the prefix log-ratio, P = e^S, c = ``dual``. A > 0: ``w = P·1[S ≤ ε_high·t^p]``; A < 0:
    ``w = P·1[−ε_low·t^p ≤ S ≤ c·t^p]``. Only the current token carries a gradient. Under μ, S drifts down linearly:
    late tokens with A < 0 leave the band.

    Source: CTPO, arXiv 2605.07331, its code (ε .025/.05, p .5, c .05); aggregation: the paper's formula (the
    repository's default is the token mean).
    """
    prefix = policy_ratio(anchor, "prefix")
    statistic = LogRatioValue(prefix)
    clip = TrustRegion(statistic, PowerOfPosition(eps_low, eps_high, power), RatioSign(prefix))
    dual_clip = TrustRegion(statistic, PowerOfPosition(INFINITY, dual, power), NegativeAdvantage())
    return ObjectiveSpec(
        mask=clip & dual_clip,
        weights=(ClippedRatio(prefix, high=_LARGEST_PREFIX_RATIO),),
        aggregation=aggregate(aggregation),
        advantage="group_normalized",
        name="ctpo",
        loss="max(−A·P, −A·clip(P, e^(−ε_low·t^p), e^(ε_high·t^p))), for A < 0 min(·, −A·e^(c·t^p))",
        source="CTPO, arXiv 2605.07331 and its code",
    )


def minpro(*, eps_low: Leaf = 0.2, eps_high: Leaf = 0.28, cap_at_one: bool = False) -> ObjectiveSpec:
    """Weight by the current ratio times the smallest one before it.

    ``w = clip(b_t r_t, 1−ε_low, 1+ε_high)``, b_t = min_{j<t} r_j (1 for the first token; with ``cap_at_one`` never
    above 1). No token is dropped.

    Source: MinPRO, arXiv 2601.22718; the ε are not published, .2/.28 are ours.
    """
    return ObjectiveSpec(
        weights=(MinimumPrefix(BEHAVIOR, 1.0 - eps_low, 1.0 + eps_high, cap_at_one),),
        aggregation=aggregate("token_mean"),
        advantage="group_normalized",
        name="minpro",
        loss="−sg[clip(min_(j<t) r_j · r_t, 1−ε_low, 1+ε_high)]·A·log π",
        source="MinPRO, arXiv 2601.22718; ε: ours",
    )


def cppo(
    *,
    delta: Leaf = 0.15,
    delta_b: Leaf = 0.02,
    w_min: Leaf = 0.8,
    cap: Leaf = 20.0,
    adaptive: bool = True,
    quantile: Leaf = 0.9,
    scale: Leaf = 1.0,
    ceiling: Leaf = 2.0,
    divergence: str = "topk_tv",
    position: Position = "valid",
    gate: str = "hard",
    horizon: Leaf = 8192.0,
) -> ObjectiveSpec:
    """Divergence mask with a position weight and a budget for the whole prefix.

    Z_t = wp_t·D_t, ``keep = A(r − 1) ≤ 0 or Z_t ≤ min(δ, δ + δ_b W_{t−1} − S_{t−1})``, ``w = keep·min(r, C)``. With
    ``adaptive`` δ_b is the sequence's clipped 0.9 quantile of D, between ``delta_b`` and ``ceiling·delta_b``.
    ``gate="soft"`` multiplies outward tokens by min(1, 1/x) instead.

    Source: CPPO, arXiv 2606.10968 (δ .15, w_min .8, δ_b .02, q .9, ceiling 2; the pull request has 5), C 20 and the
    advantage without std from its scripts (the paper says group-normalised); positions count valid tokens (the pull
    request counts columns); horizon ours.
    """
    if divergence not in ("topk_tv", "binary_tv"):
        raise ValueError(f"divergence must be 'topk_tv' or 'binary_tv'; got {divergence!r}")
    if gate not in ("hard", "soft"):
        raise ValueError(f"gate must be 'hard' or 'soft'; got {gate!r}")
    base = LumpedDivergence("tv") if divergence == "topk_tv" else BinaryTV()
    weighted = PositionWeighted(base, w_min, position)
    budget = PrefixBudget(base, delta, delta_b, w_min, quantile if adaptive else None, scale, ceiling, position)
    hard = gate == "hard"
    return ObjectiveSpec(
        mask=TrustRegion(weighted, budget, RatioSign()) if hard else KeepAll(),
        weights=(ClippedRatio(BEHAVIOR, high=cap),),
        gates=() if hard else (InverseBudget(weighted, budget, RatioSign()),),
        aggregation=over_horizon(horizon),
        advantage="group_centered",
        name="cppo",
        loss="−sg[min(r, C)·M]·A·log π, M = 0 iff outward and Z > min(δ, δ + δ_b·W_(t−1) − S_(t−1))",
        source="CPPO, arXiv 2606.10968; horizon: ours",
    )
