"""Verifiers of form: a pattern, sections in order, and several verifiers together."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trustax.types import Verdict
from trustax.verifiers import matching
from trustax.verifiers.pool import Answer, Pool
from trustax.verifiers.types import CORRECT, ERROR, TIMEOUT, UNPARSABLE, WRONG, Outcome, Request, Verifier, judge


class Regex:
    """The last match of ``pattern``: what its group ``answer`` holds equals the answer, or any match will do without
    one.

    A pattern may take forever on a text that a model wrote; it is matched in a process with ``limit_s`` seconds.
    """

    def __init__(self, *, pattern: str, ignore_case: bool = False, limit_s: float = 1.0, workers: int = 1) -> None:
        self._flags = re.IGNORECASE if ignore_case else 0
        try:
            self._compared = "answer" in re.compile(pattern, self._flags).groupindex
        except re.error as error:
            raise ValueError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
        self._pattern, self._ignore_case = pattern, ignore_case
        self._pool = Pool(f"{Path(matching.__file__)}:last_match", limit_s=limit_s, workers=workers)

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        return self.judge([Request(completion, example_prompt, answer, metadata)])[0]

    def judge(self, requests: Sequence[Request]) -> list[Outcome]:
        calls = [{"pattern": self._pattern, "flags": int(self._flags), "text": r.completion} for r in requests]
        return [self._outcome(found, r.answer) for found, r in zip(self._pool.map(calls), requests, strict=True)]

    def _outcome(self, found: Answer, answer: str) -> Outcome:
        if found.timed_out or found.error is not None:
            return TIMEOUT if found.timed_out else ERROR
        if found.value is None:
            return UNPARSABLE if self._compared else WRONG
        if not self._compared:
            return CORRECT
        given, right = found.value.strip(), answer.strip()
        return CORRECT if (given.casefold() == right.casefold() if self._ignore_case else given == right) else WRONG


@dataclasses.dataclass(frozen=True)
class Format:
    """The completion is the sections ``<tag>…</tag>`` in this order, each once, none empty, and nothing beside them."""

    tags: Sequence[str] = ("think", "answer")

    def __post_init__(self) -> None:
        if not self.tags or not all(re.fullmatch(r"\w+", tag) for tag in self.tags):
            raise ValueError(f"tags must be one or more names of letters, digits and '_', got {list(self.tags)}")

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        del example_prompt, answer, metadata
        rest = completion
        for tag in self.tags:
            opening, closing = f"<{tag}>", f"</{tag}>"
            if completion.count(opening) != 1 or completion.count(closing) != 1:
                return WRONG
            before, _, rest = rest.partition(opening)
            inside, found, rest = rest.partition(closing)
            if before.strip() or not found or not inside.strip():
                return WRONG
        return WRONG if rest.strip() else CORRECT


class Weighted:
    """Several verifiers: the first one's verdict, and the weighted mean of their rewards.

    ``parts`` are objects with ``name``, ``options`` and ``weight``. Where any of them fails or runs out of time, so
    does the whole: half a grade is no grade.
    """

    def __init__(self, *, parts: Sequence[Mapping[str, Any]]) -> None:
        # The table of verifiers holds this class.
        from trustax.verifiers.registry import build

        if not parts:
            raise ValueError("parts is empty: give at least one {'name': ..., 'weight': ...}")
        for part in parts:
            if unknown := sorted(part.keys() - {"name", "options", "weight"}):
                raise ValueError(f"a part of 'weighted' has name, options and weight, got {', '.join(unknown)}")
            if "name" not in part:
                raise ValueError(f"a part of 'weighted' needs a name, got {dict(part)}")
        self._weights = [float(part["weight"]) if "weight" in part else 1.0 for part in parts]
        if any(not 0 <= weight < float("inf") for weight in self._weights) or sum(self._weights) == 0:
            raise ValueError(f"weights must be at least 0, and not all of them 0, got {self._weights}")
        self._verifiers: list[Verifier] = [build(part["name"], **part.get("options", {})) for part in parts]

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        return self.judge([Request(completion, example_prompt, answer, metadata)])[0]

    def judge(self, requests: Sequence[Request]) -> list[Outcome]:
        by_part = [judge(verifier, requests) for verifier in self._verifiers]
        return [self._together(outcomes) for outcomes in zip(*by_part, strict=True)]

    def _together(self, outcomes: Sequence[Outcome]) -> Outcome:
        failed = [outcome.verdict for outcome in outcomes if outcome.verdict in (Verdict.TIMEOUT, Verdict.ERROR)]
        if failed:
            return Outcome(failed[0], 0.0)
        total = sum(weight * outcome.reward for weight, outcome in zip(self._weights, outcomes, strict=True))
        return Outcome(outcomes[0].verdict, total / sum(self._weights))
