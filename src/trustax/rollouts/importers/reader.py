"""A file of rollouts as checked rows: bad ones stop the reading, or are left out and counted."""

from collections.abc import Iterator
from pathlib import Path

from trustax.errors import UserError
from trustax.rollouts.importers.fields import RowProblems
from trustax.rollouts.importers.layouts import LAYOUTS, detect, with_meta_info
from trustax.rollouts.importers.records import Record, read_records
from trustax.rollouts.importers.row import Row, value_problems
from trustax.rollouts.importers.rows import known_fields, read_row

MAX_PROBLEMS = 5
"""Bad rows beyond this many are counted, not listed."""


class FileReader:
    """Iterate over the rows of a file, once; what was seen is known when the iteration has ended.

    Attributes:
        layout: given, or detected from the first row.
        rows, skipped: how many good rows there were, and how many bad ones were left out.
        problems: the first bad rows, each with its place and everything wrong with it.
        statistics: what every row holds beyond the required fields.
        ignored: fields that were not read.
    """

    def __init__(self, path: Path, *, layout: str | None = None, skip_bad: bool = False, vocab_size: int | None = None):
        if layout is not None and layout not in LAYOUTS:
            raise UserError(f"no layout {layout!r}; known: {', '.join(LAYOUTS)}")
        self.path, self.layout, self.skip_bad, self.vocab_size = path, layout, skip_bad, vocab_size
        self.rows = self.skipped = 0
        self.problems: list[str] = []
        self.statistics: frozenset[str] | None = None
        self.ignored: set[str] = set()

    def __iter__(self) -> Iterator[Row]:
        """Raises ``UserError`` at the end of the file if there was a bad row; none is given out after the first."""
        for record in read_records(self.path):
            try:
                row = self._read(record)
            except RowProblems as error:
                self.skipped += 1
                if len(self.problems) < MAX_PROBLEMS:
                    self.problems.append(f"{record.place}: {error}")
                continue
            self.rows += 1
            if self.skip_bad or not self.skipped:
                yield row
        if self.skipped and not self.skip_bad:
            raise UserError(self._refusal("mend them, or leave them out with --skip-bad"))
        if not self.rows:
            raise UserError(self._refusal("no row is left") if self.skipped else f"{self.path} holds no row")

    def _read(self, record: Record) -> Row:
        if record.fields is None:
            raise RowProblems([record.problem])
        if self.layout is None:
            self.layout = detect(record.fields, record.place)
        names = {name for name, value in with_meta_info(record.fields).items() if value is not None}
        row = read_row(record, self.layout)
        found = value_problems(row, vocab_size=self.vocab_size)
        if self.statistics is None:
            self.statistics = row.statistics
        missing, more = self.statistics - row.statistics, row.statistics - self.statistics
        found += [f"{name} is missing, which earlier rows have" for name in sorted(missing)]
        found += [f"{name} is here, which earlier rows lack: all rows must hold the same" for name in sorted(more)]
        if found:
            raise RowProblems(found)
        self.ignored |= names - known_fields(self.layout)
        return row

    def _refusal(self, advice: str) -> str:
        more = self.skipped - len(self.problems)
        listed = "; ".join(self.problems) + (f"; and {more} more" if more else "")
        return f"{listed}; {self.skipped} of {self.rows + self.skipped} rows are bad: {advice}"
