"""Completions as JSON records for people to read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from trustax.data.tokenizer import Tokenizer
from trustax.rollouts.collect import Completion


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
