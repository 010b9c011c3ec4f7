"""Verdicts on what a model wrote: a verdict with its reason and a reward, never an exception on a model's text."""

from trustax.verifiers.outcome import Outcome, Verifier
from trustax.verifiers.registry import VERIFIERS, build

__all__ = ["VERIFIERS", "Outcome", "Verifier", "build"]
