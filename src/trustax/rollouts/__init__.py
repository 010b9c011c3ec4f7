"""From prompts to completions with verdicts."""

from trustax.rollouts.config import RolloutConfig

__all__ = ["RolloutConfig"]
