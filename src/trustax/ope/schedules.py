"""How far to truncate: τ as a function of how much data there is and of how heavy the weights' tail is."""

import math

import numpy as np
from jaxtyping import Float


def tail_index(weights: Float[np.ndarray, " N"], *, top: int | None = None) -> float:
    """Estimate d where ``P(ω ≥ u) ~ u^{−(1+d)}`` under the behaviour policy.

    Hill's estimator over the ``top`` largest weights (⌈√N⌉ by default), minus 1. Square-integrable weights have d > 1;
    d ≤ 0 says that no mean exists, and so that the tail was misread. inf if the largest weights are all equal.

    Args:
        weights: state ratios at or above 0, drawn from the behaviour policy.
        top: how many of the largest are read, at least 1 and below N.

    Raises: ValueError for a ``top`` outside its range or largest weights that are not above 0.

    References: Hill, "A Simple General Approach to Inference About the Tail of a Distribution" (1975).

    >>> quantiles = (np.arange(1, 10_000) / 10_000) ** (-1 / 1.5)  # P(ω ≥ u) = u^{−1.5}
    >>> round(tail_index(quantiles, top=1000), 1)
    0.5
    """
    top = math.ceil(math.sqrt(len(weights))) if top is None else top
    if not 1 <= top < len(weights):
        raise ValueError(f"top is {top}, expected at least 1 and below the {len(weights)} weights")
    largest = np.sort(np.asarray(weights, np.float64))[-top - 1 :]
    if not largest[0] > 0:
        raise ValueError(f"the {top + 1} largest weights must be above 0 to have a tail; got {largest[0]:.6g}")
    spread = float(np.mean(np.log(largest[1:] / largest[0])))
    return 1.0 / spread - 1.0 if spread > 0 else math.inf


def polynomial_tau(count: int, tail: float, *, scale: float = 1.0) -> float:
    """Choose τ for a value function whose error does not vanish.

    ``scale · N^{1/(1+d)}`` for d ≤ 1, where bias ``τ^{−d}`` and standard error ``√(τ^{1−d}/N)`` balance at
    ``N^{−d/(1+d)}``; ``scale · N^{1/(2d)}`` for d > 1, the smallest τ whose bias stays below ``1/√N``. Both are √N at
    d = 1. With a good value function a much smaller τ is better: look at the sweep.

    Args:
        count: transitions, or episodes.
        tail: d, from theory or ``tail_index``; above 0.
        scale: a factor of your own.

    Returns: τ, never below 1.

    Raises: ValueError for ``count`` < 1, ``tail`` ≤ 0 or ``scale`` ≤ 0.

    References: the rates are derived from arXiv 2402.08201's abstract and the tail above; its own schedule may differ.

    >>> round(polynomial_tau(10_000, 1.0)), round(polynomial_tau(10_000, 3.0), 2)
    (100, 4.64)
    """
    if count < 1 or not tail > 0 or not scale > 0:
        raise ValueError(f"count must be at least 1, tail and scale above 0; got {count}, {tail} and {scale}")
    power = 1.0 / (1.0 + tail) if tail <= 1 else 1.0 / (2.0 * tail)
    return max(1.0, scale * count**power)


def quantile_tau(weights: Float[np.ndarray, " N"], share: float) -> float:
    """Choose τ so that ``share`` of the weights lie beyond it.

    Raises: ValueError for a share outside [0, 1).

    >>> quantile_tau(np.arange(1.0, 12.0), 0.1)
    10.0
    """
    if not 0 <= share < 1:
        raise ValueError(f"share is {share}, expected at least 0 and below 1")
    return float(np.quantile(np.asarray(weights, np.float64), 1.0 - share))
