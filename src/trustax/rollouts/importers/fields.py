"""Plain Python values as arrays: what is not a number is refused, what is missing becomes NaN, nothing is filled in."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NAMES = {"advantages": ("advantages", "advantage"), "token_mask": ("token_mask", "mask")}
"""Fields that have two spellings."""


class RowProblems(ValueError):
    """Why a row cannot be read, one sentence each."""

    def __init__(self, problems: Sequence[str]):
        super().__init__("; ".join(problems))
        self.problems = list(problems)


def field(record: Mapping[str, Any], name: str) -> Any:
    """The value of a field by any of its spellings; None where it is null or not there."""
    found = [key for key in NAMES.get(name, (name,)) if record.get(key) is not None]
    if len(found) > 1:
        raise RowProblems([f"{' and '.join(found)} are both given: keep one"])
    return record[found[0]] if found else None


def required(record: Mapping[str, Any], name: str) -> Any:
    """As ``field``, but it must be there."""
    value = field(record, name)
    if value is None:
        raise RowProblems([f"no {' or '.join(NAMES.get(name, (name,)))}"])
    return value


def numbers(values: Any, name: str, length: int | None = None) -> np.ndarray:
    """A list of numbers as float64, null as NaN; ``length`` is that of the token ids."""
    if not isinstance(values, list):
        raise RowProblems([f"{name} must be a list, one entry a token, got {_shown(values)}"])
    for index, value in enumerate(values):
        if value is not None and type(value) not in (int, float):
            raise RowProblems([f"token {index}: {name} must be a number, got {_shown(value)}"])
    if length is not None:
        same_length(len(values), length, name)
    return np.array([np.nan if value is None else value for value in values], np.float64)


def whole_numbers(values: Any, name: str) -> np.ndarray:
    """A list of token ids as int64."""
    if not isinstance(values, list):
        raise RowProblems([f"{name} must be a list of token ids, got {_shown(values)}"])
    for index, value in enumerate(values):
        whole_number(value, f"token {index}: {name}")
    return np.array(values, np.int64)


def whole_number(value: Any, name: str) -> int:
    """A token id; text such as a JSON key is read too."""
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        value = int(value)
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise RowProblems([f"{name} must be a token id, got {_shown(value)}"])
    return value


def same_length(found: int, expected: int, name: str) -> None:
    """Refuse a field that does not have one entry a token, naming the first token that differs."""
    if found != expected:
        raise RowProblems(
            [f"{name} has {found} entries for {expected} token ids: they part at token {min(found, expected)}"]
        )


def booleans(values: Any, name: str, length: int) -> np.ndarray:
    """A mask of true, false, 1 and 0; no mask at all keeps every token."""
    if values is None:
        return np.ones(length, bool)
    if isinstance(values, list):
        found = numbers([int(value) if isinstance(value, bool) else value for value in values], name)
    else:
        found = numbers(values, name)
    same_length(len(found), length, name)
    bad = ~np.isin(found, (0.0, 1.0))
    if bad.any():
        index = int(np.argmax(bad))
        raise RowProblems([f"token {index}: {name} must be true, false, 1 or 0, got {_shown(values[index])}"])
    return found == 1.0


def one_or_each(value: Any, name: str, length: int) -> np.ndarray:
    """One number for the whole row, or one a token."""
    if isinstance(value, list):
        return numbers(value, name, length)
    if type(value) not in (int, float):
        raise RowProblems([f"{name} must be a number or a list of numbers, got {_shown(value)}"])
    return np.full(length, value, np.float64)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
