"""What every estimator here returns: sums a row, so that estimating, bootstrapping and merging are one line each.

``B`` rows that are drawn together or apart (episodes, completions, transitions), ``S`` ratios that an estimate adds up.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Terms(NamedTuple):
    """An estimate in parts: ``Σ_s (Σ_b numerator_bs / Σ_b denominator_bs)``.

    A plain mean has one column and denominators of 1; a self-normalised one has the weights there; one that is
    normalised step by step has a column a step.
    """

    numerator: Float[Array, "B S"]
    denominator: Float[Array, "B S"]


def estimate(terms: Terms, counts: Float[Array, "*R B"] | None = None) -> Float[Array, "*R"]:
    """Add up the parts of an estimator.

    ``Σ_s N_s / D_s`` with ``N_s = Σ_b c_b n_bs``, ``D_s = Σ_b c_b d_bs``; a column whose denominator is 0 adds 0.

    Args:
        terms: what an estimator returned.
        counts: how often each row is counted, one a row; a bootstrap gives many such rows. Once each if left out.

    Returns: a scalar, or one number a row of ``counts``.

    >>> terms = Terms(jnp.array([[2.0], [6.0]]), jnp.array([[1.0], [3.0]]))
    >>> float(estimate(terms)), float(estimate(terms, jnp.array([2.0, 0.0])))
    (2.0, 2.0)
    """
    if counts is None:
        counts = jnp.ones(terms.numerator.shape[0], terms.numerator.dtype)
    numerator, denominator = counts @ terms.numerator, counts @ terms.denominator
    present = denominator != 0
    return jnp.sum(jnp.where(present, numerator / jnp.where(present, denominator, 1.0), 0.0), axis=-1)


def effective_sample_size(weights: Float[Array, " B"]) -> Float[Array, ""]:
    """Say how many equally weighted rows a weighted mean is worth.

    ``(Σ w)² / Σ w²``, between 1 and B; 0 if all weights are 0. It is itself estimated from the weights that were
    seen: of heavy-tailed ones it says too much.

    References: Kish, "Survey Sampling" (1965), §11.7.

    >>> float(effective_sample_size(jnp.array([1.0, 1.0, 0.0]))), float(effective_sample_size(jnp.array([9.0, 0.0])))
    (2.0, 1.0)
    """
    largest = jnp.max(weights)
    scaled = weights / jnp.where(largest > 0, largest, 1.0)  # e^2000 has no square
    total = jnp.sum(jnp.square(scaled))
    return jnp.square(jnp.sum(scaled)) / jnp.where(total > 0, total, 1.0)
