"""Units behind an answer: which words are one, and which of them measure the same thing."""

import re
from fractions import Fraction
from typing import NamedTuple


class Unit(NamedTuple):
    """What is measured, and how many of its base unit this is; an unknown word measures only itself."""

    kind: str
    factor: Fraction


_TABLE: dict[str, tuple[str, dict[str, str]]] = {
    "length": ("m", {
        "m meter metre": "1", "cm centimeter centimetre": "0.01", "mm millimeter millimetre": "0.001",
        "km kilometer kilometre": "1000", "in inch inche": "0.0254", "ft foot feet": "0.3048", "yd yard": "0.9144",
        "mi mile": "1609.344",
    }),
    "mass": ("g", {
        "g gram": "1", "kg kilogram": "1000", "mg milligram": "0.001", "lb pound": "453.59237",
        "oz ounce": "28.349523125",
    }),
    "time": ("s", {
        "s sec second": "1", "min minute": "60", "h hr hour": "3600", "day": "86400", "week": "604800",
        "year": "31557600",
    }),
    "money": ("$", {"$ dollar usd": "1", "cent": "0.01"}),
    "angle": ("degree", {"degree deg °": "1"}),
    "volume": ("l", {"l liter litre": "1", "ml milliliter millilitre": "0.001"}),
}  # fmt: skip
_KNOWN = {
    word: Unit(kind, Fraction(factor))
    for kind, (_, rows) in _TABLE.items()
    for words, factor in rows.items()
    for word in words.split()
}
# One letter is a unit only where it is marked as text: "5 m" may be a product.
_PLAIN = {word for word in _KNOWN if len(word) > 1} - {"in", "min"}
_NO_UNITS = frozenset([
    "and", "or", "not", "the", "is", "are", "mod", "sin", "cos", "tan", "log", "sqrt", "exp", "plus", "minus",
    "times", "over", "divided", "half", "dozen", "percent", "pi", "infinity", "about", "approximately", "roughly",
    "nearly", "less", "more", "than", "between", "from", "into", "with", "without", "only", "but", "because",
    "since", "for", "base", "remainder", "when", "where", "thus", "so", "hence", "equals", "equal", "positive",
    "negative",
])  # fmt: skip
_WORD = re.compile(r"[A-Za-z$°]+")


def read_unit(words: str, *, marked: bool) -> Unit | None:
    r"""The unit that ``words`` name; None if they are no unit. ``marked``: they stood inside ``\text{...}``."""
    words = words.strip().strip(".").lower()
    if not words:
        return None
    power = 1
    if match := re.fullmatch(r"(.*?)\s*\^\{?([23])\}?", words):
        words, power = match[1], int(match[2])
    for prefix, exponent in (("square ", 2), ("sq ", 2), ("sq. ", 2), ("cubic ", 3), ("cu ", 3)):
        if words.startswith(prefix):
            words, power = words.removeprefix(prefix), exponent
    over, slash, under = words.replace(" per ", "/").partition("/")
    unit = _simple(over, marked)
    if unit is None:
        return None
    if slash:
        below = _simple(under, True)
        if below is None:
            return None
        unit = Unit(f"{unit.kind}/{below.kind}", unit.factor / below.factor)
    return Unit(f"{unit.kind}^{power}", unit.factor**power) if power != 1 else unit


def _simple(words: str, marked: bool) -> Unit | None:
    found = _WORD.findall(words)
    if not found or len(found) > 3 or "".join(found) != words.replace(" ", ""):
        return None
    if len(found) == 1:
        word = found[0]
        for spelling in (word, word.removesuffix("s")):
            if spelling in _KNOWN and (marked or spelling in _PLAIN):
                return _KNOWN[spelling]
        if word in ("unit", "units"):
            return Unit("", Fraction(1))
    if any(word in _NO_UNITS or (len(word) < 3 and not marked) for word in found):
        return None
    return Unit(" ".join(word.removesuffix("s") for word in found), Fraction(1))
