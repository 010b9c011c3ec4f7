"""Completions as JSON records, for people and for programs to read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from trustax.data.tokenizer import Tokenizer
from trustax.rollouts.collect import Completion
from trustax.types import Rollout


def logged_records(rollout: Rollout, completions: Sequence[Completion]) -> list[dict[str, Any]]:
    """One record a completion with all that another policy's evaluation wants: ids, log μ, reward (layout arrays)."""
    prompts, exists, index = (
        np.asarray(x) for x in (rollout.prompt_tokens, rollout.prompt_valid, rollout.prompt_index)
    )
    log_mu, groups = np.asarray(rollout.log_mu, np.float64), np.asarray(rollout.group_id)
    return [
        {
            "prompt_tokens": prompts[index[row]][exists[index[row]]].tolist(),
            "tokens": completion.token_ids,
            "log_mu": log_mu[row, : len(completion.token_ids)].tolist(),
            "reward": float(completion.reward),
            "group_id": int(groups[row]),
            "text": completion.text,
        }
        for row, completion in enumerate(completions)
    ]


def sample_records(
    completions: Sequence[Completion], advantages: Float[np.ndarray, "B"] | None, tokenizer: Tokenizer
) -> list[dict[str, Any]]:
    """One record a completion: prompt, answer, text, verdict, reward, its tokens, and the advantage where known."""
    records = []
    for row, completion in enumerate(completions):
        record: dict[str, Any] = {
            "prompt": completion.prompt,
            "answer": completion.answer,
            "completion": completion.text,
            "verdict": completion.verdict.name.lower(),
            "reward": float(completion.reward),
            "finish_reason": completion.finish_reason.name.lower(),
            "tokens": [tokenizer.token_text(i) for i in completion.token_ids],
        }
        if advantages is not None:
            record["advantage"] = float(advantages[row])
        records.append(record)
    return records
