"""PPO for a trainer and a rollout engine that disagree: truncated, masked, banded; and MiniRL."""

from trustax.objectives import corrections
from trustax.objectives.ratio import BEHAVIOR, Level, policy_ratio
from trustax.objectives.recipes.parts import Leaf, aggregate, ratio_clip
from trustax.objectives.recipes.ratio_clip import ppo_clip
from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.weights import ClippedRatio

_LEVEL: dict[str, Level] = {"token": "token", "sequence": "sequence_sum"}


def _level(scope: str) -> Level:
    if scope not in _LEVEL:
        raise ValueError(f"level must be 'token' or 'sequence'; got {scope!r}")
    return _LEVEL[scope]


def _named(spec: ObjectiveSpec, name: str, factor: str, source: str) -> ObjectiveSpec:
    loss = f"sg[{factor}]·max(−A·r, −A·clip(r, 1−ε_low, 1+ε_high)), k = α/μ"
    return spec.replace(name=name, loss=loss, advantage="group_normalized", source=source)


def tis(*, cap: Leaf = 2.0, level: str = "token", eps_low: Leaf = 0.2, eps_high: Leaf = 0.2) -> ObjectiveSpec:
    """PPO's clip on π/α, times a truncated weight on α/μ.

    ``w = min(k, C)·r·1[kept by PPO]``, k = α/μ per token, or its product over the sequence.

    Source: truncated importance sampling as in verl (C 2); the base is PPO's clip (ours).
    """
    spec = corrections.truncated(ppo_clip(eps_low=eps_low, eps_high=eps_high), cap=cap, level=_level(level))
    return _named(spec, "tis", "min(k, C)", "TIS, verl's rollout correction; base: ours")


def mis(*, cap: Leaf = 2.0, level: str = "token", eps_low: Leaf = 0.2, eps_high: Leaf = 0.2) -> ObjectiveSpec:
    """PPO's clip on π/α, times a masked weight on α/μ.

    ``w = k·1[k ≤ C]·r·1[kept by PPO]``.

    Source: masked importance sampling as in verl (C as for TIS); the base is PPO's clip (ours).
    """
    spec = corrections.masked(ppo_clip(eps_low=eps_low, eps_high=eps_high), cap=cap, level=_level(level))
    return _named(spec, "mis", "k·1[k ≤ C]", "MIS, verl's rollout correction; base: ours")


def icepop(*, low: Leaf = 0.5, high: Leaf = 5.0, eps_low: Leaf = 0.2, eps_high: Leaf = 0.2) -> ObjectiveSpec:
    """PPO's clip on π/α, times a weight on α/μ that is 0 outside a band.

    ``w = k·1[α_low ≤ k ≤ β]·r·1[kept by PPO]``; the narrow band .5-2 destabilises.

    Source: IcePop (.5/5); the base is PPO's clip (ours).
    """
    spec = corrections.banded(ppo_clip(eps_low=eps_low, eps_high=eps_high), low=low, high=high)
    return _named(spec, "icepop", "k·1[low ≤ k ≤ high]", "IcePop; base: ours")


def mini_rl(*, eps_low: Leaf = 0.2, eps_high: Leaf = 0.27, cap: Leaf = 5.0) -> ObjectiveSpec:
    """Mask by the recomputed anchor, weigh by the rollout engine.

    ``w = min(π/μ, C)·1[kept by PPO on π/α]``.

    Source: MiniRL, arXiv 2512.01374 (ε .2/.27; C 5 recalled); aggregation ours.
    """
    return ObjectiveSpec(
        mask=ratio_clip(policy_ratio("anchor"), eps_low, eps_high),
        weights=(ClippedRatio(BEHAVIOR, high=cap),),
        aggregation=aggregate("sequence_mean_of_token_sums"),
        advantage="group_centered",
        name="mini_rl",
        loss="−sg[min(π/μ, C)·M]·A·log π, M PPO's clip on π/α",
        source="MiniRL, arXiv 2512.01374; C recalled; aggregation: ours",
    )
