"""Answers as exact values, and whether two of them are equal: no floats, no algebra.

A text that is not understood becomes ``Formula``, whose equality with another one is left open (None) unless both read
the same: somebody with a computer-algebra system may decide it.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from trustax.verifiers.notation import TEXT_CLOSE, TEXT_OPEN, normal, split_top
from trustax.verifiers.units import Unit, read_unit

MAX_EXPONENT = 400
MAX_DIGITS = 1000
MAX_BRACKETS = 60  # each may cost a level of recursion


class Number(NamedTuple):
    """An exact number; 50% is 1/2 with ``percent``. ``unit`` is what stood behind it."""

    value: Fraction
    percent: bool = False
    unit: Unit | None = None


class Infinity(NamedTuple):
    """Plus or minus infinity."""

    sign: int


class Words(NamedTuple):
    """An answer in words, or the letter of a choice."""

    text: str


class Formula(NamedTuple):
    """Mathematics that is not evaluated here, without spaces."""

    text: str
    unit: Unit | None = None


class Ordered(NamedTuple):
    """A tuple, a point or an interval: brackets and order count."""

    opening: str
    items: "tuple[Value, ...]"
    closing: str


class Unordered(NamedTuple):
    """A set, a list of solutions or a union of intervals: order doesn't count."""

    kind: str  # "set", "list" or "union"
    items: "tuple[Value, ...]"


class Equation(NamedTuple):
    """``x = 5``: a name and its value."""

    name: str
    value: "Value"


class Inequality(NamedTuple):
    """``x < 7``: a name and the interval that it lies in."""

    name: str
    interval: Ordered


Value = Number | Infinity | Words | Formula | Ordered | Unordered | Equation | Inequality

_UNSIGNED = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_PLAIN = re.compile(rf"[-+]?(?:{_UNSIGNED})")
_BRACED = r"\{\s*([-+]?)\s*([0-9.,]+)\s*\}"
_NUMBER = re.compile(
    rf"""(?P<sign>[-+]?)\s*(?P<money>[$€£])?\s*(?P<inner>[-+]?)\s*(?:
      (?P<decimals>[0-9]*)\.(?P<before>[0-9]*)\\overline\s*\{{(?P<repeating>[0-9]+)\}}
    | (?:(?P<whole>[0-9]+)\s*)?\\frac\s*{_BRACED}\s*{_BRACED}
    | (?P<whole2>[0-9]+)\s+(?P<over2>[0-9]+)/(?P<under2>[0-9]+)
    | (?P<over>{_UNSIGNED})\s*/\s*(?P<minus>-?)(?P<under>{_UNSIGNED})
    | (?P<base>{_UNSIGNED})\s*\^\s*(?:\{{\s*(?P<power>[-+]?[0-9]+)\s*\}}|(?P<power1>[0-9]))
    | (?P<decimal>{_UNSIGNED})(?:[eE](?P<e>[-+]?[0-9]+)
      |\s*\*\s*10\s*\^\s*(?:\{{\s*(?P<ten>[-+]?[0-9]+)\s*\}}|(?P<ten1>[0-9])))?
    )(?:\s*(?P<scale>hundred|thousand|million|billion|trillion))?(?P<tail>.*)""",
    re.VERBOSE | re.DOTALL,
)
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_COUNTS = {
    word: Number(Fraction(number))
    for number, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        ]
    )
}
_NAME = r"\\?[A-Za-z]+(?:_[A-Za-z0-9])?'?(?:\([A-Za-z]\))?"
_EQUATION = re.compile(rf"({_NAME})\s*=\s*(?!=)(.+)", re.DOTALL)
_ELEMENT = re.compile(rf"({_NAME})\s*(?:\\in(?![A-Za-z])|∈)\s*(.+)", re.DOTALL)
_BOUND = re.compile(r"(.+?)\s*([<>≤≥]=?)\s*(.+)", re.DOTALL)
_MARKED_TAIL = re.compile(rf"\s*{TEXT_OPEN}([^{TEXT_OPEN}{TEXT_CLOSE}]*){TEXT_CLOSE}\s*(\^\s*\{{?[23]\}}?)?")
_CHOICE = re.compile(r"\(?([A-J])\)?")
_CHOICE_AND_TEXT = re.compile(r"(?:\(([A-J])\)|([A-J])[).:])\s*.+", re.DOTALL)
_CONJUNCTION = re.compile(rf"\s*,?\s*(?:\s(?:or|and)\s|{TEXT_OPEN}\s*(?:or|and)\s*{TEXT_CLOSE})\s*")
_WORD_CHARS = re.compile(r"[A-Za-z][A-Za-z .,'\"-]*")


def read(text: str) -> Value | None:
    """The value of an answer; None for no text at all."""
    if _PLAIN.fullmatch(text) and len(text) < MAX_DIGITS:
        return Number(Fraction(text.replace(",", "")))
    text = normal(text)
    if sum(map(text.count, "([{")) > MAX_BRACKETS:
        return _formula(text)
    return _value(text) if text else None


def _value(text: str) -> Value:
    text = text.strip()
    number = _number(text)
    if number is not None:
        return number
    for reader in (_words, _solutions, _statement, _bracketed):
        value = reader(text)
        if value is not None:
            return value
    return _formula(text)


def _number(text: str) -> Number | None:
    match = _NUMBER.match(text)
    if match is None or len(text) > MAX_DIGITS:
        return None
    value = _magnitude(match)
    if value is None:
        return None
    if match["scale"]:
        value *= _SCALES[match["scale"]]
    if (match["sign"] == "-") != (match["inner"] == "-"):
        value = -value
    unit = Unit("money", Fraction(1)) if match["money"] == "$" else None
    if match["money"] in ("€", "£"):
        unit = Unit(match["money"], Fraction(1))
    tail = match["tail"].strip().strip(TEXT_OPEN + TEXT_CLOSE).strip()
    if not tail:
        return Number(value, False, unit)
    if tail.lower() in ("%", "percent", "per cent"):
        return Number(value / 100, True, unit)
    found = _unit(match["tail"])
    return None if found is None else Number(value, False, found)


def _magnitude(match: re.Match[str]) -> Fraction | None:
    def plain(text: str) -> Fraction:
        return Fraction(text.replace(",", ""))

    if match["repeating"]:
        start, period = match["decimals"] + match["before"], match["repeating"]
        scale, nines = 10 ** len(match["before"]), 10 ** len(period) - 1
        return (Fraction(int(start or "0")) + Fraction(int(period), nines)) / scale
    groups = match.groups()
    signs_and_parts = groups[match.re.groupindex["whole"] : match.re.groupindex["whole"] + 4]
    if signs_and_parts[1] is not None:
        return _fraction(match["whole"], *signs_and_parts)
    if match["over2"]:
        return (
            None
            if not int(match["under2"])
            else int(match["whole2"]) + Fraction(int(match["over2"]), int(match["under2"]))
        )
    if match["over"]:
        below = plain(match["under"])
        return None if not below else plain(match["over"]) / (-below if match["minus"] else below)
    exponent = int(match["power"] or match["power1"] or match["e"] or match["ten"] or match["ten1"] or "0")
    if abs(exponent) > MAX_EXPONENT:
        return None
    if match["base"]:
        base = plain(match["base"])
        return None if (not base and exponent <= 0) or len(match["base"]) > 9 else base**exponent
    return plain(match["decimal"]) * Fraction(10) ** exponent


def _fraction(whole: str | None, sign: str, over: str, sign_below: str, under: str) -> Fraction | None:
    if not (_PLAIN.fullmatch(over) and _PLAIN.fullmatch(under)):
        return None
    below = Fraction(under.replace(",", ""))
    if not below or (whole and (sign or sign_below)):
        return None
    value = Fraction(over.replace(",", "")) / below
    value = -value if (sign == "-") != (sign_below == "-") else value
    return value if whole is None else int(whole) + value


def _unit(tail: str) -> Unit | None:
    if marked := _MARKED_TAIL.fullmatch(tail):
        return read_unit(marked[1] + (marked[2] if marked[2] else ""), marked=True)
    if TEXT_OPEN in tail or (not tail[:1].isspace() and tail.strip().lower() not in _GLUED):
        return None
    return read_unit(tail, marked=False)


_GLUED = frozenset(["cm", "mm", "km", "kg", "mg", "lb", "oz", "ft", "mi", "ml", "cm^2", "cm^3", "km/h", "mph"])


def _words(text: str) -> Value | None:
    inner = (
        text.strip(TEXT_OPEN + TEXT_CLOSE + " ") if text.count(TEXT_OPEN) == 1 and text.endswith(TEXT_CLOSE) else text
    )
    if text.startswith(TEXT_OPEN) or inner is text:
        if match := _CHOICE.fullmatch(inner):
            return Words(match[1].lower())
        if inner.lower() in _COUNTS:
            return _COUNTS[inner.lower()]
        letters = _WORD_CHARS.fullmatch(inner) and max(len(word) for word in inner.replace("-", " ").split()) > 2
        if (letters and "," not in inner) or (inner is not text and inner and not re.search(r"[\\=<>]", inner)):
            return None if re.search(r" (?:or|and) ", inner) else Words(" ".join(inner.lower().split()))
        if match := _CHOICE_AND_TEXT.fullmatch(inner):
            return Words((match[1] or match[2]).lower())
    return None


def _solutions(text: str) -> Value | None:
    """``1, 2``, ``x = 1 or x = 2``, ``\\pm 2``, ``(1, 2) \\cup [3, 4)``."""
    text = _CONJUNCTION.sub(", ", text)
    union = split_top(re.sub(r"\\cup(?![A-Za-z])|(?<=[)\]}])\s*U\s*(?=[(\[{\\])", "\x00", text), "\x00")
    if len(union) > 1:
        return Unordered("union", tuple(map(_value, union)))
    if match := re.fullmatch(r"(?:([A-Za-z])\s*=\s*)?\\pm\s*(.+)", text, re.DOTALL):
        positive = _number(match[2])
        if positive is None:
            return None
        return Unordered("list", (positive, positive._replace(value=-positive.value)))
    parts = split_top(text, ",;")
    if len(parts) < 2 or not all(part.strip() for part in parts):
        return None
    items = tuple(map(_value, parts))
    names = {item.name for item in items if isinstance(item, Equation)}
    if len(names) == 1:  # x = 1, x = 2; also "x = 1, 2"
        items = tuple(item.value if isinstance(item, Equation) else item for item in items)
    return Unordered("list", items)


def _statement(text: str) -> Value | None:
    if match := _ELEMENT.fullmatch(text):
        return _value(match[2])
    if (match := _EQUATION.fullmatch(text)) and len(split_top(text, "=")) == 2:
        return Equation(match[1].replace(" ", ""), _value(match[2]))
    if not any(char in text for char in "<>≤≥"):
        return None
    pieces = re.split(r"\s*(<=|>=|[<>≤≥])\s*", text)
    is_name = [re.fullmatch(_NAME, piece) is not None and not piece.startswith("\\infty") for piece in pieces[::2]]
    if len(pieces) == 3 and is_name.count(True) == 1:
        return _one_bound(pieces, name_first=is_name[0])
    if len(pieces) == 5 and is_name == [False, True, False]:
        low, first, name, second, high = pieces
        if first[0] in ">≥" and second[0] in ">≥":
            low, first, second, high = high, second.translate(_TURN), first.translate(_TURN), low
        if first[0] in "<≤" and second[0] in "<≤":
            opening, closing = ("[" if first in ("≤", "<=") else "("), ("]" if second in ("≤", "<=") else ")")
            return Inequality(name, Ordered(opening, (_value(low), _value(high)), closing))
    return None


_TURN = str.maketrans("<>≤≥", "><≥≤")


def _one_bound(pieces: list[str], *, name_first: bool) -> Inequality:
    left, sign, right = pieces
    name, bound = (left, right) if name_first else (right, left)
    sign = sign if name_first else sign.translate(_TURN)
    closed = sign in ("≤", "≥", "<=", ">=")
    if sign[0] in "<≤":
        return Inequality(name, Ordered("(", (Infinity(-1), _value(bound)), "]" if closed else ")"))
    return Inequality(name, Ordered("[" if closed else "(", (_value(bound), Infinity(1)), ")"))


def _bracketed(text: str) -> Value | None:
    if re.fullmatch(r"[-+]?\s*\\infty|[-+]?\s*infinity", text):
        return Infinity(-1 if text.startswith("-") else 1)
    if text in (r"\emptyset", r"\{\}", r"\{ \}"):
        return Unordered("set", ())
    for left, right in ((r"\{", r"\}"), ("{", "}")):
        if text.startswith(left) and text.endswith(right) and _closes_at_end(text, left):
            parts = split_top(text[len(left) : -len(right)], ",;")
            if (
                (left == "{" and len(parts) == 1)
                or any(char in text for char in "|:")
                or not all(p.strip() for p in parts)
            ):
                return None
            return Unordered("set", tuple(map(_value, parts)))
    opening, closing = text[:1], text[-1:]
    if opening in ("(", "[", "]") and closing in (")", "]", "[") and len(text) > 2:
        if opening != "]" and closing != "[" and not _closes_at_end(text, opening):
            return None
        parts = split_top(text[1:-1], ",;")
        if len(parts) > 1 and all(part.strip() for part in parts):
            brackets = {"]": "("}.get(opening, opening), {"[": ")"}.get(closing, closing)
            return Ordered(brackets[0], tuple(map(_value, parts)), brackets[1])
        if len(parts) == 1 and (opening, closing) == ("(", ")"):
            return _value(text[1:-1])
    return None


def _closes_at_end(text: str, opening: str) -> bool:
    """Whether the bracket at the front is closed by the one at the end, and by none before."""
    depth, position = 0, 0
    while position < len(text):
        step = 2 if text[position] == "\\" and text[position + 1 : position + 2] in ("{", "}") else 1
        char = text[position + step - 1]
        depth += (char in "([{") - (char in ")]}")
        position += step
        if depth == 0:
            return position == len(text)
    return False


def _formula(text: str) -> Formula:
    unit = None
    tail = re.search(
        rf"\s*{TEXT_OPEN}[^{TEXT_OPEN}{TEXT_CLOSE}]*{TEXT_CLOSE}\s*(?:\^\s*\{{?[23]\}}?)?$"
        r"|\s[a-z]{2,}(?: [a-z]{2,})?$",
        text,
    )
    if tail is not None and tail.start() > 0:
        unit = _unit(tail[0])
        text = text if unit is None else text[: tail.start()]
    squeezed = re.sub(r"(\\[A-Za-z]+) +(?=[A-Za-z])", "\\1\x00", text)
    return Formula("".join(squeezed.split()).replace("\x00", " ").replace("^{*}", "^*"), unit)
