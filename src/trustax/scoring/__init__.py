"""A rollout under given parameters, as the statistics that objectives read."""

from trustax.scoring.score import score

__all__ = ["score"]
