"""The top-K of both policies, token by token, in one canonical form: the same numbers whatever layout they came in."""

import math
from typing import NamedTuple

import numpy as np

from trustax.ops.support import MASS_TOLERANCE
from trustax.rollouts.importers.fields import RowProblems
from trustax.rollouts.importers.row import Top

SAME_TOKEN_TOLERANCE = 1e-3
"""How far two log-probs of one token may differ, in nats, or relatively beyond 1 nat: what rounding for print does."""


class Entry(NamedTuple):
    """A token id with a log-prob; NaN is one that the file lacks."""

    token_id: int
    log_prob: float


class Sampled(NamedTuple):
    """The sampled token, by its own fields."""

    token_id: int
    log_mu: float
    log_pi: float


def joined(
    behavior: list[list[Entry]], policy: list[list[Entry]], sampled: list[Sampled], trainable: np.ndarray
) -> Top:
    """Both policies' top-K, sorted by μ; tokens that are not trainable have none.

    The sampled token is left out where it is the least probable one: an engine that appends or prepends it to its
    top-K then says the same as one that doesn't. An id that the trainer lacks has NaN.
    """
    problems: list[str] = []
    rows: list[list[tuple[int, float, float]]] = []
    for t, (mu_entries, pi_entries, token) in enumerate(zip(behavior, policy, sampled, strict=True)):
        rows.append(_ranked(mu_entries, pi_entries, token, f"token {t}: ", problems) if trainable[t] else [])
    if problems:
        raise RowProblems(problems)
    shape = (len(rows), max((len(entries) for entries in rows), default=0))
    top = Top(np.full(shape, -1, np.int64), np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, bool))
    for t, entries in enumerate(rows):
        for k, (token_id, log_mu, log_pi) in enumerate(entries):
            top.ids[t, k], top.log_mu[t, k], top.log_pi[t, k], top.present[t, k] = token_id, log_mu, log_pi, True
    return top


def _ranked(
    mu_entries: list[Entry], pi_entries: list[Entry], sampled: Sampled, place: str, problems: list[str]
) -> list[tuple[int, float, float]]:
    """(id, log μ, log π) from the most probable one; NaN stands last."""
    if not mu_entries:
        problems.append(f"{place}the top-K is missing")
        return []
    mu = _by_id(mu_entries, sampled.token_id, f"{place}the top-K", problems)
    pi = _by_id(pi_entries, sampled.token_id, f"{place}the trainer's top-K", problems)
    for name, found, own in (("log_mu", mu, sampled.log_mu), ("log_pi", pi, sampled.log_pi)):
        inside = found.get(sampled.token_id, own)
        if abs(inside - own) > SAME_TOKEN_TOLERANCE * max(1.0, abs(own)):
            problems.append(
                f"{place}{name} of the sampled token is {own:.6g}, but {inside:.6g} in the top-K: "
                "is one of the raw and the other of the processed distribution?"
            )
    ranked = sorted(mu.items(), key=lambda item: (math.isnan(item[1]), -item[1], item[0]))
    if ranked[-1][0] == sampled.token_id:
        ranked.pop()
    return [(token_id, log_mu, pi.get(token_id, math.nan)) for token_id, log_mu in ranked]


def _by_id(entries: list[Entry], sampled: int, name: str, problems: list[str]) -> dict[int, float]:
    """Each id once; one that stands twice is a problem, unless it is the sampled one with the same log-prob."""
    found: dict[int, float] = {}
    for token_id, log_prob in entries:
        if token_id not in found:
            found[token_id] = log_prob
        elif token_id != sampled or not abs(found[token_id] - log_prob) <= MASS_TOLERANCE:
            problems.append(f"{name} holds id {token_id} twice")
    return found
