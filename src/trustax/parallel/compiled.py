"""One program compiled ahead of time, and what it needs of each chip."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, cast

import jax

from trustax.parallel.chips import CHIPS
from trustax.parallel.collectives import collectives
from trustax.parallel.flops import count_flops


@dataclasses.dataclass(frozen=True)
class Phase:
    """Per chip. ``peak`` is what must fit: arguments, results that are no donated argument, and temporaries.

    ``bytes_moved`` is a floor: everything in ``arguments`` read once, for each pass of ``weight_passes`` over the
    network, and results written once. ``seconds`` is the roofline: what each resource would take at its peak alone.
    """

    name: str
    arguments: float
    outputs: float
    temporaries: float
    peak: float
    flops: float
    bytes_moved: float
    collectives: dict[str, tuple[int, float]]
    seconds: dict[str, float]
    compile_seconds: float

    @property
    def bound(self) -> str:
        return max(self.seconds, key=lambda name: self.seconds[name])


def compile_phase(
    name: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    kind: str,
    chips: int,
    weight_passes: float,
    while_trips: int = 1,
    **jit_options: Any,
) -> Phase:
    """Compile ``function`` for abstract ``arguments`` that carry their shardings, and read the result."""
    clock = time.monotonic()
    traced = jax.jit(function, **jit_options).trace(*arguments)
    compiled = traced.lower().compile()
    memory, text = cast(Any, compiled.memory_analysis()), compiled.as_text()
    if memory is None or text is None:
        raise RuntimeError(f"the compiler for {kind} says nothing about the {name} program that it made")
    donated = memory.alias_size_in_bytes
    held, results = float(memory.argument_size_in_bytes), float(memory.output_size_in_bytes)
    flops = count_flops(traced.jaxpr.jaxpr, while_trips=while_trips) / chips
    sent = collectives(text, while_trips=while_trips)
    moved = held * weight_passes + results
    chip = CHIPS[kind]
    return Phase(
        name=name,
        arguments=held,
        outputs=results - donated,
        temporaries=float(memory.temp_size_in_bytes),
        peak=held + results - donated + memory.temp_size_in_bytes,
        flops=flops,
        bytes_moved=moved,
        collectives=sent,
        seconds={
            "compute": flops / chip.flops,
            "memory": moved / chip.memory_bandwidth,
            "links": sum(size for _, size in sent.values()) / chip.link_bandwidth,
        },
        compile_seconds=time.monotonic() - clock,
    )
