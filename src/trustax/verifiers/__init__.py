"""Verdicts on what a model wrote: a verdict with its reason and a reward, never an exception on a model's text."""

from trustax.verifiers.checks import check_answers
from trustax.verifiers.registry import VERIFIERS, build
from trustax.verifiers.types import Outcome, Request, Verifier, judge

__all__ = ["VERIFIERS", "Outcome", "Request", "Verifier", "build", "check_answers", "judge"]
