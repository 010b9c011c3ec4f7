"""What a verifier says, and how one is called."""

from typing import NamedTuple, Protocol

from trustax.types import Verdict


class Outcome(NamedTuple):
    """A verdict with the reward that training sees. Rewards are finite; only CORRECT earns the full 1."""

    verdict: Verdict
    reward: float


CORRECT = Outcome(Verdict.CORRECT, 1.0)
WRONG = Outcome(Verdict.WRONG, 0.0)
UNPARSABLE = Outcome(Verdict.UNPARSABLE, 0.0)
ERROR = Outcome(Verdict.ERROR, 0.0)


class Verifier(Protocol):
    """Judges one completion. Arguments are named, so that answer and completion can't be swapped."""

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome: ...
