"""Verifiers that compare an answer found in the completion with the right one."""

import dataclasses
from collections.abc import Callable
from decimal import Decimal

from trustax.verifiers.parsing import first_number, last_boxed, last_number, last_result, whole_number
from trustax.verifiers.types import CORRECT, ERROR, UNPARSABLE, WRONG, Outcome


@dataclasses.dataclass(frozen=True)
class Exact:
    """The completion is the answer, spaces at both ends apart."""

    ignore_case: bool = False

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        del example_prompt, metadata
        given, right = completion.strip(), answer.strip()
        if not given:
            return UNPARSABLE
        if self.ignore_case:
            given, right = given.casefold(), right.casefold()
        return CORRECT if given == right else WRONG


@dataclasses.dataclass(frozen=True)
class Number:
    """One number of the completion equals the answer: 72, 72.0 and "72 coins, in total." are the same.

    After the last ``marker`` (GSM8K's ``####``), the first number there is the answer, whatever stands elsewhere.
    """

    find: Callable[[str], Decimal | None]
    marker: str | None = "####"

    def answer_problem(self, answer: str) -> str | None:
        """Why this can't be a right answer, if it can't."""
        return None if whole_number(answer) is not None else f"the answer {answer!r} is no number"

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        del example_prompt, metadata
        right = whole_number(answer)
        if right is None:
            return ERROR  # the data's fault, not the model's: an answer that is no number
        found = self._find(completion)
        if found is None:
            return UNPARSABLE
        return CORRECT if found == right else WRONG

    def _find(self, completion: str) -> Decimal | None:
        if self.marker is not None and self.marker in completion:
            return first_number(completion.rpartition(self.marker)[2])
        return self.find(completion)


@dataclasses.dataclass(frozen=True)
class Boxed:
    r"""The last ``\boxed{...}`` equals the answer, as a number or as text without spaces.

    A box that never closes counts as none. Without a box nothing is graded, or with ``strict=False`` the last number.
    """

    strict: bool = True

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        del example_prompt, metadata
        found = last_boxed(completion)
        if found is None and not self.strict and r"\boxed" not in completion:
            number = last_number(completion)
            found = None if number is None else str(number)
        if not found:
            return UNPARSABLE
        given, right = whole_number(found), whole_number(answer)
        if given is not None and right is not None:
            return CORRECT if given == right else WRONG
        return CORRECT if _squeezed(found) == _squeezed(answer) else WRONG


def _squeezed(text: str) -> str:
    return "".join(text.split())


def last_number_verifier(*, marker: str | None = "####", operands: bool = True) -> Number:
    """Grade the last number of the completion.

    Known flaw: "0 + 7 means" is right where 7 is, because the last number of a text may be one that it repeats from the
    question. ``operands=False`` passes over a number that an operator joins to the one before it and that no result
    follows; the default keeps them, as what was measured with this verifier did. Longer texts are better judged by
    ``math``, which wants the answer marked.
    """
    return Number(last_number if operands else last_result, marker)


def first_number_verifier(*, marker: str | None = None) -> Number:
    """Grade the first number of the completion."""
    return Number(first_number, marker)
