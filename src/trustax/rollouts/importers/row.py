"""One completion, as arrays on the host, and the numbers that must be right before anything is computed from it."""

import dataclasses
from typing import Any

import numpy as np

from trustax.ops.support import MASS_TOLERANCE

OPTIONAL = (
    "log_anchor",
    "log_ref",
    "entropy",
    "sum_sq_pi",
    "divergence_rate",
    "policy_staleness",
    "tail_log_mu",
    "tail_log_pi",
    "tail_log_sum_sq_pi",
)
"""Statistics that a file may hold beside the required ones, one number a token, by our names."""


@dataclasses.dataclass(frozen=True, eq=False)
class Top:
    """The engine's top-K of every token, from the most probable one, all ``[T, K]``; ``present`` is false on padding.

    NaN in a present entry is a value that the file lacks. The sampled token is among them, or not, as the ranks say.
    """

    ids: np.ndarray
    log_mu: np.ndarray
    log_pi: np.ndarray
    present: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One completion; ``T`` counts its tokens. Arrays are float64 and ``[T]``; NaN is a value that the file lacks."""

    place: str
    number: int
    tokens: np.ndarray
    log_mu: np.ndarray
    log_pi: np.ndarray
    advantages: np.ndarray
    token_mask: np.ndarray
    top: Top | None
    optional: dict[str, np.ndarray]
    texts: list[str | None] | None = None
    group: Any = None

    @property
    def statistics(self) -> frozenset[str]:
        """What this row holds beyond the required fields."""
        return frozenset(self.optional) | (frozenset({"the top-K of both policies"}) if self.top else frozenset())


def value_problems(row: Row, *, vocab_size: int | None = None) -> list[str]:
    """What is wrong with the numbers at trainable tokens, each with its first token's index and how many there are."""
    found: list[str] = []

    def report(bad: np.ndarray, name: str, rule: str, values: np.ndarray | None = None) -> None:
        bad = bad & row.token_mask
        if bad.any():
            first = int(np.argmax(bad))
            value = "" if values is None else f"{values[first]:.6g} "
            more = f" ({int(bad.sum())} such tokens)" if bad.sum() > 1 else ""
            found.append(f"token {first}: {name} {value}{rule}{more}")

    outside = row.tokens < 0 if vocab_size is None else (row.tokens < 0) | (row.tokens >= vocab_size)
    report(outside, "id", "is outside the vocabulary", row.tokens.astype(float))
    fields = {"log_mu": row.log_mu, "log_pi": row.log_pi, "advantage": row.advantages, **row.optional}
    for name, values in fields.items():
        report(np.isnan(values), name, "is missing (null or NaN)")
        if name.startswith(("log_", "tail_log_")):
            report(values > MASS_TOLERANCE, name, "is above 0: is it a ratio or a probability?", values)
        if not name.startswith("tail_log_"):  # log 0 is what an empty tail has
            report(np.isinf(values), name, "is not finite", values)
    for name in ("entropy", "sum_sq_pi", "policy_staleness"):
        if name in row.optional:
            report(row.optional[name] < 0, name, "is below 0", row.optional[name])
    if "sum_sq_pi" in row.optional:
        report(row.optional["sum_sq_pi"] > 1 + MASS_TOLERANCE, "sum_sq_pi", "is above 1", row.optional["sum_sq_pi"])
    if row.top is not None:
        _top_problems(row, row.top, vocab_size, report)
    return found


@np.errstate(over="ignore")
def _top_problems(row: Row, top: Top, vocab_size: int | None, report: Any) -> None:
    outside = top.ids < 0 if vocab_size is None else (top.ids < 0) | (top.ids >= vocab_size)
    report((top.present & outside).any(-1), "top-K", "holds an id outside the vocabulary")
    sampled = top.present & (top.ids == row.tokens[:, None])
    read = top.present & (top.log_mu != -np.inf)  # a token that μ cannot sample has no slot
    for name, values, of_sampled in (("log_mu", top.log_mu, row.log_mu), ("log_pi", top.log_pi, row.log_pi)):
        _report_missing(row, top, (read & ~sampled & np.isnan(values)), name, report)
        report((read & (values > MASS_TOLERANCE)).any(-1), f"top-K {name}", "is above 0")
        others = np.where(read & ~sampled & ~np.isnan(values), values, -np.inf)
        mass = np.exp(others).sum(-1) + np.exp(of_sampled)
        report(mass > 1 + MASS_TOLERANCE, f"top-K mass of {name}", "is above 1", mass)


def _report_missing(row: Row, top: Top, missing: np.ndarray, name: str, report: Any) -> None:
    tokens = missing.any(-1) & row.token_mask
    if tokens.any():
        first = int(np.argmax(tokens))
        token_id = top.ids[first, np.argmax(missing[first])]
        report(missing.any(-1), f"top-K {name}", f"of id {token_id} is missing")
