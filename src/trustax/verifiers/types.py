"""What a verifier says, and how one is called."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from trustax.types import Verdict


class Outcome(NamedTuple):
    """A verdict with the reward that training sees. Rewards are finite; only CORRECT earns the full 1."""

    verdict: Verdict
    reward: float


CORRECT = Outcome(Verdict.CORRECT, 1.0)
WRONG = Outcome(Verdict.WRONG, 0.0)
UNPARSABLE = Outcome(Verdict.UNPARSABLE, 0.0)
TIMEOUT = Outcome(Verdict.TIMEOUT, 0.0)
ERROR = Outcome(Verdict.ERROR, 0.0)


class Request(NamedTuple):
    """What a verifier is asked: one completion, and the example that it answers."""

    completion: str
    example_prompt: str
    answer: str
    metadata: str


class Verifier(Protocol):
    """Judges one completion. Arguments are named, so that answer and completion can't be swapped."""

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome: ...


@runtime_checkable
class BatchVerifier(Protocol):
    """A verifier that judges many completions faster than one after the other."""

    def judge(self, requests: Sequence[Request]) -> list[Outcome]: ...


@runtime_checkable
class ChecksAnswers(Protocol):
    """A verifier that can tell beforehand that it will never be able to use an example's answer."""

    def answer_problem(self, answer: str) -> str | None: ...


def judge(verifier: Verifier, requests: Sequence[Request]) -> list[Outcome]:
    """One outcome a request, in order; all at once where the verifier can."""
    if isinstance(verifier, BatchVerifier):
        return verifier.judge(requests)
    return [verifier(**request._asdict()) for request in requests]
