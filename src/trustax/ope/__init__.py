"""Off-policy evaluation: what a policy is worth, from what another one did.

    IS, self-normalised, per-decision, doubly robust and truncated doubly robust estimators as pure functions of arrays

for episodes (``episodes``; a completion is one) and for the long run of a chain (``stationary``). ``nuisance`` learns
the value functions and state ratios they want told, ``bootstrap`` gives intervals, ``schedules`` says how far to
truncate, and ``report`` puts it together for completions of a language model.
"""

from trustax.ope.episodes import (
    doubly_robust,
    importance_sampling,
    per_decision,
    self_normalized,
    truncated_doubly_robust,
)
from trustax.ope.intervals import Interval, blocks, bootstrap
from trustax.ope.stationary import average_reward, discounted_reward
from trustax.ope.terms import Terms, effective_sample_size, estimate

__all__ = [
    "Interval",
    "Terms",
    "average_reward",
    "blocks",
    "bootstrap",
    "discounted_reward",
    "doubly_robust",
    "effective_sample_size",
    "estimate",
    "importance_sampling",
    "per_decision",
    "self_normalized",
    "truncated_doubly_robust",
]
