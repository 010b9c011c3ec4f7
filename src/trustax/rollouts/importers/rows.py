"""From a record in a known layout to a ``Row``: the sampler's part, the trainer's part, the advantage, the mask."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trustax.rollouts.importers import fields, layouts
from trustax.rollouts.importers.fields import RowProblems
from trustax.rollouts.importers.layouts import LAYOUTS, Found
from trustax.rollouts.importers.records import Record
from trustax.rollouts.importers.row import OPTIONAL, Row, Top
from trustax.rollouts.importers.top_k import Entry, Sampled, joined

_COMMON = ("log_pi", "top_k_log_pi", "advantages", "advantage", "token_mask", "mask", "group_id", *OPTIONAL)


def known_fields(layout: str) -> frozenset[str]:
    """Every field that is read in a layout."""
    return frozenset({*_COMMON, *LAYOUTS[layout].marks, *LAYOUTS[layout].known})


def read_row(record: Record, layout: str) -> Row:
    """One completion. Raises ``RowProblems`` if it does not hold what its layout says, one entry a token."""
    assert record.fields is not None
    found = LAYOUTS[layout].read(record.fields)
    length = len(found.tokens)
    log_pi = fields.numbers(fields.required(record.fields, "log_pi"), "log_pi", length)
    token_mask = fields.booleans(fields.field(record.fields, "token_mask"), "token_mask", length)
    return Row(
        place=record.place,
        number=record.number,
        tokens=found.tokens,
        log_mu=found.log_mu,
        log_pi=log_pi,
        advantages=fields.one_or_each(fields.required(record.fields, "advantages"), "advantages", length),
        token_mask=token_mask,
        top=_top(record.fields, found, log_pi, token_mask, layout),
        optional={
            name: fields.numbers(value, name, length)
            for name in OPTIONAL
            if (value := fields.field(record.fields, name)) is not None
        },
        texts=found.texts,
        group=fields.field(record.fields, "group_id"),
    )


def _top(
    record: Mapping[str, Any], found: Found, log_pi: np.ndarray, token_mask: np.ndarray, layout: str
) -> Top | None:
    """The top-K of both policies; None where either is not recorded."""
    listed = fields.field(record, "top_k_log_pi")
    if found.top is None or listed is None:
        return None
    if not isinstance(listed, list):
        raise RowProblems(["top_k_log_pi must be a list, one entry a token"])
    fields.same_length(len(listed), len(found.tokens), "top_k_log_pi")
    policy = [_trainer_entries(item, t, found.top[t], layout) for t, item in enumerate(listed)]
    sampled = [Sampled(*of_token) for of_token in zip(found.tokens.tolist(), found.log_mu, log_pi, strict=True)]
    return joined(found.top, policy, sampled, token_mask)


def _trainer_entries(item: Any, token: int, behavior: list[Entry], layout: str) -> list[Entry]:
    """The trainer's log-probs with their ids: by id, as ``[logprob, token_id]``, or in the order of the top-K ids."""
    name = "top_k_log_pi"
    if item is None or isinstance(item, Mapping):
        return layouts.by_id(item, token, name)
    if isinstance(item, list) and any(isinstance(entry, list) for entry in item):
        return layouts.triples(item, token, name)
    values = fields.numbers(item, f"token {token}: {name}")
    if layout == "vllm":
        raise RowProblems([f"token {token}: {name} has no ids, and a mapping no order: write {{id: log-prob}}"])
    if len(values) != len(behavior):
        raise RowProblems([f"token {token}: {name} has {len(values)} entries for {len(behavior)} top-K ids"])
    return [Entry(entry.token_id, float(value)) for entry, value in zip(behavior, values, strict=True)]
