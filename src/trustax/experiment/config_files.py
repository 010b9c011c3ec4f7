"""Configs from Python files, and to and from JSON."""

import dataclasses
import traceback
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trustax.errors import ConfigError
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.suggest import nearest, nearest_key
from trustax.typed import conform, field_types, jsonable


def load_config(path: str | Path) -> ExperimentConfig:
    """Run a config file, which is the user's own Python, and return what its ``get_config()`` returns."""
    path = Path(path)
    if not path.is_file():
        siblings = [str(other) for other in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ConfigError(f"no config file {path}{nearest(str(path), siblings)}")
    module = types.ModuleType("trustax_config")
    module.__file__ = str(path)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
        get_config = module.__dict__.get("get_config")
        config = get_config() if callable(get_config) else None
    except (Exception, SystemExit) as error:  # the user's code may do anything; it is reported with its own place
        raise ConfigError(_where(path, error)) from error
    if not callable(get_config):
        raise ConfigError(f"{path} has no function get_config(); add one that returns an ExperimentConfig")
    if not isinstance(config, ExperimentConfig):
        kind = type(config).__name__
        raise ConfigError(f"{path}: get_config() returned {kind}, expected ExperimentConfig; is a return missing?")
    return from_json(to_json(config))  # whole numbers become floats where floats are meant, lists tuples


def _where(path: Path, error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    message = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    kind = "" if type(error) in (ValueError, ConfigError) else f"{type(error).__name__}: "
    return f"{path}{f':{line}' if line else ''}: {kind}{message}"


def to_json(config: ExperimentConfig) -> dict[str, Any]:
    """The resolved config as strict JSON: infinities by name, tuples as lists."""
    return jsonable(config)


def from_json(data: Any) -> ExperimentConfig:
    """The config that ``to_json`` wrote; ``ConfigError`` with every unknown, missing or ill-typed key."""
    problems: list[str] = []
    config = _build(ExperimentConfig, data, "", problems)
    if problems:
        raise ConfigError("; ".join(problems))
    return config


def diff(old: ExperimentConfig, new: ExperimentConfig) -> list[str]:
    """One line for every key in which two configs differ: ``optimizer.learning_rate: 2e-05 → 1e-05``."""
    before, after = flatten(to_json(old)), flatten(to_json(new))
    keys = dict.fromkeys([*before, *after])
    return [
        f"{key}: {before.get(key, 'absent')} → {after.get(key, 'absent')}"
        for key in keys
        if key not in before or key not in after or before[key] != after[key]
    ]


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _build(annotation: Any, value: Any, path: str, problems: list[str]) -> Any:
    cls = _dataclass_for(annotation, value)
    if cls is None and isinstance(value, list | tuple):
        item = _item_of(annotation)
        if item is not None and any(_dataclass_for(item, one) for one in value):
            return tuple(_build(item, one, f"{path}[{place}]", problems) for place, one in enumerate(value))
    if cls is None:
        try:
            return conform(value, annotation)
        except ValueError as error:
            problems.append(f"{path} must be {error}")
            return None
    if not isinstance(value, Mapping):
        problems.append(f"{path or 'the config'} must be a section, got {value!r}")
        return None
    kinds = field_types(cls)
    required = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    before = len(problems)
    for name in value:
        if name not in kinds:
            problems.append(f"unknown key {path}{'.' if path else ''}{name}{nearest_key(name, kinds)}")
    problems += [f"missing key {path}{'.' if path else ''}{name}" for name in sorted(required - value.keys())]
    known = {name: item for name, item in value.items() if name in kinds}
    parts = {
        name: _build(kinds[name], item, f"{path}{'.' if path else ''}{name}", problems) for name, item in known.items()
    }
    if len(problems) > before:
        return None
    return construct(lambda: cls(**parts), cls, path, problems)


def construct(make: Callable[[], Any], cls: type, path: str, problems: list[str]) -> Any:
    """What ``make()`` returns; a section's own complaint is added to ``problems`` under its path."""
    try:
        return make()
    except ValueError as error:
        message = str(error).removeprefix(f"{cls.__name__}: ")
        problems.append(f"{path}: {message}" if path else message)
        return None


def _item_of(annotation: Any) -> Any:
    """``T`` of ``tuple[T, ...]``."""
    arguments = typing.get_args(annotation)
    return arguments[0] if typing.get_origin(annotation) is tuple and arguments[1:] == (...,) else None


def _dataclass_for(annotation: Any, value: Any) -> type | None:
    """The dataclass that ``value`` describes: of a union, the one whose ``kind`` the value names."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return annotation
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType) or not isinstance(value, Mapping):
        return None
    candidates = [
        option
        for option in typing.get_args(annotation)
        if isinstance(option, type) and dataclasses.is_dataclass(option)
    ]
    for candidate in candidates:
        kind = field_types(candidate).get("kind")
        if len(candidates) == 1 or (kind is not None and value.get("kind") in typing.get_args(kind)):
            return candidate
    return None
