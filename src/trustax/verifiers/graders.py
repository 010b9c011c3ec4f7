"""Verifiers that hand the completion to somebody else's code: reasoning-gym's scorers, a user's function.

Such code may raise on what a model wrote; that is the verdict ERROR, logged once per kind, and never the end of a run.
With ``limit_s`` it runs in processes of its own, as many as there are cores, and one that overruns its limit is killed:
the verdict TIMEOUT. With ``limit_s=None`` it runs in this process without a limit.
"""

import functools
import importlib
import importlib.util
import inspect
import json
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from trustax.types import Verdict
from trustax.verifiers import gym
from trustax.verifiers.pool import Answer, Pool
from trustax.verifiers.types import ERROR, TIMEOUT, UNPARSABLE, Outcome, Request, Verifier

logger = logging.getLogger(__name__)

ARGUMENTS = ("completion", "example_prompt", "answer", "metadata")


class _Foreign:
    """Calls somebody else's function, in a pool or here, and turns whatever comes of it into outcomes."""

    def __init__(self, function: Callable[..., Any], target: str, limit_s: float | None, workers: int | None) -> None:
        self._function = function
        self._pool = None if limit_s is None else Pool(target, limit_s=limit_s, workers=workers)
        self._reported: set[str] = set()

    def __call__(self, calls: Sequence[dict[str, Any]]) -> list[Outcome]:
        if self._pool is None:
            return [_graded(lambda call=call: self._function(**call), self._reported) for call in calls]
        return [self._outcome(answer) for answer in self._pool.map(calls)]

    def _outcome(self, answer: Answer) -> Outcome:
        if answer.timed_out:
            return TIMEOUT
        if answer.error is not None:
            return _failed(answer.error, answer.error.partition(":")[0], self._reported)
        return _graded(lambda: _unpacked(answer.value), self._reported)


def _unpacked(value: Any) -> Any:
    """An Outcome comes through a pipe as a list."""
    return Outcome(Verdict(value[0]), value[1]) if isinstance(value, list) and len(value) == 2 else value


class ReasoningGym:
    """The task's own scorer, on the record that the data set keeps in ``metadata["reasoning_gym"]``.

    Partial marks stay as the reward; the verdict is CORRECT only for the full mark. With ``tag="answer"`` only what the
    last ``<answer>...</answer>`` holds is scored.
    """

    def __init__(self, *, tag: str | None = None, limit_s: float | None = 10.0, workers: int | None = None) -> None:
        self._tag = tag
        if importlib.util.find_spec("reasoning_gym") is None:
            raise ImportError(
                "the verifier 'reasoning_gym' needs the package reasoning-gym: pip install 'trustax[tasks]'"
            )
        self._score = _Foreign(gym.score, f"{gym.__file__}:score", limit_s, workers)

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        return self.judge([Request(completion, example_prompt, answer, metadata)])[0]

    def judge(self, requests: Sequence[Request]) -> list[Outcome]:
        # The record holds the question, and answers that are not unique.
        texts = [r.completion.strip() if self._tag is None else _tagged(r.completion, self._tag) for r in requests]
        for request in requests:
            _check_record(request.metadata)
        calls = [{"text": text, "metadata": r.metadata} for text, r in zip(texts, requests, strict=True) if text]
        scored = iter(self._score(calls))
        return [next(scored) if text else UNPARSABLE for text in texts]


@functools.lru_cache(maxsize=4096)
def _check_record(metadata: str) -> None:
    stored = json.loads(metadata)
    if "reasoning_gym" not in stored:
        raise ValueError(
            "the verifier 'reasoning_gym' needs examples of a reasoning-gym source; these have metadata "
            f"{', '.join(sorted(stored)) or 'without any key'}"
        )


def _tagged(completion: str, tag: str) -> str:
    _, opened, rest = completion.rpartition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    return inside.strip() if opened and closed else ""


class UserFunction:
    """A function ``module:name`` of the verifier's four named arguments; it returns an Outcome, a bool or a number."""

    def __init__(self, *, path: str, limit_s: float | None = 10.0, workers: int | None = None) -> None:
        self._grade = _Foreign(_import_function(path), path, limit_s, workers)

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        return self.judge([Request(completion, example_prompt, answer, metadata)])[0]

    def judge(self, requests: Sequence[Request]) -> list[Outcome]:
        return self._grade([request._asdict() for request in requests])


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
