"""Completions token by token: which were kept by the mask, and how far each had moved."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.style import Style
from rich.text import Text

_KEPT, _MASKED = Style(color="green"), Style(color="white", bgcolor="red")
_NO_DIVERGENCE = Style(color="bright_black")


def visible(text: str) -> str:
    """Text that cannot steer a terminal: a line break as ⏎, other control characters escaped."""
    shown = text.replace("\r\n", "⏎").replace("\n", "⏎").replace("\t", "⇥")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def mark_masked(record: Mapping[str, Any]) -> str:
    """The completion in plain text, masked tokens in brackets: ``4 + 5 = [9]``."""
    return "".join(
        visible(token) if kept else f"[{visible(token)}]"
        for token, kept in zip(record["tokens"], _kept(record), strict=True)
    )


def colour_masked(record: Mapping[str, Any]) -> Text:
    """The completion for a terminal: kept tokens green, masked ones white on red."""
    text = Text()
    for token, kept in zip(record["tokens"], _kept(record), strict=True):
        text.append(visible(token), style=_KEPT if kept else _MASKED)
    return text


def colour_divergence(record: Mapping[str, Any], *, delta: float) -> Text:
    """The completion for a terminal, each token on a ground from white to red: full at ``delta`` and beyond."""
    if delta <= 0:
        raise ValueError(f"delta must be above 0, got {delta}")
    text = Text()
    for token, divergence in zip(record["tokens"], record["divergence"], strict=True):
        text.append(visible(token), style=_NO_DIVERGENCE if divergence is None else _heat(divergence / delta))
    return text


def _kept(record: Mapping[str, Any]) -> Sequence[bool]:
    return record["kept"] if "kept" in record else [True] * len(record["tokens"])


def _heat(share: float) -> Style:
    fade = round(255 * (1 - min(max(share, 0.0), 1.0)))
    return Style(color="rgb(0,0,0)", bgcolor=f"rgb(255,{fade},{fade})")
