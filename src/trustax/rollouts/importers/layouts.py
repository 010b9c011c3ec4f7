"""Where each stack puts the ids, the sampler's log-probs and the top-K; the trainer's fields are the same for all.

A layout only finds the values; what they mean and whether they can be right is decided once, for all of them.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trustax.errors import UserError
from trustax.rollouts.importers import fields
from trustax.rollouts.importers.fields import RowProblems
from trustax.rollouts.importers.top_k import Entry


@dataclasses.dataclass(frozen=True)
class Found:
    """What a layout finds: ids, log μ of the sampled tokens, and the top-K's entries of every token, if recorded."""

    tokens: np.ndarray
    log_mu: np.ndarray
    top: list[list[Entry]] | None
    texts: list[str | None] | None


def _arrays(record: Mapping[str, Any]) -> Found:
    tokens = fields.whole_numbers(fields.required(record, "tokens"), "tokens")
    log_mu = fields.numbers(fields.required(record, "log_mu"), "log_mu", len(tokens))
    texts = fields.field(record, "token_texts")
    if texts is not None:
        fields.same_length(len(texts), len(tokens), "token_texts")
    ids, values = fields.field(record, "top_k_ids"), fields.field(record, "top_k_log_mu")
    if ids is None and values is None:
        return Found(tokens, log_mu, None, texts)
    if ids is None or values is None:
        raise RowProblems(["top_k_ids and top_k_log_mu belong together: one of them is not there"])
    for name, lists in (("top_k_ids", ids), ("top_k_log_mu", values)):
        if not isinstance(lists, list):
            raise RowProblems([f"{name} must be a list of lists, one a token"])
        fields.same_length(len(lists), len(tokens), name)
    return Found(tokens, log_mu, [_zipped(t, *pair) for t, pair in enumerate(zip(ids, values, strict=True))], texts)


def _zipped(token: int, ids: Any, values: Any) -> list[Entry]:
    if ids is None and values is None:
        return []
    if not isinstance(ids, list) or not isinstance(values, list) or len(ids) != len(values):
        raise RowProblems([f"token {token}: top_k_ids and top_k_log_mu are not lists of one length"])
    return [
        Entry(fields.whole_number(i, f"token {token}: top_k_ids"), _log_prob(value, token))
        for i, value in zip(ids, values, strict=True)
    ]


def _vllm(record: Mapping[str, Any]) -> Found:
    tokens = fields.whole_numbers(fields.required(record, "token_ids"), "token_ids")
    listed = fields.required(record, "logprobs")
    if not isinstance(listed, list):
        raise RowProblems(["logprobs must be a list, one mapping from token id to log-prob a token"])
    fields.same_length(len(listed), len(tokens), "logprobs")
    log_mu, top = np.full(len(tokens), np.nan), []
    texts: list[str | None] = []
    for t, (token, entries) in enumerate(zip(tokens.tolist(), listed, strict=True)):
        top.append(by_id(entries, t, "logprobs"))
        own = [entry.log_prob for entry in top[-1] if entry.token_id == token]
        log_mu[t] = own[0] if own else np.nan
        texts.append(_decoded(entries, token))
    return Found(tokens, log_mu, top, texts)


def by_id(entries: Any, token: int, name: str) -> list[Entry]:
    """The entries of a mapping id → log-prob, id → {logprob, …}; null has none."""
    if entries is None:
        return []
    if not isinstance(entries, Mapping):
        raise RowProblems([f"token {token}: {name} must map token ids to log-probs, got {type(entries).__name__}"])
    return [
        Entry(
            fields.whole_number(key, f"token {token}: {name}"),
            _log_prob(value.get("logprob") if isinstance(value, Mapping) else value, token),
        )
        for key, value in entries.items()
    ]


def _decoded(entries: Any, token: int) -> str | None:
    for key, value in (entries if isinstance(entries, Mapping) else {}).items():
        if str(key) == str(token) and isinstance(value, Mapping):
            return value.get("decoded_token")
    return None


def _sglang(record: Mapping[str, Any]) -> Found:
    record = with_meta_info(record)
    own = fields.required(record, "output_token_logprobs")
    if not isinstance(own, list):
        raise RowProblems(["output_token_logprobs must be a list of [logprob, token_id, text]"])
    entries = [triple(item, t, "output_token_logprobs") for t, item in enumerate(own)]
    tokens = np.array([entry.token_id for entry in entries], np.int64)
    ids = fields.field(record, "output_ids")
    if ids is not None:
        fields.same_length(len(tokens), len(ids), "output_token_logprobs")
        differ = fields.whole_numbers(ids, "output_ids") != tokens
        if differ.any():
            raise RowProblems([f"token {int(np.argmax(differ))}: output_ids and output_token_logprobs differ"])
    texts = [item[2] if len(item) > 2 else None for item in own]
    listed = fields.field(record, "output_top_logprobs")
    top = None
    if listed is not None:
        fields.same_length(len(listed), len(tokens), "output_top_logprobs")
        top = [triples(items, t, "output_top_logprobs") for t, items in enumerate(listed)]
    return Found(tokens, np.array([entry.log_prob for entry in entries], np.float64), top, texts)


def with_meta_info(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a record and of its ``meta_info``, where SGLang puts the log-probs."""
    inner = record.get("meta_info")
    return {**inner, **record} if isinstance(inner, Mapping) else record


def triples(items: Any, token: int, name: str) -> list[Entry]:
    """The entries of a list of ``[logprob, token_id, text]``; null has none."""
    if items is None:
        return []
    if not isinstance(items, list):
        raise RowProblems([f"token {token}: {name} must be a list of [logprob, token_id, text]"])
    return [triple(item, token, name) for item in items]


def triple(item: Any, token: int, name: str) -> Entry:
    """One ``[logprob, token_id, text]``; the text may be left out."""
    if not isinstance(item, list | tuple) or not 2 <= len(item) <= 3:
        raise RowProblems([f"token {token}: {name} must be [logprob, token_id, text]"])
    return Entry(fields.whole_number(item[1], f"token {token}: {name}"), _log_prob(item[0], token))


def _log_prob(value: Any, token: int) -> float:
    if value is None:
        return float("nan")
    if type(value) not in (int, float):
        raise RowProblems([f"token {token}: a log-prob of the top-K must be a number, got {value!r}"])
    return float(value)


@dataclasses.dataclass(frozen=True)
class Layout:
    """How one stack writes a completion; ``marks`` are the fields that tell it from the others."""

    marks: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Found]
    known: tuple[str, ...]


LAYOUTS: dict[str, Layout] = {
    "arrays": Layout(("tokens", "log_mu"), _arrays, ("token_texts", "top_k_ids", "top_k_log_mu")),
    "vllm": Layout(("token_ids", "logprobs"), _vllm, ()),
    "sglang": Layout(("output_token_logprobs",), _sglang, ("output_ids", "output_top_logprobs", "meta_info")),
}


def detect(record: Mapping[str, Any], place: str) -> str:
    """The one layout whose fields a record has."""
    present = {name for name, value in with_meta_info(record).items() if value is not None}
    fitting = [name for name, layout in LAYOUTS.items() if present >= set(layout.marks)]
    if len(fitting) == 1:
        return fitting[0]
    marks = {name: " and ".join(layout.marks) for name, layout in LAYOUTS.items()}
    if fitting:
        both = " and ".join(f"{name} ({marks[name]})" for name in fitting)
        raise UserError(f"{place}: the fields fit the layouts {both}: choose one with --layout")
    needed = "; ".join(f"{name} has {text}" for name, text in marks.items())
    raise UserError(f"{place}: no known layout: {needed}; found {', '.join(sorted(present)) or 'no field'}")
