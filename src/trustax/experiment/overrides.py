"""Dotted overrides from a command line: ``optimizer.learning_rate=1e-5``. Their values are data, never code."""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from trustax.errors import ConfigError
from trustax.experiment.config import ExperimentConfig
from trustax.experiment.config_files import construct, flatten, to_json
from trustax.experiment.suggest import nearest_key
from trustax.typed import field_types, parse


def apply_overrides(config: ExperimentConfig, overrides: Sequence[str]) -> ExperimentConfig:
    """A config with some values replaced; each is read as its field's type says. Of equal keys the last one counts.

    Raises ``ConfigError`` with every override that has no ``=``, an unknown key, or a value that does not fit.
    """
    problems: list[str] = []
    changes: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            problems.append(f"{override!r} is not an override; write section.key=value")
            continue
        try:
            _collect(config, key.strip(), text, changes)
        except ConfigError as error:
            problems.append(str(error))
    changed = config if problems else _replaced(config, changes, "", problems)
    if problems:
        raise ConfigError("; ".join(problems))
    return changed


def _collect(config: ExperimentConfig, key: str, text: str, changes: dict[str, Any]) -> None:
    """Parse one value and put it into the nested ``changes``."""
    parts = key.split(".")
    node: Any = config
    for depth, name in enumerate(parts):
        section = ".".join(parts[:depth])
        kinds = field_types(type(node))
        if name not in kinds:
            raise ConfigError(f"unknown key {key}{nearest_key(key, flatten(to_json(config)))}")
        value, rest = getattr(node, name), parts[depth + 1 :]
        if dataclasses.is_dataclass(value):
            if not rest:
                keys = ", ".join(f"{key}.{field}" for field in field_types(type(value)))
                raise ConfigError(f"{key} is a section; set one of its keys: {keys}")
            changes = changes.setdefault(name, {})
            node = value
        elif isinstance(value, Mapping) and rest:
            kind = typing.get_args(kinds[name])[1]
            changes.setdefault(name, dict(value))[".".join(rest)] = _parsed(key, text, kind)
            return
        elif rest:
            raise ConfigError(
                f"{section + '.' if section else ''}{name} is a value, not a section: it has no {rest[0]!r}"
            )
        else:
            changes[name] = _parsed(key, text, kinds[name])


def _parsed(key: str, text: str, kind: Any) -> Any:
    try:
        return parse(text, kind)
    except ValueError as error:
        raise ConfigError(f"{key} must be {error}") from None


def _replaced(node: Any, changes: Mapping[str, Any], path: str, problems: list[str]) -> Any:
    """``node`` with the changes made from the leaves up, so that a section is checked once, with all of its changes."""
    values = {}
    for name, change in changes.items():
        value = getattr(node, name)
        if dataclasses.is_dataclass(value):
            values[name] = _replaced(value, change, f"{path}.{name}" if path else name, problems)
        else:
            values[name] = change
    if problems:
        return None
    return construct(lambda: dataclasses.replace(node, **values), type(node), path, problems)
