"""What must be right before an estimate means anything; looked at on the host, where arrays have values."""

from typing import Any

import numpy as np

from trustax.errors import UserError
from trustax.ops.support import MASS_TOLERANCE


def logged_problems(
    log_pi: np.ndarray, log_mu: np.ndarray, token_mask: np.ndarray, rewards: np.ndarray, groups: np.ndarray
) -> list[str]:
    """Everything that makes completions unfit for an estimate; log-probs ``[B, T]``, the rest ``[B]``."""
    if log_mu.ndim != 2:
        return [f"log_mu has shape {log_mu.shape}, expected [B, T]"]
    problems = [
        f"{name} has shape {array.shape}, expected {shape} as log_mu"
        for name, array, shape in (
            ("log_pi", log_pi, log_mu.shape),
            ("token_mask", token_mask, log_mu.shape),
            ("rewards", rewards, log_mu.shape[:1]),
            ("groups", groups, log_mu.shape[:1]),
        )
        if array.shape != shape
    ]
    if problems:
        return problems

    def report(bad: Any, text: str) -> None:
        if bad.any():
            place = ", ".join(f"{name} {i}" for name, i in zip(("row", "token"), np.argwhere(bad)[0], strict=False))
            problems.append(f"{place}: {text}" + (f" ({int(bad.sum())} such places)" if bad.sum() > 1 else ""))

    report(token_mask & np.isnan(log_mu), "no μ: log_mu is NaN, and off-policy evaluation divides by it")
    report(
        token_mask & (log_mu == -np.inf),
        "μ gives an action that was taken probability 0, so it was drawn from another distribution than log_mu says",
    )
    report(token_mask & (log_mu > MASS_TOLERANCE), "log_mu is above 0: is it a probability?")
    report(token_mask & np.isnan(log_pi), "log_pi is NaN")
    report(token_mask & (log_pi > MASS_TOLERANCE), "log_pi is above 0: is it a probability?")
    report(~np.isfinite(rewards), "the reward is not finite")
    report(~token_mask.any(axis=-1), "a completion without a token")
    if len(rewards) < 2:
        problems.append(f"{len(rewards)} completions: at least two are needed")
    return problems


def require_overlap(effective: float, count: int, floor: float) -> None:
    """Refuse an estimate that rests on too few effective rows. Raises ``UserError``."""
    if not effective >= floor:
        raise UserError(
            f"effective sample size {effective:.1f} of {count} rollouts, below the floor of {floor:g}: the policies "
            "are too far apart for these rollouts to say anything. Use more rollouts, or ones of a nearer policy, or "
            "lower the floor and do not trust the number"
        )
