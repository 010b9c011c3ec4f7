"""Intervals by resampling what was drawn independently: prompts, not their completions; blocks, not transitions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from trustax.ope.terms import Terms, estimate

MOST_COUNTS = 2**22
"""Resampled counts held at once: 16 or 32 MiB."""


class Interval(NamedTuple):
    """``low`` to ``high`` at the level asked for, and the estimate's standard error over the resamples."""

    low: float
    high: float
    standard_error: float


def bootstrap(
    terms: Terms, groups: np.ndarray | Array, key: Key[Array, ""], *, level: float = 0.9, resamples: int = 1000
) -> Interval:
    """Give a percentile bootstrap interval for an estimate, resampling whole groups.

    Draw as many groups as there are, with replacement; estimate; repeat; take the quantiles at ``(1 ∓ level)/2``.
    Completions of one prompt share the prompt and so its difficulty: resampling them singly gives intervals that are
    too short. For one long chain pass ``blocks(N, length)`` with blocks longer than its memory.

    Args:
        terms: what an estimator returned.
        groups: the group of each row, any integers.
        key: of the resampling; the interval is a function of it.
        level: coverage in (0, 1).
        resamples: how many; 1000 fixes a 90 % interval's ends to about a twentieth of its width.

    Edge cases: weights whose square has no mean give no such interval; the tail index and the ESS say so.

    Raises: ValueError for fewer than two groups, a level outside (0, 1), or groups that are not one a row.

    References: Efron, "Bootstrap Methods: Another Look at the Jackknife" (1979).

    >>> same = Terms(jnp.full((4, 1), 2.0), jnp.ones((4, 1)))
    >>> bootstrap(same, np.arange(4), jax.random.key(0))
    Interval(low=2.0, high=2.0, standard_error=0.0)
    """
    groups = np.asarray(groups)
    rows = terms.numerator.shape[0]
    if groups.shape != (rows,):
        raise ValueError(f"groups has shape {groups.shape}, expected ({rows},): one group a row")
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"level must be in (0, 1) and resamples at least 1; got {level} and {resamples}")
    names, inverse = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise ValueError("all rows belong to one group: an interval needs at least two that were drawn independently")
    summed = Terms(*(jax.ops.segment_sum(part, jnp.asarray(inverse), len(names)) for part in terms))
    at_once = max(1, min(resamples, MOST_COUNTS // len(names)))
    keys = jax.random.split(key, -(-resamples // at_once))
    drawn = np.concatenate([np.asarray(_resample(summed, one, at_once)) for one in keys])[:resamples]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), float(np.std(drawn)))


def blocks(count: int, length: int) -> np.ndarray:
    """Number consecutive blocks of a chain of ``count`` transitions.

    Raises: ValueError unless 1 ≤ length ≤ count.

    >>> blocks(5, 2).tolist()
    [0, 0, 1, 1, 2]
    """
    if not 1 <= length <= count:
        raise ValueError(f"length is {length}, expected 1 to the {count} transitions")
    return np.arange(count) // length


@jax.jit(static_argnums=2)
def _resample(summed: Terms, key: Array, resamples: int) -> Array:
    count = summed.numerator.shape[0]
    drawn = jax.random.randint(key, (resamples, count), 0, count)
    counts = jax.vmap(lambda row: jnp.bincount(row, length=count))(drawn)
    return estimate(summed, counts.astype(summed.numerator.dtype))
