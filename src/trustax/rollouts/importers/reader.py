"""A file of rollouts as checked rows: bad ones stop the reading, or are left out and counted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

from trustax.errors import UserError
from trustax.rollouts.importers.fields import RowProblems
from trustax.rollouts.importers.layouts import LAYOUTS, detect, with_meta_info
from trustax.rollouts.importers.logged import Logged, known_of_logged, logged_problems, read_logged
from trustax.rollouts.importers.records import Record, read_records
from trustax.rollouts.importers.row import Row, value_problems
from trustax.rollouts.importers.rows import known_fields, read_row

AnyRow = TypeVar("AnyRow")

MAX_PROBLEMS = 5
"""Bad rows beyond this many are counted, not listed."""


class Reader(Generic[AnyRow]):
    """Iterate over the rows of a file, once; what was seen is known when the iteration has ended.

    Attributes:
        layout: given, or detected from the first row.
        rows, skipped: how many good rows there were, and how many bad ones were left out.
        problems: the first bad rows, each with its place and everything wrong with it.
        ignored: fields that were not read.
    """

    def __init__(self, path: Path, *, layout: str | None = None, skip_bad: bool = False, vocab_size: int | None = None):
        if layout is not None and layout not in LAYOUTS:
            raise UserError(f"no layout {layout!r}; known: {', '.join(LAYOUTS)}")
        self.path, self.layout, self.skip_bad, self.vocab_size = path, layout, skip_bad, vocab_size
        self.rows = self.skipped = 0
        self.problems: list[str] = []
        self.ignored: set[str] = set()

    def __iter__(self) -> Iterator[AnyRow]:
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

    def _read(self, record: Record) -> AnyRow:
        if record.fields is None:
            raise RowProblems([record.problem])
        if self.layout is None:
            self.layout = detect(record.fields, record.place)
        names = {name for name, value in with_meta_info(record.fields).items() if value is not None}
        row, found = self._parse(record, self.layout)
        if found:
            raise RowProblems(found)
        self.ignored |= names - self._known(self.layout)
        return row

    def _parse(self, record: Record, layout: str) -> tuple[AnyRow, list[str]]:
        """A row and what is wrong with its numbers."""
        raise NotImplementedError

    def _known(self, layout: str) -> frozenset[str]:
        """Every field that is read."""
        raise NotImplementedError

    def _refusal(self, advice: str) -> str:
        more = self.skipped - len(self.problems)
        listed = "; ".join(self.problems) + (f"; and {more} more" if more else "")
        return f"{listed}; {self.skipped} of {self.rows + self.skipped} rows are bad: {advice}"


class FileReader(Reader[Row]):
    """Rows with the sampler's and the trainer's part; ``statistics`` is what every row holds beyond what it must."""

    statistics: frozenset[str] | None = None

    def _parse(self, record: Record, layout: str) -> tuple[Row, list[str]]:
        row = read_row(record, layout)
        found = value_problems(row, vocab_size=self.vocab_size)
        if self.statistics is None:
            self.statistics = row.statistics
        missing, more = self.statistics - row.statistics, row.statistics - self.statistics
        found += [f"{name} is missing, which earlier rows have" for name in sorted(missing)]
        found += [f"{name} is here, which earlier rows lack: all rows must hold the same" for name in sorted(more)]
        return row, found

    def _known(self, layout: str) -> frozenset[str]:
        return known_fields(layout)


class LoggedReader(Reader[Logged]):
    """Rows with the sampler's part, the prompt and the reward: what another policy did and what came of it."""

    def _parse(self, record: Record, layout: str) -> tuple[Logged, list[str]]:
        row = read_logged(record, layout)
        return row, logged_problems(row, vocab_size=self.vocab_size)

    def _known(self, layout: str) -> frozenset[str]:
        return known_of_logged(layout)
