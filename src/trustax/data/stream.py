"""Batches of prompts without end, in a seeded order that can be resumed anywhere."""

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from trustax.data.types import Example, Source

STATE_FORMAT = 1


class PromptStream(Iterator[list[Example]]):
    """Every step, ``batch_size`` examples; every epoch, every example exactly once, in a new order.

    Batch k is a pure function of (source, seed, batch_size, k), so the state is one number and nothing is lost or
    repeated by stopping, whatever was read ahead. A batch is never short: the last one of an epoch goes on into the
    next epoch. One batch may therefore hold an example twice (always, where the source is smaller than a batch):
    whoever draws samples has to tell the slots of a batch apart, not the examples.

    ``shuffle=False`` keeps the source's order, every epoch. With several processes each one gets its ``part`` (number,
    of how many) of every batch, in order; sizes differ by one where the batch doesn't divide. The state is that of the
    whole batch: it is the same on all of them, and may be taken up by another number of processes.
    """

    def __init__(
        self, source: Source, *, batch_size: int, seed: int, shuffle: bool = True, part: tuple[int, int] = (0, 1)
    ) -> None:
        problems = []
        if not 0 <= part[0] < part[1]:
            problems.append(f"part must be (number, of how many) with 0 <= number < how many, got {part}")
        if batch_size < 1:
            problems.append(f"batch_size must be at least 1, got {batch_size}")
        if not 0 <= seed < 2**32:
            problems.append(f"seed must lie in 0..2**32 - 1, got {seed}")
        if len(source) == 0:
            problems.append(f"the source {source.name} has no example")
        if problems:
            raise ValueError("PromptStream: " + "; ".join(problems))
        self._identity: dict[str, Any] = {
            "source": source.name,
            "length": len(source),
            "batch_size": batch_size,
            "seed": seed,
        }
        if not shuffle:
            self._identity["shuffle"] = False
        ordered = _import_grain().MapDataset.source(source).seed(seed)
        if shuffle:
            ordered = ordered.shuffle()
        number, count = part
        self._part = slice(batch_size * number // count, batch_size * (number + 1) // count)
        self._batches = ordered.repeat().batch(batch_size, batch_fn=list)  # repeat() gives every epoch its own seed
        self._step = 0

    @property
    def epoch(self) -> float:
        """How many passes over the source have been handed out."""
        return self._step * self._identity["batch_size"] / self._identity["length"]

    def __next__(self) -> list[Example]:
        batch = self._batches[self._step]
        self._step += 1
        return batch[self._part]

    def get_state(self) -> dict[str, Any]:
        """What ``set_state`` needs to continue with the next batch, as JSON."""
        return {"format": STATE_FORMAT, "step": self._step, **self._identity}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` was taken; refuses the state of another source, order or batch size."""
        expected = {"format": STATE_FORMAT, **self._identity}
        if missing := sorted((expected.keys() | {"step"}) - state.keys()):
            raise ValueError(f"the stream's state lacks {', '.join(missing)}")
        if changed := [
            f"{key} was {state[key]!r}, is {value!r}" for key, value in expected.items() if state[key] != value
        ]:
            raise ValueError("can't resume the prompt stream, its order would be another: " + "; ".join(changed))
        if not isinstance(state["step"], int) or state["step"] < 0:
            raise ValueError(f"the stream's step must be a whole number of at least 0, got {state['step']!r}")
        self._step = state["step"]


def _import_grain() -> ModuleType:
    try:
        return importlib.import_module("grain")
    except ImportError as error:
        raise ImportError("streams of prompts need the package grain: pip install 'grain>=0.2.18'") from error
