"""Objectives of a flow policy: which ratio, which mask, how much KL to the reference.

    loss = mean over samples and noisy steps of  −sg[A·r·keep]·score + β·KL(π‖ρ)

``score`` is log r, or ε·d for GRPO-Guard, and r its exponential: the gradient is r·A·∇score of what is kept.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trustax.flow.masks import FullPredictive, KeepAll, Leaf, RatioClip, StepMask, TrustRegion, outside
from trustax.flow.paths import StepStats
from trustax.ops.ratios import LOG_RATIO_LIMIT
from trustax.types import pytree_dataclass, static_field

SCORES = ("log_ratio", "guard")


@pytree_dataclass
class FlowOutput:
    """A loss as ``(sum, weight)``, to be added up and divided once, and what was seen."""

    sum: Float[Array, ""]
    weight: Float[Array, ""]
    metrics: dict[str, Float[Array, ""]]

    @property
    def loss(self) -> Float[Array, ""]:
        """``sum / weight``."""
        return self.sum / self.weight


@pytree_dataclass
class FlowObjective:
    """A composition: mask × score × KL to the reference. Its numbers are leaves, so that sweeping never recompiles.

    ``beta`` None asks for no reference; a number, 0 too, needs its KL in the statistics.

    Raises: ValueError with everything that is wrong, when it is built with concrete numbers.
    """

    mask: StepMask
    beta: Leaf | None = None
    score: str = static_field(default="log_ratio")
    name: str = static_field(default="own")

    def __post_init__(self) -> None:
        found = self.mask.problems()
        found += [] if self.beta is None else outside("beta", self.beta, 0.0, float("inf"))
        found += [] if self.score in SCORES else [f"score is {self.score!r}, expected one of {', '.join(SCORES)}"]
        if found:
            raise ValueError(f"flow objective {self.name!r} cannot be built: " + "; ".join(found))

    def __call__(self, stats: StepStats) -> FlowOutput:
        """Compute the loss and its metrics.

        Gradient: r·A·∇score per kept step and β·∇KL; none through masks, weights or metrics.

        Raises: ValueError if β needs a reference that the statistics lack, or the score does not fit the sampler.
        """
        self._check(stats)
        score = stats.log_ratio if self.score == "log_ratio" else stats.guard
        fixed = jax.lax.stop_gradient(score)
        reading = self.mask(stats, fixed)
        ratio = jnp.exp(jnp.clip(fixed, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
        losses = jnp.where(reading.keep, -stats.advantages * ratio * score, jnp.zeros_like(score))
        if self.beta is not None and stats.reference_kl is not None:
            losses = losses + jnp.asarray(self.beta, losses.dtype) * stats.reference_kl
        weight = jnp.asarray(losses.size, losses.dtype)
        moved = stats.advantages != 0
        metrics = {
            "mask/fraction": jnp.mean((~reading.keep & moved).astype(losses.dtype)),
            "mask/far": jnp.mean(reading.far.astype(losses.dtype)),
            "divergence/mean": jnp.mean(stats.divergence),
            "divergence/max": jnp.max(stats.divergence),
            "ratio/spread": jnp.std(fixed),
        }
        return FlowOutput(jnp.sum(losses), weight, jax.lax.stop_gradient(metrics))

    def _check(self, stats: StepStats) -> None:
        if self.score == "guard" and stats.sampler != "flow_sde":
            raise ValueError(
                f"{self.name!r} standardises Flow-SDE's ratio, got paths of {stats.sampler!r}; sample with 'flow_sde'"
            )
        if self.beta is not None and stats.reference_kl is None:
            raise ValueError(f"{self.name!r} has a beta, but the statistics lack the KL to a reference: pass reference")


def policy_gradient(*, beta: Leaf | None = None) -> FlowObjective:
    """The ratio-weighted policy gradient, without a mask."""
    return FlowObjective(KeepAll(), beta, name="policy_gradient")


def flow_grpo(*, clip: Leaf = 1e-4, beta: Leaf | None = None) -> FlowObjective:
    """Flow-GRPO, arXiv 2505.05470: PPO's clip on the step's ratio. With sampler ``cps``: Flow-CPS, arXiv 2509.05952."""
    return FlowObjective(RatioClip(clip, clip), beta, name="flow_grpo")


def grpo_guard(*, clip: Leaf = 4e-6, beta: Leaf | None = None) -> FlowObjective:
    """GRPO-Guard, arXiv 2510.22319: the clip on exp(ε·d), as Flow-Factory has it (no re-weighting by 1/dt)."""
    return FlowObjective(RatioClip(clip, clip), beta, score="guard", name="grpo_guard")


def flow_dppo(*, delta: Leaf = 1e-7, divergence: str = "kl", beta: Leaf | None = None) -> FlowObjective:
    """Flow-DPPO, arXiv 2606.11025: drop where D > δ and the ratio moves with the advantage. 1e-6 with ``cps``."""
    return FlowObjective(TrustRegion(delta, "ratio", divergence), beta, name="flow_dppo")


def flow_dppo_symmetric(*, delta: Leaf = 1e-7, divergence: str = "kl", beta: Leaf | None = None) -> FlowObjective:
    """Flow-DPPO's ablation: drop where D > δ, whichever way the step goes; what has left can never come back."""
    return FlowObjective(TrustRegion(delta, "always", divergence), beta, name="flow_dppo_symmetric")


def flow_dppo_predictive(*, delta: Leaf = 1e-7, divergence: str = "kl", beta: Leaf | None = None) -> FlowObjective:
    """Flow-DPPO's appendix E, first order: drop where D > δ and A·(log r − D) > 0."""
    return FlowObjective(TrustRegion(delta, "predictive", divergence), beta, name="flow_dppo_predictive")


def flow_dppo_predictive_full(*, delta: Leaf = 1e-7, step: Leaf = 1e-4, beta: Leaf | None = None) -> FlowObjective:
    """Flow-DPPO's appendix E, in full: drop where D after a step of size η would exceed δ. The default step is ours."""
    return FlowObjective(FullPredictive(delta, step), beta, name="flow_dppo_predictive_full")


RECIPES: dict[str, Callable[..., FlowObjective]] = {
    "policy_gradient": policy_gradient,
    "flow_grpo": flow_grpo,
    "grpo_guard": grpo_guard,
    "flow_dppo": flow_dppo,
    "flow_dppo_symmetric": flow_dppo_symmetric,
    "flow_dppo_predictive": flow_dppo_predictive,
    "flow_dppo_predictive_full": flow_dppo_predictive_full,
}
"""Every published objective by name. Defaults are the authors', for "mean" over the latent numbers of a large image."""


def build(name: str, **numbers: Any) -> FlowObjective:
    """Build a recipe by name.

    Raises: ValueError for an unknown name or numbers out of range.

    >>> build("flow_dppo", delta=0.01).mask.direction
    'ratio'
    """
    if name not in RECIPES:
        raise ValueError(f"flow objective {name!r} is unknown: expected one of {', '.join(RECIPES)}")
    return RECIPES[name](**numbers)
