"""A progress line on a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

# Which numbers a person wants to see at every step: (name, label, format).
_SHOWN = (
    ("reward/mean", "reward", "{:.3f}"),
    ("divergence/mean", "divergence", "{:.2g}"),
    ("mask/fraction", "masked", "{:.1%}"),
)


class Progress:
    """Shows where a run is. ``done`` steps of ``total`` were made before."""

    def __init__(self, total: int, *, done: int = 0, console: Console | None = None):
        self._total = total
        self._console = console if console is not None else Console()
        self._clock = time.monotonic()
        self._bar: Bar | None = None
        if self._console.is_terminal:
            columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=24), TimeElapsedColumn(),
                       TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.description}"))  # fmt: skip
            self._bar = Bar(*columns, console=self._console)
            self._task = self._bar.add_task("starting", total=total, completed=done)
            self._bar.start()

    def step(self, step: int, metrics: Mapping[str, float], timing: Mapping[str, float]) -> None:
        """A training step is finished."""
        seconds, self._clock = time.monotonic() - self._clock, time.monotonic()
        shown = [f"{label} {form.format(metrics[name])}" for name, label, form in _SHOWN if name in metrics]
        if "tokens_per_second" in timing:
            shown.append(f"{timing['tokens_per_second']:.0f} tok/s")
        shown.append(f"{seconds:.1f} s/step")
        if self._bar is not None:
            self._bar.update(self._task, completed=step, description="  ".join(shown))
        else:
            self._plain(f"step {step}/{self._total}  " + "  ".join(shown))

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """An evaluation is finished."""
        shown = "  ".join(f"{name.removeprefix('eval/')} {value:.1%}" for name, value in metrics.items())
        self.note(f"evaluation after step {step}: {shown}")
        self._clock = time.monotonic()  # a step's seconds are not to hold the evaluation before it

    def note(self, text: str) -> None:
        """A line of its own, above the progress bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            self._plain(text)

    def close(self) -> None:
        """Leave the terminal as it was found."""
        if self._bar is not None:
            self._bar.stop()

    def _plain(self, text: Any) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()
