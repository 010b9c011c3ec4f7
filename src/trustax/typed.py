"""Values against the annotations of a frozen dataclass: what every config is checked with.

``conform`` takes Python or JSON values, ``parse`` takes text from a command line. Nothing here is ever evaluated as
code. Supported annotations: bool, int, float, str, None, Literal, unions, ``tuple[T, ...]``, ``tuple[T1, T2]``,
``list[T]``, ``Mapping[str, T]``, ``dict[str, T]``, Any, and dataclasses made of these.
"""

import collections.abc
import dataclasses
import functools
import json
import math
import types
import typing
from typing import Any

_WORDS = {"true": True, "false": False, "none": None, "null": None}
_UNIONS = (typing.Union, types.UnionType)
_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}  # JSON has no infinity; a threshold may be one


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
    """The resolved annotation of every field of a dataclass."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def refuse(owner: object, problems: list[str]) -> None:
    """Raise one ``ValueError`` with all the problems of a config, if there are any."""
    if problems:
        raise ValueError(f"{type(owner).__name__}: " + "; ".join(problems))


def type_problems(owner: Any) -> list[str]:
    """One line for every field of a dataclass whose value is not of the annotated type."""
    problems: list[str] = []
    for name, annotation in field_types(type(owner)).items():
        try:
            conform(getattr(owner, name), annotation)
        except ValueError as error:
            problems.append(f"{name} must be {error}")
    return problems


def conform(value: Any, annotation: Any) -> Any:
    """``value`` as ``annotation`` says: lists to tuples, whole numbers to floats; ``ValueError`` if it does not fit."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        if isinstance(value, annotation):
            return value
        raise ValueError(_expected(annotation, value))
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return _plain(value)
    if origin in _UNIONS:
        return _first_that_fits(conform, value, annotation, arguments)
    if origin is typing.Literal:
        if any(type(value) is type(choice) and value == choice for choice in arguments):
            return value
    elif origin in (tuple, list):
        return _sequence(value, annotation, origin, arguments)
    elif origin in (collections.abc.Mapping, dict):
        if isinstance(value, collections.abc.Mapping) and all(isinstance(key, str) for key in value):
            return {key: conform(item, arguments[1]) for key, item in value.items()}
    elif annotation is float:
        if isinstance(value, str) and value in _INFINITIES:
            return _INFINITIES[value]
        if isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
            return float(value)
    elif annotation in (None, types.NoneType):
        if value is None:
            return None
    elif type(value) is annotation:
        return value
    raise ValueError(_expected(annotation, value))


def parse(text: str, annotation: Any) -> Any:
    """The value that ``text`` stands for where ``annotation`` is expected; ``ValueError`` if it stands for none."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is str:
        return text
    if annotation is Any:
        return _guess(text)
    if origin in _UNIONS:
        # Text fits str always, so str is asked last: "none" of `str | None` is None.
        return _first_that_fits(parse, text, annotation, sorted(arguments, key=lambda argument: argument is str))
    if origin is typing.Literal:
        for choice in arguments:
            if text == str(choice):
                return choice
        raise ValueError(_expected(annotation, text))
    try:
        if annotation in (int, float):
            return conform(annotation(text), annotation)
        if annotation in (bool, None, types.NoneType):
            return conform(_WORDS[text.lower()], annotation)
        return conform(json.loads(text), annotation)
    except (ValueError, KeyError):
        raise ValueError(f"{describe(annotation)}, got {text!r}") from None


def _first_that_fits(reader: Any, value: Any, annotation: Any, candidates: Any) -> Any:
    for candidate in candidates:
        try:
            return reader(value, candidate)
        except ValueError:
            continue
    raise ValueError(_expected(annotation, value))


def _sequence(value: Any, annotation: Any, origin: type, arguments: tuple[Any, ...]) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError(_expected(annotation, value))
    any_length = origin is list or arguments[1:] == (...,)
    kinds = [arguments[0]] * len(value) if any_length else list(arguments)
    if len(kinds) != len(value):
        raise ValueError(_expected(annotation, value))
    return origin(conform(item, kind) for item, kind in zip(value, kinds, strict=True))


def _plain(value: Any) -> Any:
    """A value without an annotation: anything that JSON can hold, infinities as their names."""
    if isinstance(value, str) and value in _INFINITIES:
        return _INFINITIES[value]
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("a number, not NaN")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, collections.abc.Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise ValueError(f"plain data (numbers, text, lists, dicts with text keys), got {value!r}")


def _guess(text: str) -> Any:
    """Text where nothing says which type is meant: true, false, none, a number, JSON in brackets or quotes, or text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return _plain(number(text))
        except ValueError:
            continue
    if text[:1] in ("[", "{", '"'):
        try:
            return _plain(json.loads(text))
        except json.JSONDecodeError:
            raise ValueError(f"valid JSON where it starts with {text[0]}, got {text!r}") from None
    return text


def jsonable(value: Any) -> Any:
    """A config as strict JSON: dataclasses as objects, tuples as lists, infinities by name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kinds = field_types(type(value))
        return {name: jsonable(conform(getattr(value, name), kind)) for name, kind in kinds.items()}
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, collections.abc.Mapping):
        return {key: jsonable(item) for key, item in value.items()}
    return value


def describe(annotation: Any) -> str:
    """An annotation in a reader's words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _UNIONS:
        return " or ".join(describe(argument) for argument in arguments)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(repr, arguments))
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        None: "none",
        types.NoneType: "none",
    }
    if annotation in words:
        return words[annotation]
    if origin in (tuple, list):
        return "a list of " + " and ".join(describe(argument) for argument in arguments if argument is not ...)
    if origin in (collections.abc.Mapping, dict):
        return "a mapping"
    return f"a {annotation.__name__}" if isinstance(annotation, type) else str(annotation)


def _expected(annotation: Any, value: Any) -> str:
    what = f"the text {value!r}" if isinstance(value, str) and annotation in (bool, int, float) else repr(value)
    return f"{describe(annotation)}, got {what}"
