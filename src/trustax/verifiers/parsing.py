"""Finding the answer in what a model wrote: numbers and boxed expressions."""

import re
from collections.abc import Iterator
from decimal import Decimal

# Digits in groups of three, or plain; then decimals; then a short exponent (a long one would be a number nobody can
# compare). ASCII digits only.
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_NUMBER = re.compile(
    # A hyphen after a word, a digit or a bracket is a minus between two things or a dash, not a sign.
    r"(?P<sign>(?<![\w.)\]}])[-+\N{MINUS SIGN}])?"
    r"(?P<currency>\\?[$€£])?"
    rf"(?P<value>{_DIGITS}(?:\.[0-9]+)?|(?<![0-9.])\.[0-9]+)"
    r"(?P<exponent>[eE][-+]?[0-9]{1,3}(?![\w]))?"
)


def numbers(text: str) -> Iterator[Decimal]:
    """Every number of a text, in order: ``-5``, ``1,234``, ``-$3.50``, ``2e-3``; ``10-3`` is 10 and 3."""
    for match in _NUMBER.finditer(text):
        yield _value(match)


def first_number(text: str) -> Decimal | None:
    """The first number of a text."""
    return next(numbers(text), None)


def last_number(text: str) -> Decimal | None:
    """The last number of a text."""
    found = list(numbers(text))
    return found[-1] if found else None


_OPERATOR_BETWEEN = re.compile(r"\s*(?:[-+*/×÷−]|\\times|\\cdot|plus|minus|times)\s*")


def last_result(text: str) -> Decimal | None:
    """The last number of a text, unless it is an operand: "0 + 7 means" has none, "0 + 7 = 7" has 7."""
    matches = list(_NUMBER.finditer(text))
    if not matches:
        return None
    if len(matches) > 1 and _OPERATOR_BETWEEN.fullmatch(text[matches[-2].end() : matches[-1].start()]):
        return None
    return _value(matches[-1])


def whole_number(text: str) -> Decimal | None:
    """The number that a text is, and nothing else beside it."""
    match = _NUMBER.fullmatch(text.strip())
    return None if match is None else _value(match)


def _value(match: re.Match[str]) -> Decimal:
    sign = "-" if match["sign"] in ("-", "\N{MINUS SIGN}") else ""
    return Decimal(sign + match["value"].replace(",", "") + (match["exponent"] or ""))


def last_boxed(text: str) -> str | None:
    r"""What the last ``\boxed{...}`` holds, braces inside included; None if there is none or it never closes."""
    _, found, rest = text.rpartition(r"\boxed{")
    if not found:
        return None
    depth = 1
    position = 0
    while position < len(rest):
        char = rest[position]
        if char == "\\":  # \{ and \} are printed braces
            position += 2
            continue
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return rest[:position].strip()
        position += 1
    return None
