"""An off-policy estimate on a terminal and as JSON."""

import dataclasses
import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trustax.analysis.records import strict
from trustax.ope.completions import Report


def off_policy_json(report: Report) -> str:
    """Strict JSON: infinities by name."""
    return json.dumps(strict(dataclasses.asdict(report)), ensure_ascii=False, indent=2, allow_nan=False)


def print_off_policy(console: Console, report: Report) -> None:
    """Print the estimate with its interval, what it rests on, and the sweep over τ."""
    share = report.effective / report.rollouts
    plain = f"plain importance sampling: {report.importance:.4g}, self-normalised {report.self_normalized:.4g}"
    truncated = f"{report.truncated:.1%} of the tokens truncated at τ = {report.tau:.4g}"
    lines = [
        f"estimate: {report.estimate:.4g}, {report.level:.0%} interval {report.low:.4g} to {report.high:.4g}",
        f"{report.rollouts} completions of {report.prompts} prompts, mean reward {report.behavior:.4g}",
        f"effective sample size: {report.effective:.1f} ({share:.1%}); {truncated}",
        f"normalised step by step: {report.normalized:.4g}; {plain}",
    ]
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("τ", "estimate", "low", "high", "normalised", "truncated"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in report.sweep:
        numbers = (row.tau, row.estimate, row.low, row.high, row.normalized)
        table.add_row(*(f"{number:.4g}" for number in numbers), f"{row.truncated:.1%}")
    console.print(table)
