"""From a spec to a callable: build, check, compute."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trustax.objectives import term
from trustax.objectives.aggregation import Aggregation
from trustax.objectives.checks import check_structure, check_values, is_concrete
from trustax.objectives.fates import TokenFates, token_fates
from trustax.objectives.masks import KeepAll, TrustRegion
from trustax.objectives.proximity import BinaryTV
from trustax.objectives.regularizers import Regularizer
from trustax.objectives.spec import ObjectiveSpec
from trustax.objectives.telemetry import metrics
from trustax.objectives.view import view_of
from trustax.types import Metric, TokenStats, pytree_dataclass


@pytree_dataclass
class ObjectiveOutput:
    """A loss as ``(sum, weight)``, to be added up over micro-batches and divided once, and what was seen."""

    sum: Float[Array, ""]
    weight: Float[Array, ""]
    metrics: dict[str, Metric]

    @property
    def loss(self) -> Float[Array, ""]:
        """``sum / weight``; 0, with gradient 0, for a batch without a valid token."""
        return self.sum / jnp.where(self.weight > 0, self.weight, jnp.ones_like(self.weight))


@pytree_dataclass
class Objective:
    """A checked spec that computes: ``objective(stats) -> ObjectiveOutput``.

    A pytree: pass it to a jitted function as an argument and change its numbers without recompiling.
    """

    spec: ObjectiveSpec

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.spec.name

    @property
    def needs(self) -> frozenset[str]:
        """What it asks of the scorer beyond log π, log μ, advantages and mask."""
        return term.needs(self.spec)

    @property
    def differentiable(self) -> frozenset[str]:
        """The needs that must carry a gradient."""
        parts = [part for part in self.spec.regularizers if isinstance(part, Regularizer)]
        return frozenset().union(*(part.differentiable for part in parts))

    @property
    def advantage(self) -> str:
        """The name of its advantage estimator in ``ADVANTAGES``."""
        return self.spec.advantage

    @property
    def aggregation(self) -> Aggregation:
        """How its tokens become one number."""
        return self.spec.aggregation

    def per_token(self, stats: TokenStats) -> TokenFates:
        """Decide about every token: kept, weighed, how far, which way.

        Raises: ValueError as ``__call__``.
        """
        self._check(stats)
        view = view_of(stats, self.needs)
        return token_fates(_cast(self.spec, view.dtype), view)

    def unmasked(self) -> "Objective":
        """The same objective with every token kept: what the update-aware direction looks ahead along."""
        return Objective(self.spec.replace(mask=KeepAll()))

    def divergence(self, stats: TokenStats) -> Float[Array, "*B T"]:
        """The statistic that the (first) mask compares with its threshold; binary TV where there is none.

        Unlike in ``per_token`` it is differentiable in ``stats.log_pi`` and ``stats.support.log_pi`` and the tail's
        log-masses, as far as the scorer left them so.
        """
        needs = self.needs - {"divergence_rate"}  # what this is computed for
        check_structure(stats, needs, self.name)
        view = view_of(stats, needs, detach=False)
        regions = [part for part in term.walk(self.spec.mask) if isinstance(part, TrustRegion)]
        proximity = regions[0].proximity if regions else BinaryTV()
        return jnp.where(view.valid, proximity(view), view.full(0.0))

    def __call__(self, stats: TokenStats) -> ObjectiveOutput:
        """Compute the loss and its metrics.

        Loss per token: ``−sg[A·w]·log π + Σ regularisers``, aggregated to ``(sum, weight)``. Gradient: w·A·∇log π
        per kept token; none through masks, weights, gates, μ, the anchor or the metrics.

        Args:
            stats: per-token statistics; values at masked tokens are never read.

        Raises: ValueError for wrong shapes or dtypes and unmet needs; for values that cannot be right only when all
            arrays are concrete (inside ``jit`` they are counted in ``tokens/...`` and left out of the loss).
        """
        self._check(stats)
        view = view_of(stats, self.needs)
        spec = _cast(self.spec, view.dtype)
        fates = token_fates(spec, view)
        coefficient = jax.lax.stop_gradient(view.advantages * fates.weight)
        losses = jnp.where(fates.keep, -coefficient * view.log_pi_grad, view.full(0.0))
        for regularizer in spec.regularizers:
            losses = losses + regularizer(view, fates.keep)
        total, weight = spec.aggregation(losses, view.valid, fates.keep)
        seen = jax.lax.stop_gradient(metrics(spec, stats, view, fates))
        return ObjectiveOutput(total, weight, seen)

    def _check(self, stats: TokenStats) -> None:
        check_structure(stats, self.needs, self.name)
        if is_concrete(stats):
            check_values(stats, self.needs)


def _cast(spec: ObjectiveSpec, dtype: jnp.dtype) -> ObjectiveSpec:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), spec)


def _number(leaf: Any) -> Any:
    """A leaf as a float64 array of the host, so that every build has the same types; ``jit`` casts it as it must."""
    return leaf if isinstance(leaf, jax.Array) else np.asarray(leaf, np.float64)


def build(spec: ObjectiveSpec) -> Objective:
    """Check a spec and make it callable.

    Raises: ValueError listing everything that is wrong: thresholds out of range, unknown names, refused estimators.

    >>> from trustax.objectives import RECIPES
    >>> build(RECIPES["dppo_binary_tv"](delta=0.2)).needs
    frozenset()
    """
    found = term.problems(spec)
    if found:
        raise ValueError(f"objective {spec.name!r} cannot be built:\n  - " + "\n  - ".join(found))
    return Objective(jax.tree.map(_number, spec))
