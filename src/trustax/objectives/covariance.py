"""Selection of the tokens that drive entropy down: those whose log-prob and advantage covary most.

The published code draws a random subset of a covariance band; an objective holds no randomness, so here it is the
largest ones (ours).
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from trustax.objectives.masks import Mask, MaskReading
from trustax.objectives.term import Leaf, number, outside
from trustax.objectives.view import TokenView
from trustax.ops.masked import masked_mean, select
from trustax.types import pytree_dataclass

INFINITY = float("inf")


def covariance(view: TokenView) -> Float[Array, "*B T"]:
    """``(log π − mean)(A − mean)``, the means over the batch's valid tokens."""
    log_pi = view.log_pi - view.full(masked_mean(view.log_pi, view.valid))
    return log_pi * (view.advantages - view.full(masked_mean(view.advantages, view.valid)))


def top_covariance(view: TokenView, share: Leaf, among: Bool[Array, "*B T"]) -> Bool[Array, "*B T"]:
    """The tokens ``among`` with the largest positive covariance: ``max(⌊share·N⌋, 1)`` of them, N all valid tokens."""
    value = covariance(view)
    share = jnp.asarray(share, view.dtype)
    count = jnp.maximum(jnp.floor(share * jnp.sum(view.valid).astype(view.dtype)), 1.0).astype(jnp.int32)
    if value.size == 0:
        return among
    ordered = jnp.sort(select(value, among, -jnp.inf).reshape(-1))
    bound = ordered[ordered.size - count]
    return among & (value >= bound) & (value > 0.0) & (share > 0.0)


@pytree_dataclass
class CovarianceBand(Mask):
    """Drop the tokens with the largest covariance inside (low, high). Clip-Cov, arXiv 2505.22617."""

    batch_level: ClassVar[bool] = True

    share: Leaf = 2e-4
    low: Leaf = 1.0
    high: Leaf = 5.0

    def own_problems(self) -> list[str]:
        found = outside("share", self.share, 0.0, 1.0, "it is a share of the batch's tokens")
        found += outside("cov_low", self.low, -INFINITY, INFINITY, "it is a covariance")
        if found or isinstance(self.low, Tracer) or isinstance(self.high, Tracer):
            return found
        return outside("cov_high", self.high, float(np.asarray(self.low)), INFINITY, "the band is (cov_low, cov_high)")

    @property
    def text(self) -> str:
        band = f"({number(self.low)}, {number(self.high)})"
        return f"covariance of log π and A in {band}, the largest {number(self.share)} of the tokens"

    def __call__(self, view: TokenView) -> MaskReading:
        value = covariance(view)
        inside = view.valid & (value > jnp.asarray(self.low, view.dtype)) & (value < jnp.asarray(self.high, view.dtype))
        dropped = top_covariance(view, self.share, inside)
        return MaskReading(~dropped, dropped, view.valid, jnp.abs(value), view.full(1.0))
