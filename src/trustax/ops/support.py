"""The support of a token, TopK(μ) ∪ {y}: how it is built, and what makes one valid.

``*B`` is any leading shape, ``K`` the stored top-K, ``S = K + 1`` the slots. Every token has the same static width; a
mask says which slots hold something. Each id stands in one valid slot only: an id that is counted twice makes the mass
exceed 1 and the tail negative.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from trustax.ops._arguments import (
    IdsLike,
    LogProbsLike,
    SlotsLike,
    TokenLike,
    as_floats,
    raise_problems,
    shape_problems,
)
from trustax.types import Support, TopK

MASS_TOLERANCE = 1e-5
"""How far the rounding of an engine's log-probs may push a sum of probabilities, or one of them, above 1."""


def top_k(log_probs: LogProbsLike, k: int) -> TopK:
    """Take the K most probable tokens, sorted; ties go to the lowest id. K is cut to V, so that no entry is made up.

    Example:
      >>> found = top_k(jnp.log(jnp.array([[0.1, 0.4, 0.1, 0.4]])), 3)
      >>> found.ids.tolist()
      [[1, 3, 0]]
      >>> top_k(jnp.zeros((1, 2)), 8).ids.shape
      (1, 2)
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    (log_probs,) = as_floats(log_probs=log_probs)
    values, ids = jax.lax.top_k(log_probs, min(k, log_probs.shape[-1]))
    return TopK(ids.astype(jnp.int32), values)


def sampled_support(
    top_ids: IdsLike,
    top_log_mu: SlotsLike,
    sampled_ids: IdsLike,
    sampled_log_mu: TokenLike,
    *,
    tail_log_mu: TokenLike | None = None,
) -> Support:
    """Join the sampled token to TopK(μ).

        S = TopK(μ) ∪ {y},   slot K holds y and is valid only if y is not among the top K

    Without y as a category of its own, the direction would read π_y μ_T/π_T in place of μ_y.

    Args:
      top_ids: ids of TopK(μ) by rank, [..., K].
      top_log_mu: their log μ. A slot with −inf (a token that cannot be sampled) or NaN (no token here) is not valid.
      sampled_ids: y, [...].
      sampled_log_mu: log μ of y; it replaces the value in y's slot, so that D, G and the ratio read the same number.
      tail_log_mu: log μ_T outside the support, passed through.

    Returns:
      ``Support`` of width K + 1; ``log_pi`` is NaN until the scorer fills it.

    Edge cases: a position where everything is NaN (padding) has no valid slot, and its ``sampled_slot`` is K. An id
    that the top-K holds twice is valid in its first slot only.

    Raises:
      ValueError: shapes that do not agree, wrong dtypes, in one message.

    References: DPPO, arXiv 2602.04879, eq. 15.

    Example:
      >>> ids, log_mu = jnp.array([[0, 1], [0, 1]]), jnp.log(jnp.array([[0.4, 0.3], [0.4, 0.3]]))
      >>> support = sampled_support(ids, log_mu, jnp.array([0, 4]), jnp.log(jnp.array([0.4, 0.04])))
      >>> support.ids.tolist()
      [[0, 1, 0], [0, 1, 4]]
      >>> support.mask.tolist(), support.sampled_slot.tolist()
      ([[True, True, False], [True, True, True]], [0, 2])
    """
    top_log_mu, sampled_log_mu, tail_log_mu = as_floats(
        top_log_mu=top_log_mu, sampled_log_mu=sampled_log_mu, tail_log_mu=tail_log_mu
    )
    top_ids, sampled_ids = jnp.asarray(top_ids), jnp.asarray(sampled_ids).astype(jnp.asarray(top_ids).dtype)
    raise_problems(
        shape_problems(top_ids.shape, "top_ids", top_log_mu=top_log_mu)
        + shape_problems(
            top_ids.shape[:-1],
            "top_ids without its last axis",
            sampled_ids=sampled_ids,
            sampled_log_mu=sampled_log_mu,
            tail_log_mu=tail_log_mu,
        )
    )
    has_mass = top_log_mu > -jnp.inf
    top_valid = has_mass & ~_repeats(top_ids, has_mass)
    is_sampled = top_valid & (top_ids == sampled_ids[..., None])
    among_top = jnp.any(is_sampled, axis=-1)
    y_log_mu = sampled_log_mu[..., None]
    last_slot = jnp.full(among_top.shape, top_ids.shape[-1], jnp.int32)
    log_mu = jnp.concatenate([jnp.where(is_sampled, y_log_mu, top_log_mu), y_log_mu], axis=-1)
    return Support(
        ids=jnp.concatenate([top_ids, sampled_ids[..., None]], axis=-1),
        log_mu=log_mu,
        log_pi=jnp.full_like(log_mu, jnp.nan),
        mask=jnp.concatenate([top_valid, (~among_top & (sampled_log_mu > -jnp.inf))[..., None]], axis=-1),
        sampled_slot=jnp.where(among_top, jnp.argmax(is_sampled, axis=-1).astype(jnp.int32), last_slot),
        tail_log_mu=tail_log_mu,
    )


def check_support(support: Support, *, tolerance: float = MASS_TOLERANCE) -> None:
    """Refuse a support that no distribution can have; on the host, for data that comes from elsewhere.

    Only valid slots are looked at.

    Args:
      support: concrete arrays.
      tolerance: how far log-probs and masses may be above 0 and 1.

    Raises:
      ValueError: repeated ids, NaN, log-probs above 0, masses above 1, a sampled slot that is not valid; each with
        the index of the first offending token, all in one message.

    Example:
      >>> ids, log_mu = jnp.array([[0, 1]]), jnp.log(jnp.array([[0.9, 0.3]]))
      >>> check_support(sampled_support(ids, log_mu, jnp.array([0]), jnp.log(jnp.array([0.9]))))
      Traceback (most recent call last):
      ValueError: log_mu: mass above 1 at (0,): 1.2
    """
    host = {f.name: _to_host(getattr(support, f.name)) for f in dataclasses.fields(support)}
    mask, ids, slot = host["mask"], host["ids"], host["sampled_slot"]
    problems = []

    def report(bad: np.ndarray, what: str, values: np.ndarray | None = None) -> None:
        if bad.any():
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            problems.append(f"{what} at {index}" + ("" if values is None else f": {values[index]:.6g}"))

    twice = (ids[..., :, None] == ids[..., None, :]) & mask[..., :, None] & mask[..., None, :]
    report(np.triu(twice, 1).any(axis=-2), "ids: an id stands in an earlier valid slot already")
    for name in ("log_mu", "log_pi"):
        values = host[name]
        if name == "log_pi" and np.isnan(values).all():
            continue  # not scored yet
        report(mask & np.isnan(values), f"{name}: NaN in a valid slot")
        report(mask & (values > tolerance), f"{name}: a log-probability above 0", values)
        mass = np.exp(np.where(mask & ~np.isnan(values), values, -np.inf)).sum(axis=-1)
        report(mass > 1 + tolerance, f"{name}: mass above 1", mass)
    in_range = (slot >= 0) & (slot < mask.shape[-1])
    chosen = np.take_along_axis(mask, np.where(in_range, slot, 0)[..., None], axis=-1)[..., 0]
    report(mask.any(axis=-1) & ~(in_range & chosen), "sampled_slot: points at no valid slot")
    raise_problems(problems)


def _repeats(ids: Int[Array, "*B K"], valid: Bool[Array, "*B K"]) -> Bool[Array, "*B K"]:
    """True where the same id stands in an earlier valid slot."""
    same = (ids[..., :, None] == ids[..., None, :]) & valid[..., None, :]
    earlier = jnp.tril(jnp.ones(same.shape[-2:], bool), -1)
    return jnp.any(same & jnp.broadcast_to(earlier, same.shape), axis=-1)


def _to_host(value: Array | None) -> np.ndarray:
    array = np.asarray(value) if value is not None else np.empty(0)
    return array.astype(np.float64) if array.dtype.kind == "f" or array.dtype.name == "bfloat16" else array
