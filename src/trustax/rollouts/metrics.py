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
    for verdict in Verdict:
        found[f"verdict/{verdict.name.lower()}"] = np.mean([c.verdict is verdict for c in completions])
    return {name: float(value) for name, value in found.items()}
