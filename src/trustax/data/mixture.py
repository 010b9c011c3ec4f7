"""Several sources as one, in given proportions."""

import dataclasses
import fractions
from collections.abc import Sequence

from trustax.data.types import Example, Source


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Interleaves sources by their weights, evenly and in a fixed order; a pass ends when the first source would
    repeat.

    Position k belongs to the source whose share is furthest behind, so that every prefix is as close to the weights as
    whole examples allow. The index of an example is its position: no two sources share a group. What of a larger source
    doesn't fit into one pass is never seen in it: give weights in the proportion of the sizes to see all of all.
    """

    name: str
    sources: Sequence[Source]
    places: Sequence[tuple[int, int]]  # which source, which of its examples

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int, /) -> Example:
        which, place = self.places[index]
        return dataclasses.replace(self.sources[which][place], index=index)


def mixture(sources: Sequence[Source], weights: Sequence[float] | None = None) -> Source:
    """Mix by ``weights``; None takes every example of every source once, one source after the other."""
    empty = [source.name for source in sources if len(source) == 0]
    if empty or not sources:
        raise ValueError(f"a mixture of nothing: {', '.join(empty) or 'no source'} has no example")
    title = "+".join(source.name for source in sources)
    if weights is None:
        places = [(which, place) for which, source in enumerate(sources) for place in range(len(source))]
        return sources[0] if len(sources) == 1 else Mixture(title, sources, places)
    exact = [fractions.Fraction(weight) for weight in weights]
    places = []
    taken = [0] * len(sources)
    while True:
        which = min(range(len(sources)), key=lambda i: (fractions.Fraction(2 * taken[i] + 1) / exact[i], i))
        if taken[which] == len(sources[which]):
            break
        places.append((which, taken[which]))
        taken[which] += 1
    return Mixture(f"{title}:{','.join(f'{weight:g}' for weight in weights)}", sources, places)
