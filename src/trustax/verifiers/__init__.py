"""Verdicts on what a model wrote: a verdict with its reason and a reward, never an exception on a model's text."""

from trustax.verifiers.registry import VERIFIERS, build
from trustax.verifiers.types import Outcome, Verifier

__all__ = ["VERIFIERS", "Outcome", "Verifier", "build"]
