"""Refusals: statistics that an objective cannot read, or that cannot be what their names say.

Shapes, dtypes and missing fields are known while tracing; values only when the arrays are concrete. Inside ``jit``
the same faults are counted (``telemetry.counters``).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from trustax.types import TokenStats

TOLERANCE = 1e-5
"""How far rounding may carry a log-prob above 0 or a mass above 1."""


def mass_tolerance(*dtypes: Any) -> float:
    """How far rounding may carry a sum of probabilities above 1: half-precision log-probs are known to their ε only."""
    return max(TOLERANCE, *(float(jnp.finfo(dtype).eps) for dtype in dtypes))


_SAME_SHAPE = (
    "log_mu", "advantages", "token_mask", "log_anchor", "log_ref", "entropy", "sum_sq_pi", "divergence_rate",
    "policy_staleness",
)  # fmt: skip


def unmet(stats: TokenStats, needs: frozenset[str]) -> list[str]:
    """The needs that ``stats`` does not meet."""
    from_support = stats.support is not None and stats.support.tail_log_sum_sq_pi is not None
    met = {
        "support": stats.support is not None,
        "sum_sq_pi": stats.sum_sq_pi is not None or from_support,
        "entropy": stats.entropy is not None,
        "log_anchor": stats.log_anchor is not None,
        "log_ref": stats.log_ref is not None,
        "divergence_rate": stats.divergence_rate is not None,
        "policy_staleness": stats.policy_staleness is not None,
        "vocab_size": stats.vocab_size is not None,
    }
    return sorted(need for need in needs if not met[need])


def _shape_problems(stats: TokenStats) -> list[str]:
    shape = stats.log_pi.shape
    found = []
    if len(shape) < 1:
        found.append("log_pi is a scalar: expected [..., T]")
    for name in _SAME_SHAPE:
        value = getattr(stats, name)
        if value is not None and value.shape != shape:
            mend = " (broadcast them yourself: advantages[:, None])" if name == "advantages" else ""
            found.append(f"{name} has shape {value.shape}, expected that of log_pi, {shape}{mend}")
    if stats.token_mask.dtype != jnp.bool_:
        found.append(f"token_mask is {stats.token_mask.dtype}, expected bool: is another array in its place?")
    if not jnp.issubdtype(stats.log_pi.dtype, jnp.floating):
        found.append(f"log_pi is {stats.log_pi.dtype}, expected a floating dtype")
    support = stats.support
    if support is not None:
        for name in ("ids", "log_mu", "log_pi", "mask"):
            value = getattr(support, name)
            if value.shape[:-1] != shape or value.shape != support.mask.shape:
                found.append(f"support.{name} has shape {value.shape}, expected {shape} + [K+1]")
        for name in ("sampled_slot", "tail_log_mu", "tail_log_pi", "tail_log_sum_sq_pi"):
            value = getattr(support, name)
            if value is not None and value.shape != shape:
                found.append(f"support.{name} has shape {value.shape}, expected that of log_pi, {shape}")
        if support.mask.dtype != jnp.bool_:
            found.append(f"support.mask is {support.mask.dtype}, expected bool")
        if not jnp.issubdtype(support.sampled_slot.dtype, jnp.integer):
            found.append(f"support.sampled_slot is {support.sampled_slot.dtype}, expected an integer dtype")
    return found


def check_structure(stats: TokenStats, needs: frozenset[str], name: str) -> None:
    """Refuse statistics of the wrong shape or dtype, or that lack what the objective needs; all problems at once.

    Raises: ValueError.
    """
    missing = unmet(stats, needs)
    found = _shape_problems(stats)
    if missing:
        found.insert(0, f"the statistics lack {', '.join(missing)}: score(..., needs=objective.needs) supplies them")
    if found:
        raise ValueError(f"objective {name!r} cannot read these statistics:\n  - " + "\n  - ".join(found))


def is_concrete(tree: Any) -> bool:
    """Whether every leaf has a value now (no tracing)."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def _first(name: str, bad: np.ndarray, values: np.ndarray, rule: str) -> list[str]:
    if not bad.any():
        return []
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    return [f"{name}{list(index)} = {values[index]:g}: {rule} ({int(bad.sum())} such)"]


def value_problems(stats: TokenStats, needs: frozenset[str]) -> list[str]:
    """What is wrong with concrete values at valid positions, each with its first index."""
    valid = np.asarray(stats.token_mask)
    fields = {"log_pi": stats.log_pi, "log_mu": stats.log_mu, "advantages": stats.advantages}
    for name in ("log_anchor", "log_ref", "entropy", "divergence_rate"):
        value = getattr(stats, name)
        if name in needs and value is not None:
            fields[name] = value
    found = []
    for name, value in fields.items():
        values = np.asarray(value, np.float64)
        found += _first(name, valid & ~np.isfinite(values), values, "not finite at a valid token")
        if name.startswith("log_"):
            above = valid & (values > TOLERANCE) & np.isfinite(values)
            found += _first(name, above, values, "a log-probability above 0: is it a ratio or a probability?")
    if stats.support is not None and "support" in needs:
        found += _support_problems(stats, valid)
    return found


def _support_problems(stats: TokenStats, valid: np.ndarray) -> list[str]:
    support = stats.support
    assert support is not None
    read = np.asarray(support.mask) & valid[..., None]
    found = []
    for name, value in (("support.log_mu", support.log_mu), ("support.log_pi", support.log_pi)):
        values = np.asarray(value, np.float64)
        found += _first(name, read & np.isnan(values), values, "NaN in a valid slot")
        found += _first(name, read & (values > TOLERANCE), values, "a log-probability above 0")
        mass = np.exp(np.where(read, np.nan_to_num(values, nan=-np.inf, posinf=0.0), -np.inf)).sum(-1)
        found += _first(
            f"mass of {name}",
            mass > 1.0 + mass_tolerance(value.dtype),
            mass,
            "the support holds more than probability 1",
        )
    ids = np.asarray(support.ids)
    same = (ids[..., :, None] == ids[..., None, :]) & read[..., :, None] & read[..., None, :]
    twice = np.triu(same, k=1).any(-2)
    found += _first("support.ids", twice, ids, "the id stands twice among the valid slots")
    slot = np.asarray(support.sampled_slot)
    inside = (slot >= 0) & (slot < ids.shape[-1])
    found += _first("support.sampled_slot", valid & ~inside, slot, f"outside the {ids.shape[-1]} slots")
    at_slot = np.take_along_axis(read, np.clip(slot, 0, ids.shape[-1] - 1)[..., None], axis=-1)[..., 0]
    found += _first("support.sampled_slot", valid & inside & ~at_slot, slot, "it points at an invalid slot")
    return found


def check_values(stats: TokenStats, needs: frozenset[str] = frozenset()) -> None:
    """Refuse values that cannot be right: non-finite, log-probs above 0, too much mass, an id twice.

    Only valid tokens and valid slots are looked at. For concrete arrays: the objective calls it when it is called
    eagerly; a reader of files calls it once.

    Raises: ValueError naming every fault with its first index.
    """
    found = value_problems(stats, needs)
    if found:
        raise ValueError("the statistics hold values that cannot be right:\n  - " + "\n  - ".join(found))
