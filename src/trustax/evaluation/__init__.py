"""Accuracy on held-out prompts."""

from trustax.evaluation.config import EvalConfig

__all__ = ["EvalConfig"]
