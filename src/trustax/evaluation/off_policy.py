"""What a policy is worth, from completions that another one wrote: its log-probs of them, and the estimate."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trustax.errors import UserError
from trustax.ope.completion_values import learned_values
from trustax.ope.completions import FLOOR, Report, evaluate_completions
from trustax.ops.transforms import canonical
from trustax.policies.policy import Policy
from trustax.rollouts.collect import bucket_length, pad_prompts
from trustax.rollouts.importers import Logged
from trustax.scoring.score import completion_hidden, score
from trustax.typed import refuse, type_problems
from trustax.types import Rollout, Transform

Value = Literal["group", "linear", "network"]
ROWS = 64
"""Completions scored at once."""


@dataclasses.dataclass(frozen=True)
class OffPolicyOptions:
    """Where to truncate (√rollouts if None), whose value to start from, and below which effective size to refuse."""

    tau: float | None = None
    value: Value = "group"
    floor: float = FLOOR

    def __post_init__(self) -> None:
        problems = [] if self.tau is None or self.tau > 0 else [f"tau must be above 0, got {self.tau:g}"]
        problems += [] if self.floor >= 0 else [f"the ESS floor must be at least 0, got {self.floor:g}"]
        refuse(self, type_problems(self) or problems)


class _Scored(NamedTuple):
    log_pi: np.ndarray
    hidden: np.ndarray | None


def evaluate_off_policy(
    policy: Policy,
    params: Any,
    rows: Sequence[Logged],
    *,
    encode: Callable[[str], list[int]],
    pad_id: int,
    transform: Transform,
    options: OffPolicyOptions,
    seed: int = 0,
) -> Report:
    """Estimate the mean reward of ``params``, sampled with ``transform``, from completions of any policy.

    Raises ``UserError`` for rows beyond the policy's context and for an effective sample size below the floor.
    """
    prompts = [encode(row.prompt) if isinstance(row.prompt, str) else list(row.prompt) for row in rows]
    limit = policy.config.context_length
    for row, prompt in zip(rows, prompts, strict=True):
        if len(prompt) + len(row.tokens) > limit:
            raise UserError(
                f"{row.place}: {len(prompt)} prompt and {len(row.tokens)} completion tokens are beyond the policy's "
                f"context of {limit}"
            )
    width = bucket_length(max(len(row.tokens) for row in rows), limit)
    scored = []
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        scored.append(_score(policy, params, rows[part], prompts[part], width, pad_id, transform, options.value))
    log_pi = np.concatenate([one.log_pi for one in scored])
    logged: dict[str, Any] = {
        "log_mu": np.stack([_padded(row.log_mu, width, np.nan) for row in rows]),
        "token_mask": np.stack([_padded(row.token_mask, width, False) for row in rows]),
        "rewards": np.array([row.reward for row in rows]),
        "groups": _numbered([row.group for row in rows]),
    }
    values = None
    if options.value != "group":
        features = np.concatenate([one.hidden for one in scored if one.hidden is not None])
        values = learned_values(features, log_pi, **logged, kind=options.value, seed=seed)
    return evaluate_completions(log_pi, **logged, values=values, tau=options.tau, floor=options.floor, seed=seed)


def _score(
    policy: Policy,
    params: Any,
    rows: Sequence[Logged],
    prompts: Sequence[list[int]],
    width: int,
    pad_id: int,
    transform: Transform,
    value: Value,
) -> _Scored:
    """One batch, filled up with its last row so that every call has one shape."""
    filled = [*range(len(rows)), *([len(rows) - 1] * (ROWS - len(rows)))]
    tokens, valid = pad_prompts([prompts[i] for i in filled], limit=policy.config.context_length, pad_id=pad_id)
    exists = np.stack([_padded(np.ones(len(rows[i].tokens), bool), width, False) for i in filled])
    count = np.arange(len(filled), dtype=np.int32)
    # What another wrote inside a completion is context too: here the mask says what exists, not what is weighed.
    rollout = Rollout(
        prompt_tokens=jnp.asarray(tokens),
        prompt_valid=jnp.asarray(valid),
        prompt_index=jnp.asarray(count),
        group_id=jnp.asarray(count),
        sample_index=jnp.zeros(len(filled), jnp.int32),
        tokens=jnp.asarray(np.stack([_padded(rows[i].tokens, width, pad_id) for i in filled]), jnp.int32),
        token_mask=jnp.asarray(exists),
        log_mu=jnp.full(exists.shape, jnp.nan, jnp.float32),
        tail_log_mu=None,
        version=jnp.zeros(exists.shape, jnp.int32),
        top_k=None,
        finish_reason=jnp.zeros(len(filled), jnp.int32),
        transform=canonical(transform),
    )
    log_pi, hidden = jax.device_get(_log_probs(policy, params, rollout, value != "group"))
    return _Scored(log_pi[: len(rows)], None if hidden is None else hidden[: len(rows)])


@jax.jit(static_argnums=(0, 3))
def _log_probs(policy: Policy, params: Any, rollout: Rollout, with_hidden: bool) -> tuple[Any, Any]:
    hidden = completion_hidden(policy, params, rollout) if with_hidden else None
    return score(policy, params, rollout).log_pi, hidden


def _padded(values: np.ndarray, width: int, fill: float) -> np.ndarray:
    whole = np.full(width, fill, values.dtype)
    whole[: len(values)] = values
    return whole


def _numbered(groups: Sequence[Any]) -> np.ndarray:
    """Prompts by number, in the order in which they come."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(repr(group), len(numbers)) for group in groups])
