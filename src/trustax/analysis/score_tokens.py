"""The tokens that tell recipes apart, and why each recipe keeps or drops them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trustax.analysis.score_totals import Decision
from trustax.rollouts.importers import Row


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One recipe on one token. ``divergence`` is the recipe's own statistic."""

    kept: bool
    reason: str
    divergence: float


@dataclasses.dataclass(frozen=True)
class TokenScore:
    """One token: where it stands, its numbers, and every recipe's verdict. ``direction`` is G of the reference."""

    place: str
    token: int
    token_id: int
    text: str | None
    group: Any
    advantage: float
    log_mu: float
    log_pi: float
    ratio: float
    divergence: float
    direction: float | None
    recipes: dict[str, Verdict]

    @property
    def split(self) -> int:
        """How many masking recipes are in the minority about it."""
        kept = [verdict.kept for verdict in self.recipes.values() if verdict.reason != NO_MASK]
        return min(sum(kept), len(kept) - sum(kept))


NO_MASK = "no mask"


def reason(keep: bool, far: bool, outward: bool, *, masked: bool) -> str:
    """Why a token is kept or dropped; far and outward are those of the mask's first part."""
    if not masked:
        return NO_MASK
    if keep:
        return "near" if not far else "inward" if not outward else "exempt"
    return "outward & far" if far and outward else "another rule"


def most_interesting(
    best: Sequence[TokenScore],
    rows: Sequence[Row],
    reference: Decision,
    decisions: Mapping[str, Decision],
    masking: frozenset[str],
    count: int,
) -> list[TokenScore]:
    """The ``count`` tokens of ``best`` and of a batch on which recipes are most divided, then the farthest ones."""
    if count == 0:
        return []
    kept = sum((decisions[name].keep.astype(int) for name in masking), np.zeros(reference.valid.shape, int))
    split = np.minimum(kept, len(masking) - kept)
    where = np.argwhere(reference.valid)
    order = np.lexsort((-reference.divergence[reference.valid], -split[reference.valid]))
    chosen = [_token(rows[b], b, t, reference, decisions, masking) for b, t in where[order[:count]].tolist()]
    ranked = sorted([*best, *chosen], key=lambda token: (-token.split, -token.divergence))
    return ranked[:count]


def _token(
    row: Row, b: int, t: int, reference: Decision, decisions: Mapping[str, Decision], masking: frozenset[str]
) -> TokenScore:
    log_mu, log_pi = float(row.log_mu[t]), float(row.log_pi[t])
    with np.errstate(over="ignore"):
        ratio = float(np.exp(log_pi - log_mu))
    return TokenScore(
        place=row.place,
        token=t,
        token_id=int(row.tokens[t]),
        text=None if row.texts is None else row.texts[t],
        group=row.group,
        advantage=float(row.advantages[t]),
        log_mu=log_mu,
        log_pi=log_pi,
        ratio=ratio,
        divergence=float(reference.divergence[b, t]),
        direction=None if row.top is None else float(reference.direction[b, t]),
        recipes={name: _verdict(found, b, t, masked=name in masking) for name, found in decisions.items()},
    )


def _verdict(found: Decision, b: int, t: int, *, masked: bool) -> Verdict:
    keep, far, outward = bool(found.keep[b, t]), bool(found.far[b, t]), bool(found.outward[b, t])
    return Verdict(keep, reason(keep, far, outward, masked=masked), float(found.divergence[b, t]))
