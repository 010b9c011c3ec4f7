"""The records of a run, read back."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trustax.errors import UserError


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a JSONL file; a last line without its end is what a killed process left, and is not one."""
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise UserError(f"{path}:{number} is not JSON ({error.msg}); repair or remove that line") from None
    return records


def series(records: Sequence[dict[str, Any]], name: str, *, kind: str = "train") -> tuple[list[int], list[float]]:
    """Steps and values of one metric; steps without it are left out."""
    points = [(r["step"], r["metrics"][name]) for r in records if r["kind"] == kind and name in r["metrics"]]
    return [step for step, _ in points], [value for _, value in points]


def strict(value: Any) -> Any:
    """Plain data for strict JSON: what is not finite by its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    return [strict(item) for item in value] if isinstance(value, list) else value
