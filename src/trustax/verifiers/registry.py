"""Verifiers by name."""

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from trustax.verifiers.answers import Boxed, Exact, first_number_verifier, last_number_verifier
from trustax.verifiers.code import Code
from trustax.verifiers.form import Format, Regex, Weighted
from trustax.verifiers.graders import ReasoningGym, UserFunction
from trustax.verifiers.math import Math
from trustax.verifiers.types import Verifier

VERIFIERS: dict[str, Callable[..., Verifier]] = {
    "exact": Exact,
    "last_number": last_number_verifier,
    "first_number": first_number_verifier,
    "boxed": Boxed,
    "math": Math,
    "regex": Regex,
    "format": Format,
    "code": Code,
    "weighted": Weighted,
    "reasoning_gym": ReasoningGym,
    "python": UserFunction,
}


def build(name: str, **options: Any) -> Verifier:
    """The verifier ``name``; unknown names and options are refused with the nearest valid ones."""
    if name not in VERIFIERS:
        raise ValueError(f"no verifier {name!r}{_nearest(name, list(VERIFIERS))}; there are {', '.join(VERIFIERS)}")
    factory = VERIFIERS[name]
    parameters = inspect.signature(factory).parameters
    if unknown := sorted(options.keys() - parameters.keys()):
        hints = ", ".join(f"{option!r}{_nearest(option, list(parameters))}" for option in unknown)
        raise ValueError(f"verifier {name!r} has no option {hints}; it has {', '.join(parameters)}")
    missing = [
        key for key, value in parameters.items() if value.default is inspect.Parameter.empty and key not in options
    ]
    if missing:
        raise ValueError(f"verifier {name!r} needs the option {', '.join(missing)}")
    return factory(**options)


def _nearest(word: str, words: list[str]) -> str:
    close = difflib.get_close_matches(word, words, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
