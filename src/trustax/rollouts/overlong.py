"""What becomes of completions that were cut off, and how far that bends the lengths that are learned from.

After DAPO (Yu et al., arXiv 2503.14476, section 3.4, eq. 13).
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from trustax.rollouts.collect import Completion
from trustax.rollouts.config import RolloutConfig
from trustax.types import FinishReason, Rollout


def length_penalty(lengths: np.ndarray, *, limit: int, buffer: int) -> np.ndarray:
    """0 up to ``limit - buffer`` tokens, then linearly down to -1 at ``limit``."""
    return np.clip((limit - buffer - np.asarray(lengths, np.float64)) / buffer, -1.0, 0.0)


def handle_overlong(
    rollout: Rollout, completions: Sequence[Completion], config: RolloutConfig
) -> tuple[Rollout, dict[str, float]]:
    """The rollout with masks or rewards changed as ``config.overlong`` says, and what that does to lengths.

    ``overlong/length_bias`` is the mean length of what is learned from minus that of all completions: below 0, because
    the longest are left out. Shaping leaves all in; ``overlong/penalty`` is the mean that length costs.
    """
    cut = np.array([completion.finish_reason is FinishReason.LENGTH for completion in completions])
    lengths = np.array([len(completion.token_ids) for completion in completions])
    if config.overlong == "filter":
        told = {"overlong/filtered": float(cut.mean())}
        if not cut.all():
            told["overlong/length_bias"] = float(lengths[~cut].mean() - lengths.mean())
        return rollout.replace(token_mask=rollout.token_mask & ~jnp.asarray(cut)[:, None]), told
    if config.overlong == "shape":
        penalty = length_penalty(lengths, limit=config.max_new_tokens, buffer=config.overlong_buffer)
        told = {"overlong/penalty": float(penalty.mean()), "overlong/penalised": float((penalty < 0).mean())}
        assert rollout.rewards is not None
        return rollout.replace(rewards=rollout.rewards + jnp.asarray(penalty, rollout.rewards.dtype)), told
    return rollout, {}
