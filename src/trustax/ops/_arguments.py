"""What every function of ops does with its arguments before it computes: one float dtype, and shapes that agree."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array

LOG_PROB_TOLERANCE = 1e-5
"""How far rounding may carry a log-probability above 0."""

TokenLike: TypeAlias = Any
"""[...]: one number a token. The ``*Like`` names say what an argument must be, but no type checker looks at it: the
functions take JAX and numpy arrays and numbers, and report everything that does not fit in one error themselves."""
SlotsLike: TypeAlias = Any
"""[..., S]: one number a slot of the support."""
MaskLike: TypeAlias = Any
"""[..., S] or [...], boolean."""
IdsLike: TypeAlias = Any
"""[...] or [..., S], integers."""
LogProbsLike: TypeAlias = Any
"""[..., V]: the whole vocabulary."""


def as_floats(**named: ArrayLike | None) -> tuple[Any, ...]:
    """Bring named arrays to one dtype, in the order given: float64 if any of them is, else float32; None stays None.

    bfloat16 and float16 are widened because a sum of probabilities needs more than their 8 or 11 bits.
    """
    arrays = {name: None if value is None else jnp.asarray(value) for name, value in named.items()}
    present = {name: array for name, array in arrays.items() if array is not None}
    wrong = [f"{n} is {a.dtype}, expected a floating dtype" for n, a in present.items() if not _is_float(a)]
    raise_problems(wrong)
    wide = jnp.float64 if any(array.dtype == jnp.float64 for array in present.values()) else jnp.float32
    return tuple(None if array is None else array.astype(wide) for array in arrays.values())


def shape_problems(shape: tuple[int, ...], like: str, **named: ArrayLike | None) -> list[str]:
    """One line for each named array whose shape is not ``shape``; ``like`` says whose shape that is."""
    shapes = {name: jnp.shape(value) for name, value in named.items() if value is not None}
    return [f"{n} has shape {got}, expected {shape} as {like}" for n, got in shapes.items() if got != shape]


def support_problems(
    log_pi_support: Array, log_mu_support: Array, support_mask: Array, per_token: Mapping[str, ArrayLike | None]
) -> list[str]:
    """What is wrong with the static facts of a support ``[..., S]`` and of the arrays ``[...]`` that go with it."""
    shape = log_pi_support.shape
    if not shape:
        return ["log_pi_support is a scalar, expected shape [..., S]"]
    problems = shape_problems(shape, "log_pi_support", log_mu_support=log_mu_support, support_mask=support_mask)
    if support_mask.dtype != jnp.bool_:
        problems.append(f"support_mask is {support_mask.dtype}, expected bool")
    return problems + shape_problems(shape[:-1], "log_pi_support without its last axis", **per_token)


def above_zero(mask: Array | None = None, **log_probs: Array | None) -> list[str]:
    """One line for each array with a log-prob above 0 (a probability or a ratio in its place?), with its first index.

    Only arrays that have values now are judged, on valid slots: inside ``jit`` an objective counts such tokens.
    """
    problems = []
    for name, values in log_probs.items():
        if values is None or isinstance(values, Tracer) or isinstance(mask, Tracer):
            continue
        bad = np.asarray(values) > LOG_PROB_TOLERANCE
        if mask is not None and mask.shape == bad.shape:
            bad &= np.asarray(mask)
        if bad.any():
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            found = float(np.asarray(values)[index])
            problems.append(f"{name} is {found:.6g} at {index}, expected a log-probability, at most 0: pass logarithms")
    return problems


def name_problems(kind: str, name: str, valid: Mapping[str, Any] | tuple[str, ...]) -> list[str]:
    """One line if ``name`` is unknown, listing the valid ones."""
    return [] if name in valid else [f"{kind} is {name!r}, expected one of {', '.join(map(repr, valid))}"]


def raise_problems(problems: list[str]) -> None:
    """Raise one ``ValueError`` that names every problem found."""
    if problems:
        raise ValueError("; ".join(problems))


def _is_float(array: Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)
