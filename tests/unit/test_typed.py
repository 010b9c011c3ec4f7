"""Values against annotations: what fits, what is refused, and that text never becomes anything but data."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustax import typed

ANNOTATIONS = [bool, int, float, str, int | None, float | None, str | None, Literal["a", "b"], tuple[int, ...],
               tuple[int, float], list[str], Mapping[str, Any], Any]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("1e-5", float, 1e-5),
        (".1", float, 0.1),
        ("3", float, 3.0),
        ("inf", float, math.inf),
        ("-7", int, -7),
        ("true", bool, True),
        ("False", bool, False),
        ("none", int | None, None),
        ("None", str | None, None),
        ("4", int | None, 4),
        ("4", str | None, "4"),
        ("1e-5", str, "1e-5"),
        ("b", Literal["a", "b"], "b"),
        ("2", Literal[1, 2], 2),
        ("[1, 2]", tuple[int, ...], (1, 2)),
        ("[1, 2]", tuple[int, float], (1, 2.0)),
        ('["x"]', list[str], ["x"]),
        ('{"a": 1}', Mapping[str, Any], {"a": 1}),
        ("1e-5", Any, 1e-5),
        ("3", Any, 3),
        ("inf", Any, math.inf),
        ("kl", Any, "kl"),
        ('"3"', Any, "3"),
        ("[1, 2]", Any, (1, 2)),
    ],
)
def test_text_is_read_as_its_annotation_says(text, annotation, value):
    parsed = typed.parse(text, annotation)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation"),
    [
        ("abc", float),
        ("nan", float),
        ("", float),
        ("1.5", int),
        ("1e3", int),
        ("true", int),
        ("1", bool),
        ("yes", bool),
        ("c", Literal["a", "b"]),
        ("1, 2", tuple[int, ...]),
        ("[1, 2, 3]", tuple[int, float]),
        ('["a"]', tuple[int, ...]),
        ("[1", Any),
        ("nan", Mapping[str, Any]),
        ("abc", int | None),
    ],
)
def test_text_that_does_not_fit_is_refused_with_what_was_expected(text, annotation):
    with pytest.raises(ValueError, match=r", got ") as caught:
        typed.parse(text, annotation)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("1e-5", float),
        (True, int),
        (True, Literal[1, 2]),
        (True, float),
        (1.0, int),
        (float("nan"), float),
        (1, str),
        (None, int),
        ({1: 2}, Mapping[str, Any]),
        ({"f": print}, Mapping[str, Any]),
        ("ab", tuple[str, ...]),
    ],
)
def test_values_of_another_type_are_refused(value, annotation):
    with pytest.raises(ValueError, match="got"):
        typed.conform(value, annotation)


def test_a_number_in_quotes_is_called_text():
    with pytest.raises(ValueError, match=r"a number, got the text '1e-5'"):
        typed.conform("1e-5", float)


@given(text=st.text(), annotation=st.sampled_from(ANNOTATIONS))
def test_any_text_gives_a_value_of_the_type_or_a_value_error(text, annotation):
    try:
        value = typed.parse(text, annotation)
    except ValueError:
        return
    assert typed.conform(value, annotation) == value
    json.dumps(typed.jsonable(value), allow_nan=False)  # and it can be recorded


@given(value=st.floats(allow_nan=False))
def test_every_float_survives_text_and_json(value):
    assert typed.parse(repr(value), float) == value
    assert typed.parse(repr(value), Any) == value
    assert typed.conform(json.loads(json.dumps(typed.jsonable(value), allow_nan=False)), float) == value


@dataclasses.dataclass(frozen=True)
class Section:
    count: int = 1
    rate: float = 0.5

    def __post_init__(self) -> None:
        typed.refuse(self, typed.type_problems(self))


def test_a_dataclass_reports_all_its_ill_typed_fields():
    with pytest.raises(ValueError, match=r"^Section: count must be a whole number, got 1.5; rate must be a number"):
        Section(count=1.5, rate="0.5")  # type: ignore[arg-type]


def test_whole_numbers_are_floats_where_floats_are_meant():
    assert typed.jsonable(Section(rate=1)) == {"count": 1, "rate": 1.0}
    assert isinstance(typed.jsonable(Section(rate=1))["rate"], float)
