"""Which steps of which samples keep their gradient. A mask is a pytree of its thresholds; it never sees a gradient.

``B`` samples, ``W`` noisy steps. As for tokens: a step is dropped if it is far *and* its update would move it further.
Thresholds are in the units of the statistics' reduction over latent numbers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from trustax.flow.gaussian import divergence_after_step, tv_of_kl
from trustax.flow.paths import StepStats
from trustax.ops.directions import is_outward
from trustax.types import pytree_dataclass, static_field

DIVERGENCES = ("kl", "tv")
DIRECTIONS = ("ratio", "predictive", "always")

Leaf = jax.Array | np.ndarray | np.floating | float | int


class Reading(NamedTuple):
    """A mask's decision and what it was made from: ``keep = ~(far & outward)``."""

    keep: Bool[Array, "B W"]
    far: Bool[Array, "B W"]
    outward: Bool[Array, "B W"]


class StepMask:
    """Base: ``__call__(stats, score) -> Reading``; ``score`` is the logarithm of the ratio the objective uses."""

    def problems(self) -> list[str]:
        """What is wrong with the numbers of this mask."""
        return []

    def __call__(self, stats: StepStats, score: Float[Array, "B W"]) -> Reading:
        raise NotImplementedError


@pytree_dataclass
class KeepAll(StepMask):
    """No mask."""

    def __call__(self, stats: StepStats, score: Float[Array, "B W"]) -> Reading:
        nothing = jnp.zeros(score.shape, bool)
        return Reading(~nothing, nothing, is_outward(stats.advantages, score))


@pytree_dataclass
class RatioClip(StepMask):
    """PPO's clip: drop where ``A > 0, r > 1 + high`` or ``A < 0, r < 1 − low``.

    Compared in logarithms: at a threshold of 4e-6 float32's own grain around 1 is 3 % of it.
    """

    low: Leaf
    high: Leaf

    def problems(self) -> list[str]:
        return outside("low", self.low, 0.0, 1.0) + outside("high", self.high, 0.0, np.inf)

    def __call__(self, stats: StepStats, score: Float[Array, "B W"]) -> Reading:
        low, high = (jnp.asarray(value, score.dtype) for value in (self.low, self.high))
        far = (score > jnp.log1p(high)) | (score < jnp.log1p(-low))
        outward = is_outward(stats.advantages, score)
        return Reading(~(far & outward), far, outward)


@pytree_dataclass
class TrustRegion(StepMask):
    """Flow-DPPO's family: far is ``D > delta``, or ``TV > delta``; the direction is one of three.

        ratio        A·log r > 0          Flow-DPPO; the sampled state became more likely for A > 0, less for A < 0
        predictive   A·(log r − D) > 0    the sign of dD along the step's own gradient: g·d = S²·(log r − D)
        always       every step           symmetric, no direction

    The first two differ exactly where 0 < log r < D: there x' lies on the new mean's side, but nearer the old mean, so
    that a step towards x' shrinks D and a step away from it grows D.
    """

    delta: Leaf
    direction: str = static_field(default="ratio")
    divergence: str = static_field(default="kl")

    def problems(self) -> list[str]:
        limit = 1.0 if self.divergence == "tv" else np.inf
        found = outside("delta", self.delta, 0.0, limit)
        found += _unknown("direction", self.direction, DIRECTIONS)
        return found + _unknown("divergence", self.divergence, DIVERGENCES)

    def __call__(self, stats: StepStats, score: Float[Array, "B W"]) -> Reading:
        distance = tv_of_kl(stats.divergence) if self.divergence == "tv" else stats.divergence
        far = distance > jnp.asarray(self.delta, distance.dtype)
        log_ratios = jax.lax.stop_gradient(stats.log_ratio)
        outward = {
            "ratio": lambda: is_outward(stats.advantages, log_ratios),
            "predictive": lambda: is_outward(stats.advantages, log_ratios - stats.divergence),
            "always": lambda: jnp.ones(far.shape, bool),
        }[self.direction]()
        return Reading(~(far & outward), far, outward)


@pytree_dataclass
class FullPredictive(StepMask):
    """Drop where the divergence *after* a step of size η would be beyond the threshold: ``D_new > delta``.

    Appendix E of Flow-DPPO, which its authors did not evaluate. It merges direction and proximity. Unlike the others
    it also drops a step that is still inside, if the step alone would leave; and it keeps one that is outside and comes
    back far enough.
    """

    delta: Leaf
    step: Leaf

    def problems(self) -> list[str]:
        return outside("delta", self.delta, 0.0, np.inf) + outside("step", self.step, 0.0, np.inf)

    def __call__(self, stats: StepStats, score: Float[Array, "B W"]) -> Reading:
        after = divergence_after_step(
            stats.divergence,
            jax.lax.stop_gradient(stats.log_ratio),
            stats.residual,
            stats.advantages,
            stats.std,
            step=jnp.asarray(self.step, stats.divergence.dtype),
            size=stats.size,
            reduction=stats.reduction,
        )
        far = after > jnp.asarray(self.delta, after.dtype)
        return Reading(~far, far, after > stats.divergence)


def outside(name: str, value: Leaf, low: float, high: float) -> list[str]:
    """A sentence if a concrete number lies outside [low, high] or is NaN; nothing inside a trace."""
    if isinstance(value, Tracer):
        return []
    found = np.asarray(value, np.float64)
    if np.all((found >= low) & (found <= high)):  # NaN is neither
        return []
    reach = f"[{low:g}, {high:g}]" if np.isfinite(high) else f"at least {low:g}"
    return [f"{name} = {found.tolist()}, expected {reach}, in the units of the reduction; ∞ switches a mask off"]


def _unknown(name: str, value: str, choices: tuple[str, ...]) -> list[str]:
    return [] if value in choices else [f"{name} is {value!r}, expected one of {', '.join(choices)}"]
