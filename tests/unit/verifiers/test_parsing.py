from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustax.verifiers.parsing import first_number, last_boxed, last_number, numbers, whole_number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # V04: reported elsewhere as a lone comma, a lost sign, and the first digit of a number
        ("That makes 72 coins, in total.", ["72"]),
        ("#### -5", ["-5"]),
        ("#### 1,234", ["1234"]),
        ("Reward: 12", ["12"]),
        # signs
        ("10-3=7", ["10", "3", "7"]),
        ("10 - 3 = -7", ["10", "3", "-7"]),
        ("x=-5, (-6) and **-7**", ["-5", "-6", "-7"]),
        ("\N{MINUS SIGN}5 or +5", ["-5", "5"]),
        ("(1)-2 and x-3", ["1", "2", "3"]),
        # groups and decimals
        ("1,234,567.50", ["1234567.50"]),
        ("1,23", ["1", "23"]),
        ("1,2345", ["1", "2345"]),
        ("2024,100", ["2024", "100"]),
        ("3.14 .5 7.", ["3.14", "0.5", "7"]),
        ("v1.2.3", ["1.2", "3"]),
        # money, exponents, units
        ("-$3.50, $1,000, \\$4, €9", ["-3.50", "1000", "4", "9"]),
        ("1e3 2E-2 2eggs 1e5000 5kg", ["1000", "0.02", "2", "1", "5000", "5"]),
        ("50%", ["50"]),
        # nothing
        ("", []),
        (", . - $ e", []),
        ("forty-two ٤٢ ²", []),
    ],
)
def test_numbers_of_a_text(text: str, expected: list[str]) -> None:
    assert list(numbers(text)) == [Decimal(number) for number in expected]


def test_first_and_last() -> None:
    assert (first_number("3 then 4"), last_number("3 then 4")) == (3, 4)
    assert first_number("none") is None and last_number("none") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [(" 72 ", "72"), ("1,000", "1000"), ("-$5", "-5"), ("72 coins", None), ("3/4", None), ("", None)],
)
def test_whole_numbers(text: str, expected: str | None) -> None:
    assert whole_number(text) == (None if expected is None else Decimal(expected))


@given(st.integers(), st.text(st.characters(exclude_categories=["Nd", "No", "Nl", "Cs"], exclude_characters="#")))
def test_a_written_number_is_found_after_any_words(number: int, words: str) -> None:
    assert last_number(f"{words} {number}") == number
    assert last_number(f"{words} {number:,}.") == number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{4}, later \boxed{9}", "9"),
        (r"\boxed{\frac{2}{5}}", r"\frac{2}{5}"),
        (r"\boxed{9", None),
        (r"\boxed{4} and then \boxed{9", None),
        ("9", None),
        (r"\boxed{ \{1, 2\} } }", r"\{1, 2\}"),
        (r"\boxed{\text{a}_{b_{c}}} {", r"\text{a}_{b_{c}}"),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"\boxed{}", ""),
        ("\\boxed{1\\", None),
    ],
)
def test_last_box(text: str, expected: str | None) -> None:
    assert last_boxed(text) == expected


def test_long_texts_take_no_time() -> None:
    for text in ("1," * 50_000, "1,234" * 20_000, r"\boxed{" * 20_000, "{" * 100_000, "-" * 100_000, "." * 100_000):
        last_number(text)
        last_boxed(text)
