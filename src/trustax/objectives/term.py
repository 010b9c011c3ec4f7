"""What every part of an objective is: a frozen pytree that knows its needs and its own mistakes.

A term's thresholds and coefficients are leaves, so that changing one never recompiles; its structure (which
divergence, which level) is static. Terms nest; ``walk`` visits a term and everything inside it.
"""

import dataclasses
import difflib
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import numpy as np
from jax.core import Tracer

Leaf = jax.Array | np.ndarray | np.floating | float | int
"""A threshold or coefficient: a number, or an array that is one."""


class Term:
    """Base of all terms. Subclasses are ``pytree_dataclass``es."""

    batch_level: ClassVar[bool] = False
    """Whether the term reads statistics of the whole batch, so that it changes with the split into micro-batches."""

    @property
    def own_needs(self) -> frozenset[str]:
        """What this term alone asks of the scorer."""
        return frozenset()

    def own_problems(self) -> list[str]:
        """What is wrong with this term's values, one sentence each; only concrete values can be judged."""
        return []


def children(term: Any) -> Iterator[Term]:
    """The terms directly inside ``term``."""
    for field in dataclasses.fields(term):
        value = getattr(term, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Term):
                yield item


def walk(term: Any) -> Iterator[Term]:
    """``term`` and every term inside it, outermost first."""
    yield term
    for child in children(term):
        yield from walk(child)


def needs(term: Any) -> frozenset[str]:
    """The union of what all terms ask of the scorer."""
    return frozenset().union(*(part.own_needs for part in walk(term)))


def problems(term: Any) -> list[str]:
    """Everything that is wrong, without repetition."""
    return list(dict.fromkeys(problem for part in walk(term) for problem in part.own_problems()))


def outside(name: str, value: Any, low: float, high: float, hint: str, *, or_infinite: bool = False) -> list[str]:
    """A sentence if a concrete ``value`` lies outside ``[low, high]`` or is NaN; nothing inside a trace."""
    if isinstance(value, Tracer):
        return []
    try:
        found = float(np.asarray(value))
    except (TypeError, ValueError):
        return [f"{name} is {value!r}, expected one number"]
    if low <= found <= high or (or_infinite and found == float("inf")):
        return []
    return [f"{name} = {found:g} is outside [{low:g}, {high:g}]: {hint}"]


def unknown(name: str, value: str, choices: tuple[str, ...]) -> list[str]:
    """A sentence if a name is not one of the choices."""
    if value in choices:
        return []
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return [f"{name} {value!r} is unknown: expected one of {', '.join(choices)}{hint}"]


def number(value: Any) -> str:
    """A leaf as text for a table: its value, or its name's placeholder inside a trace."""
    return "traced" if isinstance(value, Tracer) else f"{float(np.asarray(value)):.6g}"
