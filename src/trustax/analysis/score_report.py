"""The score of a file on a terminal: one line a recipe, and tokens with every recipe's verdict."""

import collections
from collections.abc import Mapping
from inspect import signature

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trustax.analysis.score_file import FileScore
from trustax.analysis.score_recipes import HINTS
from trustax.analysis.score_tokens import TokenScore
from trustax.analysis.tokens import visible
from trustax.objectives import RECIPES

COLUMNS = (
    ("masked", "mask/fraction", ".1%"),
    ("A>0", "mask/fraction_positive", ".1%"),
    ("A<0", "mask/fraction_negative", ".1%"),
    ("D mean", "divergence/mean", ".3g"),
    ("p95", "divergence/p95", ".3g"),
    ("max", "divergence/max", ".3g"),
    ("≠ratio", "direction/disagreement", ".1%"),
    ("w mean", "weight/mean", ".3g"),
    ("max", "weight/max", ".3g"),
    ("ESS", "weight/ess", ".1%"),
)
SUSPICIOUS = 0.1
"""A mean |log π − log μ| beyond this, in nats, is more often two conventions than two policies."""


def print_score(console: Console, score: FileScore) -> None:
    """Print what was read, the table of recipes, what others lack, and the chosen tokens."""
    for line in _head(score):
        console.print(Text(line), soft_wrap=True)
    console.print(_table(score))
    for line in _foot(score):
        console.print(Text(line), soft_wrap=True)
    for token in score.interesting:
        console.print(_token(token), soft_wrap=True)


def _head(score: FileScore) -> list[str]:
    read = score.reading
    lines = [f"{score.file}: {score.rows} rows, {read['tokens']} tokens to train on, layout {score.layout}"]
    if score.skipped:
        lines.append(f"left out: {score.skipped} bad rows, such as {visible('; '.join(score.problems))}")
    if score.statistics:
        lines.append(f"beside log μ, log π and A: {', '.join(score.statistics)}")
    if score.ignored:
        lines.append(f"fields not read: {visible(', '.join(score.ignored))}")
    if read["tokens"]:
        lines.append(
            f"A>0 {read['advantage/positive']:.1%}, A<0 {read['advantage/negative']:.1%}, "
            f"A=0 {read['advantage/zero']:.1%} of the tokens; log π − log μ: mean {read['log_ratio/mean']:+.3g}, "
            f"mean size {read['log_ratio/mean_abs']:.3g}, largest {read['log_ratio/max_abs']:.3g}"
        )
        if read["log_ratio/mean_abs"] > SUSPICIOUS:
            lines.append(
                "that is far apart: are both log-probs of one distribution? An engine may return raw ones, or ones "
                "after temperature and top-k/top-p"
            )
    return lines


def _table(score: FileScore) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("recipe", no_wrap=True)
    for heading, _, _ in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, found in score.recipes.items():
        mark = "*" if name in score.batch_statistics else ""
        cells = [format(found[key], form) if key in found else "–" for _, key, form in COLUMNS]
        table.add_row(Text(name + mark), *cells)
    return table


def _foot(score: FileScore) -> list[str]:
    lines = [
        "masked, A>0, A<0: share of such tokens that a recipe drops. D: its own statistic. ≠ratio: share of far tokens",
        "on whose direction it differs from the ratio. w, ESS: of kept tokens; what a gate weighs down is not masked.",
    ]
    if score.batch_statistics:
        lines.append(f"* looks at a whole batch: here at {score.batches} of rows of like length, not at the trainer's")
    by_need: Mapping[str, list[str]] = collections.defaultdict(list)
    for name, needs in score.lacking.items():
        for need in needs:
            by_need[need].append(name)
    lines += [f"lacks {HINTS[need]}: {', '.join(names)}" for need, names in by_need.items()]
    only_the_tail = [name for name, needs in score.lacking.items() if needs == ["sum_sq_pi"]]
    if any("tail" in signature(RECIPES[name]).parameters for name in only_the_tail):
        lines.append("without sum_sq_pi, another tail can be asked for, such as --set pdm_topk_kl.tail=aggregated")
    if score.interesting:
        lines.append(f"\ntokens on which recipes differ most, then the farthest ({score.reference})")
    return lines


def _token(token: TokenScore) -> Text:
    shown = f"{token.token_id}" if token.text is None else f"{token.token_id} {visible(repr(token.text))}"
    group = "" if token.group is None else f", group {visible(str(token.group))}"
    direction = "" if token.direction is None else f"  G {token.direction:+.3g}"
    text = Text(f"{token.place}, token {token.token}{group}: ")
    text.append(shown, style="bold")
    text.append(
        f"\n  A {token.advantage:+.3g}  log μ {token.log_mu:.4g}  log π {token.log_pi:.4g}  ratio {token.ratio:.3g}  "
        f"D {token.divergence:.3g}{direction}"
    )
    names = collections.defaultdict(list)
    for name, verdict in token.recipes.items():
        names[verdict.kept, verdict.reason].append(name)
    for kept, reason in sorted(names):
        text.append(f"\n  {'keep' if kept else 'drop'}", style="green" if kept else "red")
        text.append(f" ({reason}): {', '.join(names[kept, reason])}")
    return text
