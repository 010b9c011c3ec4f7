"""Rows as padded ``TokenStats``: few shapes, a bounded number of tokens at a time, whatever the size of the file."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trustax.ops.support import sampled_support
from trustax.rollouts.importers.row import Row
from trustax.types import Support, TokenStats

MOST_ROWS = 64
MOST_TOKENS = 2**15
"""A batch holds at most so many rows and, unless one row alone is longer, so many tokens with padding."""

_TAILS = ("tail_log_mu", "tail_log_pi", "tail_log_sum_sq_pi")


class Batch(NamedTuple):
    """Statistics ``[B, T]`` in float64 and the rows they came from; rows of padding stand at the end."""

    stats: TokenStats
    rows: list[Row]


def batches(
    rows: Iterable[Row], *, vocab_size: int | None = None, most_rows: int = MOST_ROWS, most_tokens: int = MOST_TOKENS
) -> Iterator[Batch]:
    """Group rows of similar length; each width (32, 128, 512, …) has one number of rows, so it compiles once."""
    waiting: dict[int, list[Row]] = collections.defaultdict(list)
    for row in rows:
        width = _width(len(row.tokens))
        waiting[width].append(row)
        if len(waiting[width]) == _height(width, most_rows, most_tokens):
            yield Batch(_stats(waiting[width], (len(waiting[width]), width), vocab_size), waiting.pop(width))
    for width in sorted(waiting):
        shape = (_height(width, most_rows, most_tokens), width)
        yield Batch(_stats(waiting[width], shape, vocab_size), waiting[width])


def _width(length: int) -> int:
    width = 32
    while width < length:
        width *= 4
    return width


def _height(width: int, most_rows: int, most_tokens: int) -> int:
    return max(1, min(most_rows, most_tokens // width))


def _stats(rows: list[Row], shape: tuple[int, int], vocab_size: int | None) -> TokenStats:
    """Float64 throughout: without stored tails, masses come from 1 − Σ, which float32 would decide by its rounding."""
    first = rows[0]
    with jax.enable_x64(True):
        optional = {name: _padded([row.optional[name] for row in rows], shape) for name in first.optional}
        tails = {name: optional.pop(name) for name in _TAILS if name in optional}
        if "policy_staleness" in optional:
            optional["policy_staleness"] = jnp.nan_to_num(optional["policy_staleness"]).astype(jnp.int32)
        return TokenStats(
            log_pi=_padded([row.log_pi for row in rows], shape),
            log_mu=_padded([row.log_mu for row in rows], shape),
            advantages=_padded([row.advantages for row in rows], shape),
            token_mask=_padded([row.token_mask for row in rows], shape, False),
            support=_support(rows, shape, tails) if first.top is not None else None,
            vocab_size=vocab_size,
            **optional,
        )


def _support(rows: list[Row], shape: tuple[int, int], tails: dict[str, jax.Array]) -> Support:
    tops = [row.top for row in rows if row.top is not None]
    top_k = (*shape, max(1, *(top.ids.shape[1] for top in tops)))
    log_pi = _padded([row.log_pi for row in rows], shape)
    support = sampled_support(
        _padded([top.ids for top in tops], top_k, -1),
        _padded([top.log_mu for top in tops], top_k),
        _padded([row.tokens for row in rows], shape, 0),
        _padded([row.log_mu for row in rows], shape),
        tail_log_mu=tails.get("tail_log_mu"),
    )
    slots = jnp.arange(top_k[-1] + 1, dtype=jnp.int32)[None, None, :] == support.sampled_slot[..., None]
    listed = jnp.concatenate([_padded([top.log_pi for top in tops], top_k), log_pi[..., None]], axis=-1)
    return dataclasses.replace(
        support,
        log_pi=jnp.where(slots, log_pi[..., None], listed),
        tail_log_pi=tails.get("tail_log_pi"),
        tail_log_sum_sq_pi=tails.get("tail_log_sum_sq_pi"),
    )


def _padded(parts: list[np.ndarray], shape: tuple[int, ...], fill: float = np.nan) -> jax.Array:
    """One array of ``shape`` with part i in the corner of row i; padding is NaN, an id that no token has, or false."""
    whole = np.full(shape, fill, parts[0].dtype)
    for row, part in enumerate(parts):
        whole[(row, *(slice(size) for size in part.shape))] = part
    return jnp.asarray(whole)
