"""Answers that a verifier could never use, found before a run instead of in it."""

from collections.abc import Iterable

from trustax.verifiers.types import ChecksAnswers, Verifier

MAX_LISTED = 5


def check_answers(verifier: Verifier, answers: Iterable[tuple[int, str]], *, name: str) -> None:
    """Refuse right answers (with their examples' numbers) that parse to nothing; ``name`` is the set they are from."""
    if not isinstance(verifier, ChecksAnswers):
        return
    problems = [
        (index, problem) for index, answer in answers if (problem := verifier.answer_problem(answer)) is not None
    ]
    if problems:
        listed = "; ".join(f"example {index}: {problem}" for index, problem in problems[:MAX_LISTED])
        more = f"; and {len(problems) - MAX_LISTED} more" if len(problems) > MAX_LISTED else ""
        raise ValueError(f"{name}: the verifier can't use {len(problems)} of its answers: {listed}{more}")
