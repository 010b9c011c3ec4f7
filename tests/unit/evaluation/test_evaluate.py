from trustax.evaluation.evaluate import accuracy
from trustax.rollouts.collect import Completion
from trustax.types import FinishReason, Verdict


def completion(verdict: Verdict) -> Completion:
    return Completion("1 + 1", "2", "2", [3], verdict, 0.5, FinishReason.STOP)


def test_accuracy_counts_correct_verdicts_whatever_the_reward() -> None:
    verdicts = [Verdict.CORRECT, Verdict.WRONG, Verdict.ERROR, Verdict.CORRECT]
    assert accuracy([completion(verdict) for verdict in verdicts]) == 0.5
