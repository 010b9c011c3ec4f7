"""Rows of a JSONL or parquet file as plain Python values, one at a time."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trustax.errors import UserError

ROWS_AT_A_TIME = 64
BY_ID = ("logprobs", "top_k_log_pi")
"""Fields that may hold a mapping from token ids."""


class Record(NamedTuple):
    """One row: where it stands, its number from 1, and its fields, or the reason why it has none."""

    place: str
    number: int
    fields: dict[str, Any] | None
    problem: str = ""


def read_records(path: Path) -> Iterator[Record]:
    """Every row in order; a file that ends in ``.parquet`` is parquet, any other is JSON lines."""
    if not path.is_file():
        raise UserError(f"no file {path}; give a JSONL or parquet file with one completion a row")
    return _parquet(path) if path.suffix == ".parquet" else _jsonl(path)


def _jsonl(path: Path) -> Iterator[Record]:
    # Only "\n" ends a line: JSON allows U+2028 and its kin inside a string.
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _from_line(f"{path}:{number}", number, line)
        except UnicodeDecodeError:
            raise UserError(f"{path} is not UTF-8 text; a parquet file's name must end in .parquet") from None


def _from_line(place: str, number: int, line: str) -> Record:
    try:
        fields = json.loads(line, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        return Record(place, number, None, f"not valid JSON ({error})")
    if not isinstance(fields, dict):
        return Record(place, number, None, f"expected a JSON object, got {type(fields).__name__}")
    return Record(place, number, fields)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a key that stands twice is refused unless both say the same."""
    found = dict(pairs)
    if len(found) != len(pairs):
        for key, value in pairs:
            if found[key] != value:
                raise ValueError(f"the key {key!r} stands twice, with different values")
    return found


def _parquet(path: Path) -> Iterator[Record]:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError(f"{path}: parquet needs pyarrow: pip install 'trustax[parquet]', or write JSONL") from None
    try:
        file = parquet.ParquetFile(path)
    except arrow.ArrowInvalid as error:
        raise UserError(f"{path} is not a parquet file ({error})") from None
    with file:
        _refuse_structs_by_id(path, file.schema_arrow, arrow)
        number = 0
        for batch in file.iter_batches(batch_size=ROWS_AT_A_TIME):
            for index in range(batch.num_rows):
                number += 1
                place = f"{path}, row {number}"
                try:
                    (fields,) = batch.slice(index, 1).to_pylist(maps_as_pydicts="strict")
                except KeyError as error:
                    yield Record(place, number, None, f"a map holds a key twice ({error})")
                else:
                    yield Record(place, number, fields)


def _refuse_structs_by_id(path: Path, schema: Any, arrow: Any) -> None:
    """A struct has every id of the file as a field and null for most, so that absent and missing look the same."""
    for name in BY_ID:
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        while arrow.types.is_list(kind) or arrow.types.is_large_list(kind):
            kind = kind.value_type
        if arrow.types.is_struct(kind) and any(field.name.lstrip("-").isdecimal() for field in kind):
            raise UserError(f"{path}: column {name} is a struct with ids as field names; store list<map<int, ...>>")
