"""Rows of parquet and JSONL files, or one clear error."""

import importlib
import json
from pathlib import Path
from typing import Any

MAX_PROBLEMS = 5


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Every row of a file as plain Python; the kind is told by the name's end."""
    rows = _read_parquet(path) if path.suffix == ".parquet" else _read_json_lines(path)
    if not rows:
        raise ValueError(f"{path} has no row")
    return rows


def file_problem(path: Path, problems: list[str]) -> ValueError:
    """One error for all that is wrong with a file's rows."""
    more = f"; and {len(problems) - MAX_PROBLEMS} more rows" if len(problems) > MAX_PROBLEMS else ""
    return ValueError(f"{path}: {'; '.join(problems[:MAX_PROBLEMS])}{more}")


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
        arrow_errors = importlib.import_module("pyarrow.lib").ArrowException
    except ImportError as error:
        raise ImportError(
            f"{path} is parquet, which needs the package pyarrow: pip install 'trustax[parquet]'"
        ) from error
    try:
        return parquet.read_table(path).to_pylist()
    except (arrow_errors, OSError, ValueError) as error:
        raise ValueError(
            f"{path} is not a parquet file that can be read (cut short?): {error}; fetch it again"
        ) from error


def _read_json_lines(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} can't be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            problems.append(f"line {number}: not valid JSON ({error})")
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            problems.append(f"line {number}: expected a JSON object, got {type(row).__name__}")
    if problems:
        raise file_problem(path, problems)
    return rows
