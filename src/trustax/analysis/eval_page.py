"""An evaluation as one HTML page that needs nothing but itself, and as a table for a terminal.

Everything that a model or a file wrote is escaped; the page has no script.
"""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from trustax.analysis.tokens import visible

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; } td, th { border-bottom: 1px solid #ddd; padding: .2em .8em; text-align: right; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3em 0; } summary { cursor: pointer; }
.correct { color: #176d2c; } .wrong, .unparsable { color: #a12020; } .timeout, .error { color: #8a5a00; }
.masked { outline: 2px solid #d00000; outline-offset: -1px; } .legend { color: #666; }
"""
_LEGEND = (
    "Ground: log μ, from white (certain) to blue (e⁻⁵ and less). Where a divergence was recorded, its ground is from "
    "white to red (the threshold and beyond). A red frame: masked. Point at a token for its numbers."
)
# The log-prob at which a token's ground is full, in nats.
_FULL_SURPRISE = 5.0


def print_estimates(console: Console, estimates: Mapping[str, Sequence[float]], *, greedy: float) -> None:
    """The table of an evaluation: each estimate with its interval."""
    table = Table()
    for heading in ("", "value", "interval"):
        table.add_column(heading, justify="right")
    for name, (value, low, high) in estimates.items():
        table.add_row(name, f"{value:.1%}", f"{low:.1%} … {high:.1%}")
    table.add_row("greedy", f"{greedy:.1%}", "")
    console.print(table)


def eval_page(
    report: Mapping[str, Any], *, trained: Sequence[Mapping[str, Any]] = (), delta: float | None = None
) -> str:
    """The page of a report (``eval.json``). ``trained`` are records of a run's last step, with divergence and fate."""
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{_text(report['name'])}</title>"]
    parts.append(f"<style>{_STYLE}</style><h1>{_text(report['name'])}</h1>")
    parts.append(_table(report))
    parts.append(f"<p class=legend>{_LEGEND}</p>")
    for number, prompt in enumerate(report["prompts"]):
        share = f"{prompt['correct']} of {len(prompt['samples'])}"
        parts.append(
            f"<details{' open' if number == 0 else ''}><summary><b>{share}</b> "
            f"{_text(prompt['prompt'][:200])}</summary>"
        )
        parts.append(f"<pre>{_text(prompt['prompt'])}</pre><p>Right answer: {_text(prompt['answer'])}</p>")
        parts += [_sample(sample, delta) for sample in prompt["samples"]]
        parts.append("</details>")
    if trained:
        parts.append("<h2>The last training step</h2>")
        for record in trained:
            parts.append(f"<pre>{_text(record['prompt'])}</pre>{_sample(record, delta)}")
    return "\n".join(parts) + "\n</html>\n"


def _table(report: Mapping[str, Any]) -> str:
    rows = [
        f"<tr><th>{_text(name)}<td>{value:.1%}<td>{low:.1%} … {high:.1%}"
        for name, (value, low, high) in report["estimates"].items()
    ]
    rows.append(f"<tr><th>greedy<td>{report['greedy']:.1%}<td>")
    return "<table><tr><th><th>value<th>interval" + "".join(rows) + "</table>"


def _sample(sample: Mapping[str, Any], delta: float | None) -> str:
    tokens = "".join(_token(sample, place, delta) for place in range(len(sample["tokens"])))
    verdict = _text(sample["verdict"])
    return f'<p class="{verdict}">{verdict}, reward {float(sample["reward"]):g}</p><pre>{tokens}</pre>'


def _token(sample: Mapping[str, Any], place: int, delta: float | None) -> str:
    told, style = [], ""
    if "log_mu" in sample and _known(sample["log_mu"], place) is not None:
        log_mu = sample["log_mu"][place]
        told.append(f"log μ {log_mu:.3f}")
        fade = round(255 - 120 * min(-log_mu / _FULL_SURPRISE, 1.0))
        style = f"background:rgb({fade},{fade},255)"
    if "divergence" in sample and _known(sample["divergence"], place) is not None:
        divergence = sample["divergence"][place]
        told.append(f"divergence {divergence:.4f}")
        if delta is not None and 0 < delta < math.inf:
            fade = round(255 - 150 * min(max(divergence / delta, 0.0), 1.0))
            style = f"background:rgb(255,{fade},{fade})"
    masked = "kept" in sample and place < len(sample["kept"]) and not sample["kept"][place]
    told += ["masked"] if masked else []
    mark = " class=masked" if masked else ""
    return (
        f'<span{mark} style="{style}" title="{_text(", ".join(told))}">{_text(visible(sample["tokens"][place]))}</span>'
    )


def _known(numbers: Sequence[float | None], place: int) -> float | None:
    return numbers[place] if place < len(numbers) else None


def _text(text: Any) -> str:
    return html.escape(str(text), quote=True)
