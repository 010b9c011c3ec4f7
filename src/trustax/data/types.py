"""A question with its answer, and the random access that every data set offers."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Example:
    """One question. ``metadata`` is a JSON object: operands, a grader's own record, a file's extra columns."""

    index: int
    prompt: str
    answer: str
    metadata: str = "{}"


class Source(Protocol):
    """Random access to examples, in a fixed order: ``source[i].index == i`` in a source that was not filtered."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Example: ...


@dataclasses.dataclass(frozen=True)
class ListSource:
    """A source held in memory."""

    name: str
    examples: Sequence[Example]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int, /) -> Example:
        return self.examples[index]


def renumbered(examples: Iterable[Example]) -> list[Example]:
    """The same examples, each with its place as its index."""
    return [dataclasses.replace(example, index=index) for index, example in enumerate(examples)]
