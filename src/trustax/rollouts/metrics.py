"""Numbers that describe a rollout before any update."""

from collections.abc import Sequence

import numpy as np

from trustax.rollouts.collect import Completion
from trustax.types import FinishReason, Rollout, Verdict


def rollout_metrics(rollout: Rollout, completions: Sequence[Completion]) -> dict[str, float]:
    """Reward, verdicts, lengths, and how much the groups can teach."""
    rewards = np.array([completion.reward for completion in completions], np.float64)
    lengths = np.array([len(completion.token_ids) for completion in completions])
    groups = np.asarray(rollout.group_id)
    by_group = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    texts = [tuple(completion.token_ids) for completion in completions]
    found = {
        "reward/mean": rewards.mean(),
        "reward/std": rewards.std(),
        "reward/zero_variance_groups": np.mean([np.ptp(rewards[rows]) == 0 for rows in by_group]),
        "rollout/distinct_completions": np.mean([len({texts[i] for i in rows}) / len(rows) for rows in by_group]),
        "rollout/length_mean": lengths.mean(),
        "rollout/length_max": lengths.max(),
        "rollout/truncated": np.mean([c.finish_reason is FinishReason.LENGTH for c in completions]),
    }
    if rollout.routes is not None:
        found |= _expert_load(np.asarray(rollout.routes), np.asarray(rollout.token_mask))
    for verdict in Verdict:
        found[f"verdict/{verdict.name.lower()}"] = np.mean([c.verdict is verdict for c in completions])
    return {name: float(value) for name, value in found.items()}


def _expert_load(routes: np.ndarray, token_mask: np.ndarray) -> dict[str, float]:
    """How evenly completion tokens were spread, the worst layer: busiest expert over the mean of those used at all.

    Args:
      routes: ``[B, T, layers, K]``, −1 where a token was not read.
      token_mask: ``[B, T]``.
    """
    seen = routes[token_mask]
    loads = [np.unique(layer[layer >= 0], return_counts=True)[1] for layer in np.moveaxis(seen, 1, 0)]
    used = [load for load in loads if load.size]
    if not used:
        return {}
    return {
        "experts/busiest_over_mean": max(load.max() / load.mean() for load in used),
        "experts/used_at_least": float(min(load.size for load in used)),
    }
