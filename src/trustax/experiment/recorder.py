"""What a run writes while it goes: metrics, samples, TensorBoard, and lines for whoever is watching.

``metrics.jsonl`` and ``samples.jsonl`` are strict JSON, one record a line, on the disk when the call returns. Timings
stand in an object of their own; without it, two runs of one config write the same bytes.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tensorboardX import SummaryWriter

from trustax.analysis.records import read_records
from trustax.experiment.files import naming, write_atomically
from trustax.experiment.progress import Progress
from trustax.experiment.run_folder import RunFolder
from trustax.types import Metric


class Recorder:
    """Appends to the files of a run folder.

    ``after_step`` is the step of the checkpoint that the run goes on from: later records are removed first, and a
    record of that step or an earlier one that is already there is not written twice. Without it all are removed.
    """

    def __init__(self, folder: RunFolder, *, total_steps: int, after_step: int | None = None):
        self._metrics_file, self._samples_file = folder.metrics_file, folder.samples_file
        last = -1 if after_step is None else after_step
        self._present = {
            (path, record["kind"], record["step"])
            for path in (self._metrics_file, self._samples_file)
            for record in cut_back(path, last)
        }
        with naming(folder.tensorboard):
            self._tensorboard = SummaryWriter(str(folder.tensorboard), purge_step=last + 1)
        self._progress = Progress(total_steps, done=max(last, 0))

    def step(self, step: int, metrics: Mapping[str, Any], timing: Mapping[str, float]) -> None:
        """Record a finished training step."""
        self._write_metrics("train", step, metrics, timing)
        self._progress.step(step, _finite(metrics)[0], timing)

    def evaluation(self, step: int, metrics: Mapping[str, Any], timing: Mapping[str, float]) -> None:
        """Record an evaluation of the parameters after ``step`` training steps."""
        self._write_metrics("evaluation", step, metrics, timing)
        self._progress.evaluation(step, _finite(metrics)[0])

    def samples(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Record completions, tokens and all; the ``phase`` of the first one names the kind of them all."""
        if not records:
            return
        kind = str(records[0].get("phase", "train"))
        if not self._is_present(self._samples_file, kind, step):
            _append(self._samples_file, [{"step": step, "kind": kind, **_strict(record)} for record in records])

    def note(self, text: str) -> None:
        """Say something to whoever is watching."""
        self._progress.note(text)

    def close(self) -> None:
        """Finish the progress display and flush TensorBoard."""
        self._progress.close()
        with naming(Path(self._tensorboard.logdir)):
            self._tensorboard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _write_metrics(self, kind: str, step: int, metrics: Mapping[str, Any], timing: Mapping[str, float]) -> None:
        if self._is_present(self._metrics_file, kind, step):
            return
        values, nonfinite = _finite(metrics)
        record: dict[str, Any] = {"step": step, "kind": kind, "metrics": values}
        if nonfinite:
            record["nonfinite"] = nonfinite
        times = _finite(timing)[0]
        _append(self._metrics_file, [record | {"timing": times}])
        with naming(Path(self._tensorboard.logdir)):
            for name, value in [*values.items(), *((f"timing/{name}", value) for name, value in times.items())]:
                self._tensorboard.add_scalar(name, value, step)

    def _is_present(self, path: Path, kind: str, step: int) -> bool:
        return (path, kind, step) in self._present


def cut_back(path: Path, step: int) -> list[dict[str, Any]]:
    """Remove the records after ``step``, and a last line that was cut short, in one atomic step; return what stays."""
    if not path.exists():
        return []
    kept = [record for record in read_records(path) if record["step"] <= step]
    write_atomically(path, "".join(map(_line, kept)))
    return kept


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n"


def _append(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    with naming(path), path.open("a", encoding="utf-8") as file:
        file.write("".join(map(_line, records)))
        file.flush()
        os.fsync(file.fileno())


def _finite(metrics: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """The numbers that JSON can hold, and the names of those that it cannot; an empty category is in neither."""
    values: dict[str, float] = {}
    nonfinite = []
    for name, metric in metrics.items():
        if isinstance(metric, Metric) and not float(metric.weight) > 0:
            continue
        value = float(metric)
        if math.isfinite(value):
            values[name] = value
        else:
            nonfinite.append(name)
    return values, nonfinite


def _strict(value: Any) -> Any:
    """Plain data for JSON: numpy numbers as Python's, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if hasattr(value, "tolist"):
        return _strict(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
