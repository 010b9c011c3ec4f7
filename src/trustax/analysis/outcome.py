"""What a run changed, for the person who started it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trustax.analysis.tokens import colour_masked, mark_masked, visible

_VERDICT_STYLES = {"correct": "green", "wrong": "red"}


def print_outcome(
    console: Console, summary: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], *, count: int = 3
) -> None:
    """Print accuracy before and after, the same held-out prompts before and after, and some tokens with their mask."""
    console.print(_accuracy(summary))
    evaluations = [record for record in samples if record["kind"] == "eval"]
    if evaluations:
        console.print(_before_and_after(evaluations, count))
    masked = _with_masked_tokens(samples, count)
    if masked:
        console.print(_masked_tokens(masked, plain=not console.is_terminal))


def _accuracy(summary: Mapping[str, Any]) -> Table:
    table = Table(title=f"{summary['name']}: {summary['objective']}, {summary['steps']} steps, seed {summary['seed']}")
    for heading in ("held-out accuracy", "before", "after", "change"):
        table.add_column(heading, justify="left" if heading == "held-out accuracy" else "right")
    for label, name in (("sampled", "eval"), ("greedy", "greedy")):
        before, after = summary[f"{name}_before"], summary[f"{name}_after"]
        table.add_row(label, f"{before:.1%}", f"{after:.1%}", f"{100 * (after - before):+.1f} points")
    return table


def _before_and_after(evaluations: Sequence[Mapping[str, Any]], count: int) -> Table:
    first, last = min(r["step"] for r in evaluations), max(r["step"] for r in evaluations)
    before = {record["prompt"]: record for record in evaluations if record["step"] == first}
    after = {record["prompt"]: record for record in evaluations if record["step"] == last}
    table = Table(title="Held-out samples", show_lines=True)
    for heading in ("prompt", "answer", f"before (step {first})", f"after (step {last})"):
        table.add_column(heading, overflow="fold")
    for prompt in [prompt for prompt in before if prompt in after][:count]:
        answer = Text(visible(str(before[prompt]["answer"])))
        table.add_row(Text(visible(prompt)), answer, _judged(before[prompt]), _judged(after[prompt]))
    return table


def _judged(record: Mapping[str, Any]) -> Text:
    verdict = record["verdict"]
    text = Text(visible(record["completion"]))
    return text.append(f"  ({verdict})", style=_VERDICT_STYLES.get(verdict, "yellow"))


def _with_masked_tokens(samples: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """The last training samples in which the mask dropped something, oldest first."""
    dropped = [record for record in samples if "kept" in record and not all(record["kept"])]
    return dropped[-count:]


def _masked_tokens(records: Sequence[Mapping[str, Any]], *, plain: bool) -> Table:
    table = Table(title=f"Tokens that the mask dropped, {'in brackets' if plain else 'on red'}")
    for heading in ("step", "advantage", "completion"):
        table.add_column(heading, justify="left" if heading == "completion" else "right", overflow="fold")
    for record in records:
        advantage = f"{record['advantage']:+.2f}" if record.get("advantage") is not None else ""
        shown = Text(mark_masked(record)) if plain else colour_masked(record)
        table.add_row(str(record["step"]), advantage, shown)
    return table
