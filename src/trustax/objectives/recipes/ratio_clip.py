"""Policy gradient and the methods that clip a token or sequence ratio.

In all docstrings: A advantage, r = π/α (or π/μ with ``anchor="behavior"``), α the policy at the start of the update,
``w`` the weight in ``∇J = Agg[w·A·∇log π]``. Defaults are the published ones unless called ours.
"""

from trustax.objectives.aggregation import Mode
from trustax.objectives.covariance import CovarianceBand
from trustax.objectives.directions import RatioSign
from trustax.objectives.masks import KeepAll, TrustRegion
from trustax.objectives.proximity import LogRatioValue
from trustax.objectives.ratio import Anchor, Level, policy_ratio
from trustax.objectives.recipes.parts import Leaf, aggregate, dual_clip, over_horizon, ratio_clip
from trustax.objectives.regularizers import CovariancePenalty, KLPenalty, unless_zero
from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.thresholds import Band
from trustax.objectives.weights import ClampedGeometricMean, ClippedRatio, ReciprocalOnPositive
from trustax.ops.advantages import GAE


def pg_is(*, level: Level = "token", aggregation: Mode = "sequence_mean_of_token_sums") -> ObjectiveSpec:
    """Policy gradient with importance weights and nothing else.

    ``w = r``, r = π/μ uncapped. With ``level="token"`` the gradient is that of ``E_μ[Σ_t r_t A]`` (first order in the
    policies' distance). ``"sequence_sum"`` gives the exact gradient of E_π[R]; ``"prefix"`` does so only if A_t is the
    value of the prefix under π, for an outcome reward it credits continuations as μ draws them.

    Source: PG-IS of DPPO, arXiv 2602.04879, §5 and App. C (M = 1, C = ∞).
    """
    return ObjectiveSpec(
        mask=KeepAll(),
        weights=(ClippedRatio(policy_ratio("behavior", level)),),
        aggregation=aggregate(aggregation),
        advantage="group_centered",
        name="pg_is",
        loss="−r·A",
        source="DPPO, arXiv 2602.04879, §5 (PG-IS); aggregation: its official example",
    )


def ppo_clip(
    *,
    eps_low: Leaf = 0.2,
    eps_high: Leaf = 0.2,
    anchor: Anchor = "anchor",
    aggregation: Mode = "token_mean",
    critic: bool = False,
) -> ObjectiveSpec:
    """Proximal policy optimization with the clipped surrogate.

    Loss ``max(−A r, −A clip(r, 1−ε_low, 1+ε_high))``; ``w = r`` if (A > 0 and r ≤ 1+ε_high) or (A < 0 and r ≥ 1−ε_low),
    else 0.

    Source: PPO, arXiv 1707.06347, eq. 7 (ε = 0.2). It uses a critic, as ``critic=True`` does (GAE; the policy
    then needs a value head); the critic-free advantage, whitened over the batch, is ours.
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        mask=ratio_clip(ratio, eps_low, eps_high),
        weights=(ClippedRatio(ratio),),
        aggregation=aggregate(aggregation),
        advantage=GAE if critic else "reinforce_plus_plus",
        name="ppo_clip",
        loss="max(−A·r, −A·clip(r, 1−ε_low, 1+ε_high))",
        source="PPO, arXiv 1707.06347, eq. 7; advantage without a critic: ours",
    )


def grpo(
    *,
    eps_low: Leaf = 0.2,
    eps_high: Leaf = 0.2,
    beta: Leaf = 0.04,
    estimator: str = "k3_of_forward_kl",
    anchor: Anchor = "anchor",
) -> ObjectiveSpec:
    """Group relative policy optimization.

    PPO's clip with group-normalised advantages, plus ``β·k3(π, ρ)`` to a frozen reference. The published k3 has the
    gradient of KL(ρ‖π); ask for ``estimator="k2"`` or ``"k3_weighted"`` to get that of KL(π‖ρ). ``beta=0`` removes the
    term and the need of a reference.

    Source: DeepSeekMath, arXiv 2402.03300, eq. 3-4 (β = 0.04); ε = 0.2 is the value of its common implementations.
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        mask=ratio_clip(ratio, eps_low, eps_high),
        weights=(ClippedRatio(ratio),),
        regularizers=unless_zero(KLPenalty(beta, estimator=estimator)),
        aggregation=aggregate("sequence_mean_of_token_means"),
        advantage="group_normalized",
        name="grpo",
        loss="max(−A·r, −A·clip(r, 1−ε_low, 1+ε_high)) + β·k3(π, ρ)",
        source="DeepSeekMath, arXiv 2402.03300, eq. 3-4; β recalled from the paper, ε from implementations",
    )


def dapo(*, eps_low: Leaf = 0.2, eps_high: Leaf = 0.28, dual: Leaf = 10.0, anchor: Anchor = "anchor") -> ObjectiveSpec:
    """Clip-higher PPO over token means, without KL, with a dual clip.

    ``w = r`` unless PPO's clip drops it, or A < 0 and r > ``dual``. Dynamic sampling and overlong shaping belong to the
    data, not to the loss (``ops.advantages.dynamic_sampling_keep``).

    Source: DAPO, arXiv 2503.14476 (ε .2/.28); dual clip 10: its recipe in verl.
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        mask=ratio_clip(ratio, eps_low, eps_high) & dual_clip(ratio, dual),
        weights=(ClippedRatio(ratio),),
        aggregation=aggregate("token_mean"),
        advantage="group_normalized",
        name="dapo",
        loss="max(−A·r, −A·clip(r, 1−ε_low, 1+ε_high)), for A < 0 min(·, −A·c)",
        source="DAPO, arXiv 2503.14476; c = 10: verl's recipe",
    )


def dr_grpo(
    *, eps_low: Leaf = 0.2, eps_high: Leaf = 0.2, horizon: Leaf = 8192.0, anchor: Anchor = "anchor"
) -> ObjectiveSpec:
    """GRPO without its two biases: no division by the group's std, none by the sequence's length.

    PPO's clip; A = R − group mean; sequence sums over a fixed ``horizon`` (the largest completion length).

    Source: Dr. GRPO, arXiv 2503.20783, §3.2; horizon 8192 is ours: set it to your completion limit.
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        mask=ratio_clip(ratio, eps_low, eps_high),
        weights=(ClippedRatio(ratio),),
        aggregation=over_horizon(horizon),
        advantage="group_centered",
        name="dr_grpo",
        loss="max(−A·r, −A·clip(r, 1−ε_low, 1+ε_high))",
        source="Dr. GRPO, arXiv 2503.20783; horizon: ours",
    )


def gspo(*, eps_low: Leaf = 3e-4, eps_high: Leaf = 4e-4, anchor: Anchor = "anchor") -> ObjectiveSpec:
    """PPO on the geometric-mean ratio of a sequence.

    ``s = exp(mean_t l_t)``; ``w = s·1[kept by s]``, the same for all tokens of a sequence.

    Source: GSPO, arXiv 2507.18071, eq. 5-7 (ε 3e-4/4e-4).
    """
    ratio = policy_ratio(anchor, "sequence_mean")
    return ObjectiveSpec(
        mask=ratio_clip(ratio, eps_low, eps_high),
        weights=(ClippedRatio(ratio),),
        aggregation=aggregate("sequence_mean_of_token_means"),
        advantage="group_normalized",
        name="gspo",
        loss="max(−A·s, −A·clip(s, 1−ε_low, 1+ε_high)), s = exp(mean_t log r)",
        source="GSPO, arXiv 2507.18071, eq. 5-7",
    )


def luspo(*, eps_low: Leaf = 3e-4, eps_high: Leaf = 4e-4, anchor: Anchor = "anchor") -> ObjectiveSpec:
    """GSPO with each sequence's loss multiplied by its length.

    ``w = s·1[kept by s]`` per token, summed (not averaged) over the sequence: long answers are not played down.

    Source: LUSPO as in TRL's code; ε is GSPO's (ours).
    """
    return gspo(eps_low=eps_low, eps_high=eps_high, anchor=anchor).replace(
        aggregation=aggregate("sequence_mean_of_token_sums"),
        name="luspo",
        loss="n·max(−A·s, −A·clip(s, 1−ε_low, 1+ε_high)), s = exp(mean_t log r)",
        source="TRL's implementation of LUSPO; ε: ours (GSPO's)",
    )


def gmpo(*, eps_low: Leaf = 0.4, eps_high: Leaf = 0.4, anchor: Anchor = "anchor") -> ObjectiveSpec:
    """Geometric-mean policy optimization.

    Loss of a sequence ``−A·exp(mean_t lc_t)``, lc = min(l, ε_high) where A > 0, max(l, −ε_low) else. Per token
    ``w = R·1[l not clamped]``, R = exp(mean lc); the mean over tokens is the aggregation's. Clamped values enter the
    weight of the other tokens.

    Source: GMPO, arXiv 2507.20673 (ε = 0.4).
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        mask=TrustRegion(LogRatioValue(ratio), Band(eps_low, eps_high), RatioSign(ratio)),
        weights=(ClampedGeometricMean(ratio, eps_low, eps_high),),
        aggregation=aggregate("sequence_mean_of_token_means"),
        advantage="group_normalized",
        name="gmpo",
        loss="−A·exp(mean_t lc), lc = min(l, ε) for A > 0, max(l, −ε) else",
        source="GMPO, arXiv 2507.20673; verl's geo_mean",
    )


def cispo(*, low: Leaf = 0.0, cap: Leaf = 5.0, anchor: Anchor = "behavior") -> ObjectiveSpec:
    """Clip the weight, never the gradient.

    ``w = clip(r, low, cap)``: every token keeps a gradient, of bounded size.

    Source: CISPO (MiniMax-M1), arXiv 2506.13585; cap 5, absolute, without lower bound: ScaleRL and DPPO's table.
    """
    return ObjectiveSpec(
        weights=(ClippedRatio(policy_ratio(anchor), low, cap),),
        aggregation=aggregate("token_mean"),
        advantage="group_normalized",
        name="cispo",
        loss="−sg[clip(r, low, C)]·A·log π",
        source="CISPO, arXiv 2506.13585; cap: ScaleRL and DPPO's baselines",
    )


def aipo(*, rho: Leaf = 5.0) -> ObjectiveSpec:
    """REINFORCE with a capped importance weight (LlamaRL).

    ``w = min(π/μ, ρ)``, detached: above ρ the weight is capped, not zero, as ``min(r, ρ)·A`` without a stop-gradient
    would make it.

    Source: LlamaRL, arXiv 2505.24034; ρ is said to be about 2-10, 5 is ours.
    """
    return ObjectiveSpec(
        weights=(ClippedRatio(policy_ratio("behavior"), high=rho),),
        aggregation=aggregate("token_mean"),
        advantage="group_centered",
        name="aipo",
        loss="−sg[min(r, ρ)]·A·log π",
        source="LlamaRL, arXiv 2505.24034; ρ, advantage and aggregation: ours",
    )


def aspo(*, eps_low: Leaf = 0.2, eps_high: Leaf = 0.2, cap: Leaf = 3.0, anchor: Anchor = "anchor") -> ObjectiveSpec:
    """PPO's clip with the reciprocal ratio on positive advantages.

    A > 0: ``w = min(1/r, cap)`` for r ≤ 1+ε_high, else 0; A < 0: ``w = min(r, cap)`` for r ≥ 1−ε_low, else 0.

    Source: ASPO, code of Archer2.0 (ε .2/.2, cap 3); its entropy-dependent ε is left out.
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        mask=ratio_clip(ratio, eps_low, eps_high),
        weights=(ReciprocalOnPositive(ratio, cap),),
        aggregation=aggregate("token_mean"),
        advantage="group_normalized",
        name="aspo",
        loss="−sg[min(1/r, C)]·A·log π for A > 0, −sg[min(r, C)]·A·log π else; PPO's clip",
        source="ASPO, code of Archer2.0",
    )


def clip_cov(
    *,
    share: Leaf = 2e-4,
    cov_low: Leaf = 1.0,
    cov_high: Leaf = 5.0,
    eps_low: Leaf = 0.2,
    eps_high: Leaf = 0.2,
    anchor: Anchor = "anchor",
) -> ObjectiveSpec:
    """PPO's clip, and no gradient on the tokens whose log-prob and advantage covary most.

    ``w = r·1[kept by PPO]·1[not selected]``; selected: the largest ``share`` of all tokens by
    (log π − mean)(A − mean), among those inside (cov_low, cov_high). The published code draws them at random from the
    band; taking the largest is ours. A statistic of the whole batch; it drops tokens also where π = α.

    Source: Clip-Cov, arXiv 2505.22617, verl (share 2e-4, band 1-5, recalled).
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        mask=ratio_clip(ratio, eps_low, eps_high) & CovarianceBand(share, cov_low, cov_high),
        weights=(ClippedRatio(ratio),),
        aggregation=aggregate("token_mean"),
        advantage="group_normalized",
        name="clip_cov",
        loss="max(−A·r, −A·clip(r, 1−ε_low, 1+ε_high)), 0 on selected tokens",
        source="Clip-Cov, arXiv 2505.22617; deterministic selection: ours",
    )


def kl_cov(*, share: Leaf = 2e-4, coefficient: Leaf = 1.0, anchor: Anchor = "anchor") -> ObjectiveSpec:
    """Importance-weighted policy gradient, and a pull to the anchor where log-prob and advantage covary most.

    ``w = r``; plus ``coefficient·l²/2`` on the largest ``share`` of tokens by covariance. A statistic of the whole
    batch.

    Source: KL-Cov, arXiv 2505.22617, verl (share 2e-4, coefficient 1, recalled); the penalty's form l²/2 is ours.
    """
    ratio = policy_ratio(anchor)
    return ObjectiveSpec(
        weights=(ClippedRatio(ratio),),
        regularizers=unless_zero(CovariancePenalty(coefficient, share=share, anchor=anchor)),
        aggregation=aggregate("token_mean"),
        advantage="group_normalized",
        name="kl_cov",
        loss="−A·r + β·½·log² r on selected tokens",
        source="KL-Cov, arXiv 2505.22617; penalty form: ours",
    )
