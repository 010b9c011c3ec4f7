"""What the updated policy will earn, before anything is sampled from it."""

import jax
import numpy as np

from trustax.ope.completions import FLOOR, evaluate_completions
from trustax.types import Rollout


def early_warning(log_pi: jax.Array, rollout: Rollout) -> dict[str, float]:
    """Estimate the updated policy's mean reward from the rollouts that it was updated on.

    It has seen these very rewards, so the estimate is optimistic: a fall means something, a rise does not. Below the
    floor of the effective sample size only that size is told, which is a warning too.
    """
    told = np.asarray(rollout.token_mask).any(axis=-1) & np.isfinite(np.asarray(rollout.rewards))
    if told.sum() < 2:
        return {}
    logged = (log_pi, rollout.log_mu, rollout.token_mask, rollout.rewards, rollout.group_id)
    report = evaluate_completions(*(np.asarray(x)[told] for x in logged), taus=(), floor=0)
    found = {"ope/effective": report.effective}
    if report.effective >= FLOOR:
        found |= {name: vars(report)[name] for name in ("estimate", "low", "high", "truncated")}
    return {name if "/" in name else f"ope/{name}": value for name, value in found.items()}
