"""Methods that pull back instead of cutting off: DRPO and its kin, SPO, DRO, the two SAPOs; and SAT's drawn-in clip."""

from trustax.objectives.aggregation import Mode
from trustax.objectives.directions import Predictive, RatioSign, Tail
from trustax.objectives.gates import Linear, SechSquared
from trustax.objectives.masks import TrustRegion
from trustax.objectives.proximity import BinaryTV, RatioDeviation
from trustax.objectives.ratio import BEHAVIOR, Anchor, policy_ratio
from trustax.objectives.recipes.parts import Leaf, aggregate, over_horizon, ratio_clip
from trustax.objectives.regularizers import LiftOfGoodTokens, SquaredLogRatio, unless_zero
from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.thresholds import Constant, HillForm, QuantileContracted
from trustax.objectives.weights import ClippedRatio

_DRPO = "DRPO, arXiv 2606.09821"


def _drpo(name: str, gate: Linear, horizon: Leaf, loss: str, source: str) -> ObjectiveSpec:
    return ObjectiveSpec(
        weights=(ClippedRatio(BEHAVIOR),),
        gates=(gate,),
        aggregation=over_horizon(horizon),
        advantage="group_centered",
        name=name,
        loss=loss,
        source=source,
    )


def drpo(*, delta: Leaf = 12.5, horizon: Leaf = 8192.0) -> ObjectiveSpec:
    """Divergence-regularised policy optimization: a quadratic in probability space instead of a mask.

    Loss ``−A·r + |A|/(2δ)·μ(r − 1)²``; ``w = r·(1 − sign(A(r−1))·|π−μ|/δ)``. At the published δ the factor stays in
    [.92, 1.08]; it reaches 0 and turns back only for δ < 1.

    Source: DRPO, arXiv 2606.09821, eq. 8-9 (δ 12.5, H 8192).
    """
    gate = Linear(BinaryTV(), delta, RatioSign())
    return _drpo("drpo", gate, horizon, "−A·r + |A|/(2δ)·μ·(r − 1)²", f"{_DRPO}, eq. 8-9")


def masked_drpo(*, delta: Leaf = 12.5, delta_mask: Leaf = 0.15, horizon: Leaf = 8192.0) -> ObjectiveSpec:
    """DRPO that regularises only outside DPPO's region.

    ``w = r·(1 − 1[|π−μ| > δ_mask]·sign(A(r−1))·|π−μ|/δ)``.

    Source: the ablation Mask-DRPO of DRPO, arXiv 2606.09821; δ_mask is DPPO's .15 (ours).
    """
    region = TrustRegion(BinaryTV(), Constant(delta_mask), RatioSign())
    gate = Linear(BinaryTV(), delta, RatioSign(), only_where=region)
    loss = "−A·r + 1[|π−μ| > δ_mask]·|A|/(2δ)·μ·(r − 1)²"
    return _drpo("masked_drpo", gate, horizon, loss, f"{_DRPO}, ablation; δ_mask: ours")


def drpo_predictive(*, delta: Leaf = 12.5, tail: Tail = "exact", horizon: Leaf = 8192.0) -> ObjectiveSpec:
    """DRPO's quadratic, on the tokens that PDM's direction calls outward.

    ``w = r·(1 − 1[A·G > 0]·|π−μ|/δ)``, G of KL(μ‖π): outward tokens are held back, the others left alone.

    Source: ours, after DRPO, arXiv 2606.09821, and PDM, arXiv 2607.10848.
    """
    gate = Linear(BinaryTV(), delta, Predictive("kl", tail), on="outward")
    loss = "−sg[r·(1 − 1[A·G > 0]·|π−μ|/δ)]·A·log π"
    return _drpo("drpo_predictive", gate, horizon, loss, "ours, after DRPO and PDM")


def spo(*, eps: Leaf = 12.5, anchor: Anchor = "anchor") -> ObjectiveSpec:
    """Simple policy optimization: a quadratic in the ratio instead of a clip.

    Loss ``−A·r + |A|(r − 1)²/(2ε)``; ``w = r·(1 − sign(A)(r−1)/ε)``, unbounded below for unlikely tokens.

    Source: SPO, arXiv 2401.16025; ε 12.5 is the value of DRPO's comparison.
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        weights=(ClippedRatio(ratio),),
        gates=(Linear(RatioDeviation(ratio), eps, RatioSign(ratio)),),
        aggregation=aggregate("token_mean"),
        advantage="group_centered",
        name="spo",
        loss="−A·r + |A|·(r − 1)²/(2ε)",
        source="SPO, arXiv 2401.16025; ε: DRPO's comparison; advantage: ours",
    )


def dro(*, beta: Leaf = 0.1, anchor: Anchor = "anchor", aggregation: Mode = "token_mean") -> ObjectiveSpec:
    """Direct reward optimization: REINFORCE with a quadratic pull to the anchor.

    Loss ``−(A·log π − β/2·l²)``; the gradient is ``(A − β·l)·∇log π``.

    Source: DRO, arXiv 2405.19107, as in verl; β is ours.
    """
    return ObjectiveSpec(
        regularizers=unless_zero(SquaredLogRatio(beta * 0.5, anchor=anchor)),
        aggregation=aggregate(aggregation),
        advantage="group_centered",
        name="dro",
        loss="−A·log π + β/2·l²",
        source="DRO, arXiv 2405.19107, verl's form; β, advantage and aggregation: ours",
    )


def sapo_search(
    *,
    tau: Leaf = 0.8,
    lam: Leaf = 0.1,
    eps_low: Leaf = 0.2,
    eps_high: Leaf = 0.2,
    strict: bool = False,
    anchor: Anchor = "anchor",
) -> ObjectiveSpec:
    """PPO's clip, plus a lift of the tokens of good answers whose ratio has fallen (search agent policy optimization).

    Loss ``PPO − λ/N_B·Σ 1[A ≥ 0, r ≤ τ]·log r``; per token ``w·A + λ·(N/N_B)·1[A ≥ 0, r ≤ τ]``. A statistic of the
    batch (N_B). ``strict`` takes A > 0.

    Source: SAPO, arXiv 2603.10069; τ and λ are not published, .8 and .1 are ours.
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        mask=ratio_clip(ratio, eps_low, eps_high),
        weights=(ClippedRatio(ratio),),
        regularizers=unless_zero(LiftOfGoodTokens(lam, tau=tau, anchor=anchor, strict=strict)),
        aggregation=aggregate("token_mean"),
        advantage="group_normalized",
        name="sapo_search",
        loss="max(−A·r, −A·clip(r, 1−ε_low, 1+ε_high)) − λ·(N/N_B)·1[A ≥ 0, r ≤ τ]·log r",
        source="SAPO (search), arXiv 2603.10069; τ, λ: ours",
    )


def sapo_soft(*, tau_positive: Leaf = 1.0, tau_negative: Leaf = 1.05, anchor: Anchor = "anchor") -> ObjectiveSpec:
    """Soft adaptive policy optimization: a sigmoid surrogate instead of a clip.

    Surrogate ``(4/τ)·σ(τ(r − 1))``; ``w = r / cosh²(τ(r−1)/2)``, 1 at r = 1, decaying on both sides.

    Source: SAPO (soft), arXiv 2511.20347 (τ 1.0/1.05).
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        weights=(ClippedRatio(ratio),),
        gates=(SechSquared(ratio, tau_positive, tau_negative),),
        aggregation=aggregate("sequence_mean_of_token_means"),
        advantage="group_normalized",
        name="sapo_soft",
        loss="−A·(4/τ_A)·σ(τ_A·(r − 1))",
        source="SAPO (soft), arXiv 2511.20347",
    )


def sat(
    *,
    eps_low: Leaf = 0.2,
    eps_high: Leaf = 0.2,
    quantile: Leaf = 0.9,
    exponent: Leaf = 2.0,
    form: HillForm = "continuous",
    level: str = "token",
) -> ObjectiveSpec:
    """PPO's clip, with its ends drawn in for the most off-policy tokens of the batch.

    r > 1: upper end 1 + ε_high·c; r < 1: lower end 1 − ε_low·c; c = 1 up to the batch's 0.9 quantile of |l|, a Hill
    function beyond. ``w = r·1[kept]``; ``level="sequence"`` reads the geometric-mean ratio (SAT-GSPO).

    Source: SAT, arXiv 2607.18722 (ε .2, q .9, exponent 2); the Hill form is not published, ``continuous`` is ours.
    """
    if level not in ("token", "sequence"):
        raise ValueError(f"level must be 'token' or 'sequence'; got {level!r}")
    ratio = policy_ratio("behavior", "token" if level == "token" else "sequence_mean")
    contracted = QuantileContracted(eps_low, eps_high, quantile, exponent, ratio, form)
    return ObjectiveSpec(
        mask=TrustRegion(RatioDeviation(ratio), contracted, RatioSign(ratio)),
        weights=(ClippedRatio(ratio),),
        aggregation=aggregate("sequence_mean_of_token_means"),
        advantage="group_normalized",
        name="sat",
        loss="max(−A·r, −A·clip(r, 1 − ε_low·c, 1 + ε_high·c))",
        source="SAT, arXiv 2607.18722; Hill form and aggregation: ours",
    )
