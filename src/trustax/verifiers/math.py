"""The verifier for mathematics: exact where that is enough, math-verify where it takes algebra."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from trustax.verifiers import algebra
from trustax.verifiers.equality import equal
from trustax.verifiers.extract import find_answer
from trustax.verifiers.notation import unwrapped
from trustax.verifiers.pool import Answer, Pool
from trustax.verifiers.types import CORRECT, ERROR, TIMEOUT, UNPARSABLE, WRONG, Outcome, Request
from trustax.verifiers.values import Formula, Value, read

MAX_ANSWER_CHARS = 2000

_read_answer = functools.lru_cache(maxsize=65536)(read)
_COMMAND = re.compile(r"\\[A-Za-z]+|⟦[^⟧]*⟧|\x00")
_BASE = re.compile(r"[0-9]_\{?([0-9]+)")  # of a numeral, as in 101_2
_ARITHMETIC = re.compile(r"(?:[0-9.,(){}\s]|[-+*/^]|\\frac|\\div|\\cdot|\\times|\\left|\\right)+")


class Math:
    """The answer that the completion marks equals the right one, in whatever notation.

    Numbers, fractions, percentages, units, intervals, sets, tuples, choices and words are compared exactly, in this
    process. Formulas that don't read the same go to math-verify in processes of their own, with ``limit_s`` seconds
    each; ``algebra=False`` takes them for different instead. An answer that leaves arithmetic to be done (``3 + 4``) is
    wrong where the right one doesn't, or repeating the question would be one.
    """

    def __init__(
        self, *, algebra: bool = True, limit_s: float = 5.0, workers: int | None = None, whole: bool = True
    ) -> None:
        self._whole = whole
        self._pool = _algebra_pool(limit_s, workers) if algebra else None

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        return self.judge([Request(completion, example_prompt, answer, metadata)])[0]

    def judge(self, requests: Sequence[Request]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        open_cases: list[tuple[int, dict[str, str]]] = []
        for number, request in enumerate(requests):
            found = self._quick(request)
            if isinstance(found, dict):
                open_cases.append((number, found))
                found = WRONG
            outcomes.append(found)
        if open_cases and self._pool is not None:
            answers = self._pool.map([call for _, call in open_cases])
            for (number, _), answer in zip(open_cases, answers, strict=True):
                outcomes[number] = _outcome(answer)
        return outcomes

    def answer_problem(self, answer: str) -> str | None:
        """Why this can't be a right answer, if it can't."""
        return None if _read_answer(answer) is not None else f"the answer {answer!r} has nothing in it"

    def _quick(self, request: Request) -> Outcome | dict[str, str]:
        """The outcome, or what math-verify is to be asked."""
        right = _read_answer(request.answer)
        if right is None:
            return ERROR  # the data's fault, not the model's
        text = find_answer(request.completion, whole=self._whole)
        if text is None or len(text) > MAX_ANSWER_CHARS:
            return UNPARSABLE
        given = read(text)
        if given is None:
            return UNPARSABLE
        same = equal(right=right, given=given)
        if same is None:
            same = _hopeless(right, request.answer, text)
        if same is None:
            return {"right": _formula(right, request.answer), "given": _formula(given, text)}
        return CORRECT if same else WRONG


def _hopeless(value: Value, right: str, given: str) -> bool | None:
    """False where no algebra is needed to see a difference; math-verify overlooks some of these."""
    if _is_arithmetic(given) and not isinstance(value, Formula):
        return False
    if _letters(right) != _letters(given) or any((sign in right) != (sign in given) for sign in "=<>"):
        return False
    return None if _BASE.findall(right) == _BASE.findall(given) else False


def _is_arithmetic(text: str) -> bool:
    return (
        _ARITHMETIC.fullmatch(text) is not None
        and re.search(r"[0-9)}]\s*(?:[-+*/(]|\\cdot|\\times|\\div)", text) is not None
    )


def _letters(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]", _COMMAND.sub(" ", text)))


def _formula(value: Value, text: str) -> str:
    return value.text if isinstance(value, Formula) and value.unit is not None else unwrapped(text)


def _algebra_pool(limit_s: float, workers: int | None) -> Pool:
    if not algebra.is_installed():
        raise ImportError(
            "the verifier 'math' compares formulas with the package math-verify: pip install 'trustax[tasks]', or set "
            "its option algebra=False, which takes formulas that don't read the same for different"
        )
    return Pool(f"{Path(algebra.__file__)}:agree", limit_s=limit_s, workers=workers)


def _outcome(answer: Answer) -> Outcome:
    if answer.timed_out:
        return TIMEOUT
    if answer.error is not None:
        return ERROR
    return CORRECT if answer.value is True else WRONG
