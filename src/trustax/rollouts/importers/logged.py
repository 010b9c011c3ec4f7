"""One completion with its prompt and its reward, before any trainer has scored it."""

import dataclasses
from typing import Any

import numpy as np

from trustax.ops.support import MASS_TOLERANCE
from trustax.rollouts.importers import fields
from trustax.rollouts.importers.fields import RowProblems
from trustax.rollouts.importers.layouts import LAYOUTS
from trustax.rollouts.importers.records import Record

_COMMON = ("prompt_tokens", "prompt", "reward", "token_mask", "mask", "group_id")


@dataclasses.dataclass(frozen=True, eq=False)
class Logged:
    """``T`` counts completion tokens; ``token_mask`` is false where another than the policy wrote (a tool's output).

    ``prompt`` is text or token ids, ``group`` what the file calls the prompt, or the prompt itself.
    """

    place: str
    prompt: str | tuple[int, ...]
    tokens: np.ndarray
    log_mu: np.ndarray
    token_mask: np.ndarray
    reward: float
    group: Any


def known_of_logged(layout: str) -> frozenset[str]:
    """Every field that is read in a layout."""
    return frozenset({*_COMMON, *LAYOUTS[layout].marks, *LAYOUTS[layout].known})


def read_logged(record: Record, layout: str) -> Logged:
    """One completion. Raises ``RowProblems`` if it does not hold what its layout says, a prompt and a reward."""
    assert record.fields is not None
    found = LAYOUTS[layout].read(record.fields)
    length = len(found.tokens)
    prompt = _prompt(record.fields.get("prompt_tokens"), record.fields.get("prompt"))
    reward = fields.required(record.fields, "reward")
    if type(reward) not in (int, float):
        raise RowProblems([f"reward must be a number, got {reward!r}"])
    group = fields.field(record.fields, "group_id")
    return Logged(
        place=record.place,
        prompt=prompt,
        tokens=found.tokens,
        log_mu=found.log_mu,
        token_mask=fields.booleans(fields.field(record.fields, "token_mask"), "token_mask", length),
        reward=float(reward),
        group=prompt if group is None else group,
    )


def logged_problems(row: Logged, *, vocab_size: int | None = None) -> list[str]:
    """What is wrong with the numbers, each with its first token's index."""
    found = []
    outside = (row.tokens < 0) | (row.tokens >= (np.inf if vocab_size is None else vocab_size))
    rules = (
        (outside, "the id is outside the vocabulary"),
        (row.token_mask & np.isnan(row.log_mu), "no μ: log_mu is missing (null or NaN)"),
        (row.token_mask & (row.log_mu == -np.inf), "μ gives the token probability 0, so it was not drawn from this μ"),
        (row.token_mask & (row.log_mu > MASS_TOLERANCE), "log_mu is above 0: is it a ratio or a probability?"),
    )
    for bad, text in rules:
        if bad.any():
            found.append(f"token {int(np.argmax(bad))}: {text}")
    if not row.token_mask.any():
        found.append("no token to weigh: the completion is empty or masked")
    if not np.isfinite(row.reward):
        found.append(f"reward {row.reward} is not finite")
    return found


def _prompt(ids: Any, text: Any) -> str | tuple[int, ...]:
    if ids is not None:
        if len(found := fields.whole_numbers(ids, "prompt_tokens")):
            return tuple(found.tolist())
        raise RowProblems(["prompt_tokens is empty"])
    if not isinstance(text, str) or not text:
        raise RowProblems(["no prompt: give prompt_tokens (ids) or prompt (text, encoded as the config says)"])
    return text
