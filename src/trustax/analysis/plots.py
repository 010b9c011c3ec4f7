"""Figures of one run, drawn from its ``metrics.jsonl``."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from trustax.analysis.records import read_records, series

_BLUE, _RED, _GREY, _GREEN = "#2f6db5", "#c8442f", "#8a8f98", "#3b8a4b"


@dataclasses.dataclass(frozen=True)
class Line:
    """One metric in a panel."""

    metric: str
    label: str
    colour: str
    kind: str = "train"
    style: str = "-"
    width: float = 1.8


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes. ``percent`` values lie in 0..1 and are shown so."""

    name: str
    title: str
    lines: tuple[Line, ...]
    percent: bool = False


PANELS = (
    Panel(
        "reward",
        "Reward and held-out accuracy",
        (
            Line("reward/mean", "training reward (batch mean)", _BLUE),
            Line("eval/sampled", "held-out accuracy, sampled", _GREEN, "evaluation", "o--", 0.9),
            Line("eval/greedy", "held-out accuracy, greedy", _GREY, "evaluation", "s--", 0.9),
        ),
        percent=True,
    ),
    Panel("divergence", "Mean divergence from the sampling policy", (Line("divergence/mean", "mean", _BLUE),)),
    Panel(
        "masked",
        "Masked tokens, by the sign of the advantage",
        (
            Line("mask/fraction_positive", "A > 0", _BLUE),
            Line("mask/fraction_negative", "A < 0", _RED),
            Line("mask/fraction", "all", _GREY, style=":"),
        ),
        percent=True,
    ),
    Panel("entropy", "Entropy of the policy (nats per token)", (Line("entropy/mean", "mean", _BLUE),)),
)


def plot_run(metrics_file: Path, folder: Path, *, title: str = "") -> list[Path]:
    """Draw one PNG a panel and ``overview.png`` with all of them; a panel without a single number is left out."""
    records = read_records(metrics_file)
    panels = [panel for panel in PANELS if any(series(records, line.metric, kind=line.kind)[0] for line in panel.lines)]
    folder.mkdir(parents=True, exist_ok=True)
    written = [_figure([panel], records, folder / f"{panel.name}.png", title) for panel in panels]
    if panels:
        written.append(_figure(panels, records, folder / "overview.png", title))
    return written


def _figure(panels: Sequence[Panel], records: Sequence[dict[str, Any]], path: Path, title: str) -> Path:
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    width, height = (5.2 * columns, 3.1 * rows) if len(panels) > 1 else (6.0, 3.6)
    # A Figure of its own, not pyplot's: no display is needed, and a notebook's backend is left alone.
    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels, strict=False):
        _draw(axis, panel, records)
    if title:
        figure.suptitle(title, fontsize=11, fontweight="bold", x=0.01, ha="left")
    figure.savefig(path, dpi=140)
    return path


def _draw(axis: Axes, panel: Panel, records: Sequence[dict[str, Any]]) -> None:
    drawn = 0
    for line in panel.lines:
        steps, values = series(records, line.metric, kind=line.kind)
        if steps:
            style = "o" + line.style if len(steps) == 1 and line.style in ("-", ":") else line.style
            axis.plot(steps, values, style, label=line.label, color=line.colour, linewidth=line.width, markersize=5)
            drawn += 1
    axis.set_title(panel.title, fontsize=10, loc="left")
    axis.set_xlabel("step", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    low, high = axis.get_ylim()
    if panel.percent:
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    if panel.name == "reward" and low > -0.1 and high < 1.1:  # a share of right answers, shown on its whole scale
        axis.set_ylim(-0.02, 1.04)
    elif low > 0:
        axis.set_ylim(bottom=0)
    if drawn > 1:
        axis.legend(fontsize=8, frameon=False)
