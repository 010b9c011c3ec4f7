"""What a compiled program sends between devices, read from the compiler's own text."""

import collections
import math
import re

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f64": 8, "s64": 8, "u64": 8}
_SHAPE = re.compile(r"(pred|bf16|[suf]\d+)\[([\d,]*)\]")
_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_CALL = re.compile(r"(?:body|condition|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_BOUND = re.compile(r"= s32\[\][^ ]* constant\((\d+)\)")
_TRIPS = re.compile(r'"known_trip_count":\s*\{"n":\s*"(\d+)"\}')


def collectives(text: str, *, while_trips: int = 1) -> dict[str, tuple[int, float]]:
    """By kind: how many are executed on one device, and the bytes of their results, loops multiplied out.

    Args:
      text: ``compiled.as_text()``.
      while_trips: How often a loop runs whose trip count the compiler does not know.
    """
    bodies = _computations(text)
    found: dict[str, tuple[int, float]] = collections.defaultdict(lambda: (0, 0.0))
    for name, times in _multiplicity(bodies, while_trips).items():
        for line in bodies[name]:
            kind = _kind(line)
            if kind is not None:
                count, size = found[kind]
                found[kind] = (count + times, size + times * _result_bytes(line))
    return dict(found)


def _computations(text: str) -> dict[str, list[str]]:
    bodies: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header is not None:
            current = bodies["ENTRY" if line.startswith("ENTRY") else header[1]] = []
        elif current is not None:
            current.append(line)
    return bodies


def _multiplicity(bodies: dict[str, list[str]], while_trips: int) -> dict[str, int]:
    """How often each computation runs; those of a fusion or a reduction hold no collectives, so that they may count."""
    times: dict[str, int] = collections.defaultdict(int)

    def visit(name: str, count: int) -> None:
        times[name] += count
        for line in bodies[name]:
            trips = 1
            if " while(" in line:
                trips = _trips(line, bodies) or while_trips
            for callee in _CALL.findall(line):
                if callee in bodies:
                    visit(callee, count * trips)

    visit("ENTRY", 1)
    return times


def _trips(line: str, bodies: dict[str, list[str]]) -> int | None:
    """What the compiler says, or the one bound that the loop's condition compares with."""
    known = _TRIPS.search(line)
    if known:
        return int(known[1])
    condition = _CONDITION.search(line)
    bounds = {int(n) for other in bodies.get(condition[1], ()) for n in _BOUND.findall(other)} if condition else set()
    return bounds.pop() if len(bounds) == 1 else None


def _kind(line: str) -> str | None:
    for kind in KINDS:
        if f" {kind}(" in line or f" {kind}-start(" in line:
            return kind
    return None


def _result_bytes(line: str) -> float:
    """Bytes of what the instruction yields; of a started one the largest array, since its tuple repeats the operand."""
    result = line.split("=", 1)[1].split(next(f" {k}" for k in KINDS if f" {k}" in line), 1)[0]
    sizes = [
        _BYTES.get(kind, 4) * math.prod(int(n) for n in shape.split(",") if n) for kind, shape in _SHAPE.findall(result)
    ]
    return float(max(sizes) if "-start(" in line and sizes else sum(sizes))
