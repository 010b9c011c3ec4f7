"""Verifiers that hand the completion to somebody else's code: reasoning-gym's scorers, a user's function.

Such code may raise on what a model wrote; that is the verdict ERROR, logged once per kind, and never the end of a run.
It runs in this process without a time limit.
"""

import ast
import functools
import importlib
import inspect
import json
import logging
import math
from collections.abc import Callable
from typing import Any

from trustax.types import Verdict
from trustax.verifiers.types import ERROR, UNPARSABLE, Outcome, Verifier

logger = logging.getLogger(__name__)

ARGUMENTS = ("completion", "example_prompt", "answer", "metadata")


class ReasoningGym:
    """The task's own scorer, on the record that the data set keeps in ``metadata["reasoning_gym"]``.

    Partial marks stay as the reward; the verdict is CORRECT only for the full mark. With ``tag="answer"`` only what the
    last ``<answer>...</answer>`` holds is scored.
    """

    def __init__(self, *, tag: str | None = None) -> None:
        self._tag = tag
        self._reported: set[str] = set()
        try:
            importlib.import_module("reasoning_gym")
        except ImportError as error:
            raise ImportError(
                "the verifier 'reasoning_gym' needs the package reasoning-gym: pip install 'trustax[tasks]'"
            ) from error

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        del example_prompt, answer  # the record holds the question, and answers that are not unique
        text = completion.strip() if self._tag is None else _tagged(completion, self._tag)
        if not text:
            return UNPARSABLE
        score, entry = _scorer(metadata)
        return _graded(lambda: score(text, entry=entry), self._reported)


@functools.lru_cache(maxsize=4096)
def _scorer(metadata: str) -> tuple[Callable[..., float], dict[str, Any]]:
    """The scorer of an example and the record it scores against."""
    stored = json.loads(metadata)
    if "reasoning_gym" not in stored:
        raise ValueError(
            "the verifier 'reasoning_gym' needs examples of a reasoning-gym source; these have metadata "
            f"{', '.join(sorted(stored)) or 'without any key'}"
        )
    record = stored["reasoning_gym"]
    dataset = _task(record["task"], json.dumps(record["options"], sort_keys=True))
    return dataset.score_answer, ast.literal_eval(record["entry"])


@functools.lru_cache(maxsize=128)
def _task(task: str, options: str) -> Any:
    return importlib.import_module("reasoning_gym").create_dataset(task, **json.loads(options), seed=0, size=1)


def _tagged(completion: str, tag: str) -> str:
    _, opened, rest = completion.rpartition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    return inside.strip() if opened and closed else ""


class UserFunction:
    """A function ``module:name`` of the verifier's four named arguments; it returns an Outcome, a bool or a number."""

    def __init__(self, *, path: str) -> None:
        self._function = _import_function(path)
        self._reported: set[str] = set()

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        return _graded(
            lambda: self._function(
                completion=completion, example_prompt=example_prompt, answer=answer, metadata=metadata
            ),
            self._reported,
        )


def _import_function(path: str) -> Verifier:
    module_name, separator, name = path.partition(":")
    if not separator or not module_name or not name:
        raise ValueError(f"the verifier 'python' needs path='module:function', got {path!r}")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"the verifier's module {module_name!r} can't be imported: {error}") from error
    if name not in vars(module) or not callable(vars(module)[name]):
        raise ValueError(f"the module {module_name!r} has no function {name!r}")
    function = vars(module)[name]
    try:
        inspect.signature(function).bind(**dict.fromkeys(ARGUMENTS, ""))
    except TypeError as error:
        raise ValueError(f"{path} must accept the named arguments {', '.join(ARGUMENTS)}: {error}") from error
    return function


def _graded(grade: Callable[[], Any], reported: set[str]) -> Outcome:
    """What the foreign code says, as an Outcome; whatever it raises is the verdict ERROR."""
    try:
        result = grade()
    except Exception as error:  # noqa: BLE001  foreign code on a model's text may raise anything
        return _failed(f"{type(error).__name__}: {error}", type(error).__name__, reported)
    if isinstance(result, str):  # float("1") would take a text for a mark
        return _failed(f"expected an Outcome, a bool or a number, got {result!r}", "result", reported)
    try:
        outcome = result if isinstance(result, Outcome) else _outcome(float(result))
    except (TypeError, ValueError):
        return _failed(f"expected an Outcome, a bool or a number, got {result!r}", "result", reported)
    if not math.isfinite(outcome.reward):
        return _failed(f"the reward is {outcome.reward}", "reward", reported)
    return outcome


def _outcome(reward: float) -> Outcome:
    return Outcome(Verdict.CORRECT if reward == 1.0 else Verdict.WRONG, reward)


def _failed(message: str, kind: str, reported: set[str]) -> Outcome:
    if kind not in reported:
        reported.add(kind)
        logger.warning("a grader failed, its verdict is ERROR (further ones of this kind are not logged): %s", message)
    return ERROR
