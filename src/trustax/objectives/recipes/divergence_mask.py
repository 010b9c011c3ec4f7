"""Masks that drop tokens beyond a divergence threshold whose update would move them further (DPPO, PDM).

Everything is anchored on μ, the distribution that was sampled. ``w = min(π/μ, C)·keep``.
"""

from trustax.objectives.aggregation import Mode
from trustax.objectives.directions import Certified, Direction, Predictive, RatioSign, Tail, UpdateAware
from trustax.objectives.masks import TrustRegion
from trustax.objectives.proximity import BinaryKL, BinaryTV, LumpedDivergence, Proximity
from trustax.objectives.ratio import BEHAVIOR
from trustax.objectives.recipes.parts import INFINITY, Leaf, aggregate
from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.thresholds import Constant
from trustax.objectives.weights import ClippedRatio

_DPPO = "DPPO, arXiv 2602.04879"
_PDM = "PDM, arXiv 2607.10848"
_LOSS = "−sg[min(r, C)·M]·A·log π, M = 0 iff D > δ and outward"


def _masked(
    name: str, proximity: Proximity, direction: Direction, delta: Leaf, cap: Leaf, mode: Mode, source: str
) -> ObjectiveSpec:
    return ObjectiveSpec(
        mask=TrustRegion(proximity, Constant(delta), direction),
        weights=(ClippedRatio(BEHAVIOR, high=cap),),
        aggregation=aggregate(mode),
        advantage="group_centered",
        name=name,
        loss=_LOSS,
        source=source,
    )


def dppo_binary_tv(
    *, delta: Leaf = 0.15, cap: Leaf = INFINITY, aggregation: Mode = "sequence_mean_of_token_sums"
) -> ObjectiveSpec:
    """DPPO with D = |π − μ| of the sampled token.

    ``keep = ¬(|π − μ| > δ ∧ A(r − 1) > 0)``, ``w = keep·min(r, C)``.

    Source: DPPO, arXiv 2602.04879, eq. 12-13; δ .15 and C ∞ are its sanity test's, C 5 its scaling runs'.
    """
    return _masked(
        "dppo_binary_tv", BinaryTV(), RatioSign(), delta, cap, aggregation, f"{_DPPO}, eq. 12-13; C → 5 at scale"
    )


def dppo_binary_kl(
    *, delta: Leaf = 0.05, cap: Leaf = INFINITY, aggregation: Mode = "sequence_mean_of_token_sums"
) -> ObjectiveSpec:
    """DPPO with D = KL(μ‖π) of the sampled token against the rest.

    ``keep = ¬(D > δ ∧ A(r − 1) > 0)``, ``w = keep·min(r, C)``.

    Source: DPPO, arXiv 2602.04879, eq. 14 (δ .05).
    """
    return _masked(
        "dppo_binary_kl", BinaryKL(), RatioSign(), delta, cap, aggregation, f"{_DPPO}, eq. 14; C → 5 at scale"
    )


def dppo_topk_tv(
    *, delta: Leaf = 0.15, cap: Leaf = INFINITY, aggregation: Mode = "sequence_mean_of_token_sums"
) -> ObjectiveSpec:
    """DPPO with the total variation over TopK(μ) ∪ {y} and the rest.

    ``keep = ¬(D > δ ∧ A(r − 1) > 0)``, ``w = keep·min(r, C)``. K is the rollout's (20 in the paper).

    Source: DPPO, arXiv 2602.04879, eq. 15-16; its scaling runs use δ .2.
    """
    proximity = LumpedDivergence("tv")
    return _masked(
        "dppo_topk_tv", proximity, RatioSign(), delta, cap, aggregation, f"{_DPPO}, eq. 15-16; C → 5 at scale"
    )


def dppo_topk_kl(
    *, delta: Leaf = 0.05, cap: Leaf = INFINITY, aggregation: Mode = "sequence_mean_of_token_sums"
) -> ObjectiveSpec:
    """DPPO with KL(μ‖π) over TopK(μ) ∪ {y} and the rest: PDM's baseline.

    ``keep = ¬(D > δ ∧ A(r − 1) > 0)``, ``w = keep·min(r, C)``. K is the rollout's (20 in the paper).

    Source: DPPO, arXiv 2602.04879, eq. 15-16 (δ .05).
    """
    proximity = LumpedDivergence("kl")
    return _masked(
        "dppo_topk_kl", proximity, RatioSign(), delta, cap, aggregation, f"{_DPPO}, eq. 15-16; C → 5 at scale"
    )


def pdm_topk_kl(
    *,
    delta: Leaf = 0.15,
    cap: Leaf = 5.0,
    tail: Tail = "exact",
    aggregation: Mode = "sequence_mean_of_token_sums",
) -> ObjectiveSpec:
    """Predictive divergence mask for KL(μ‖π).

    ``keep = ¬(D > δ ∧ A·G > 0)``, ``w = keep·min(r, C)``; G is the first-order change of the same D under the token's
    own softmax step. ``tail`` says how Σ_T π² is known: ``exact`` (ours, the default), the paper's ``aggregated`` and
    ``uniform``, or ``none``.

    Source: PDM, arXiv 2607.10848 (K 20, δ .15, C 5); aggregation and advantage are DPPO's (ours).
    """
    direction = Predictive("kl", tail)
    return _masked(
        "pdm_topk_kl", LumpedDivergence("kl"), direction, delta, cap, aggregation, f"{_PDM}; exact tail: ours"
    )


def pdm_topk_reverse_kl(
    *,
    delta: Leaf = 0.15,
    cap: Leaf = 5.0,
    tail: Tail = "exact",
    aggregation: Mode = "sequence_mean_of_token_sums",
) -> ObjectiveSpec:
    """Predictive divergence mask for KL(π‖μ).

    ``keep = ¬(D > δ ∧ A·G > 0)`` with D and G of the reverse KL, ``w = keep·min(r, C)``.

    Source: the mask is PDM's, arXiv 2607.10848; this divergence's direction is derived here, δ and C are ours.
    """
    return _masked(
        "pdm_topk_reverse_kl",
        LumpedDivergence("reverse_kl"),
        Predictive("reverse_kl", tail),
        delta,
        cap,
        aggregation,
        f"{_PDM}; this divergence, δ and C: ours",
    )


def pdm_topk_tv(
    *,
    delta: Leaf = 0.15,
    cap: Leaf = 5.0,
    tail: Tail = "exact",
    aggregation: Mode = "sequence_mean_of_token_sums",
) -> ObjectiveSpec:
    """Predictive divergence mask for the total variation.

    ``keep = ¬(D > δ ∧ outward)``, ``w = keep·min(r, C)``; outward iff ``A·G + |A|·R > 0``, R what tied cells add.

    Source: the mask is PDM's, arXiv 2607.10848; this divergence's direction is derived here, δ and C are ours.
    """
    return _masked(
        "pdm_topk_tv",
        LumpedDivergence("tv"),
        Predictive("tv", tail),
        delta,
        cap,
        aggregation,
        f"{_PDM}; this divergence, δ and C: ours",
    )


def pdm_certified(
    *, delta: Leaf = 0.15, cap: Leaf = 5.0, aggregation: Mode = "sequence_mean_of_token_sums"
) -> ObjectiveSpec:
    """Predictive divergence mask that drops only what is proven to move outward.

    ``keep = ¬(D > δ ∧ A·sign > 0)``, sign that of the *full-vocabulary* G where the tail's bounds prove it, else 0.

    Source: ours; bounds derived for PDM's direction, arXiv 2607.10848.
    """
    return _masked("pdm_certified", LumpedDivergence("kl"), Certified(), delta, cap, aggregation, f"ours, after {_PDM}")


def update_aware(
    *, delta: Leaf = 0.15, cap: Leaf = 5.0, aggregation: Mode = "sequence_mean_of_token_sums"
) -> ObjectiveSpec:
    """Mask by what the actual optimizer update would do to each token's KL(μ‖π).

    ``keep = ¬(D > δ ∧ dD > 0)``, dD the derivative of the token's D along the update of the unmasked objective, which
    the trainer supplies as ``divergence_rate``.

    Source: ours.
    """
    return _masked("update_aware", LumpedDivergence("kl"), UpdateAware(), delta, cap, aggregation, "ours")
