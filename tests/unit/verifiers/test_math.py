"""The table of hand-checked pairs, and what goes beyond single pairs."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustax import verifiers
from trustax.types import Verdict
from trustax.verifiers import Request
from trustax.verifiers.values import read

pytest.importorskip("math_verify", reason="math-verify is missing: pdm install -G tasks")
PAIRS = json.loads((Path(__file__).parent / "math_pairs.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def math():
    return verifiers.build("math")


def verdict(verifier, answer: str, completion: str) -> Verdict:
    return verifier(completion=completion, example_prompt="", answer=answer, metadata="{}").verdict


def test_the_hand_checked_pairs(math) -> None:
    """No false accept, and at most 1 % false rejects."""
    assert len(PAIRS) >= 300
    outcomes = verifiers.judge(math, [Request(pair["completion"], "", pair["answer"], "{}") for pair in PAIRS])
    accepted = [outcome.verdict is Verdict.CORRECT for outcome in outcomes]
    judged = list(zip(PAIRS, accepted, strict=True))
    assert [pair for pair, yes in judged if yes and not pair["correct"]] == []
    rejects = [pair for pair, yes in judged if pair["correct"] and not yes]
    assert len(rejects) <= sum(pair["correct"] for pair in PAIRS) // 100, rejects


def test_every_right_answer_of_the_table_equals_itself(math) -> None:
    answers = sorted({pair["answer"] for pair in PAIRS})
    outcomes = verifiers.judge(math, [Request(rf"\boxed{{{a}}}", "", a, "{}") for a in answers if "%" not in a])
    assert {outcome.verdict for outcome in outcomes} == {Verdict.CORRECT}


def test_right_answer_and_completion_cannot_be_swapped(math) -> None:
    """V02: only the right answer's side is relaxed."""
    assert verdict(math, "x<7", r"$(-\infty, 7)$") == Verdict.CORRECT
    assert verdict(math, "(2, 9.5)", "2<x<9.5") == Verdict.WRONG
    assert verdict(math, r"(-\infty, 7)", "x<7") == Verdict.WRONG
    assert verdict(math, "2<x<9.5", "(2, 9.5)") == Verdict.CORRECT


@pytest.mark.parametrize(
    ("completion", "answer", "expected"),
    [
        (r"\boxed{4}, later \boxed{9}", "9", Verdict.CORRECT),
        (r"\boxed{\frac{2}{5}}", r"\frac{2}{5}", Verdict.CORRECT),
        (r"\boxed{9", "9", Verdict.UNPARSABLE),
        ("Both of them.\nThat makes 9.", "9", Verdict.UNPARSABLE),
        ("#### -5", "-5", Verdict.CORRECT),
        ("#### 1,234", "1234", Verdict.CORRECT),
        ("#### 63\n" + "and so on " * 40, "63", Verdict.CORRECT),
        ("", "63", Verdict.UNPARSABLE),
        ("63", " ", Verdict.ERROR),
    ],
)
def test_where_an_answer_stands(math, completion: str, answer: str, expected: Verdict) -> None:
    """V04: ad-hoc patterns elsewhere read the first box, half a fraction or a lone comma."""
    assert verdict(math, answer, completion) == expected


def test_without_algebra_formulas_that_read_differently_are_wrong() -> None:
    plain = verifiers.build("math", algebra=False)
    assert verdict(plain, r"2\sqrt{2}", r"2 \sqrt{2}") == Verdict.CORRECT
    assert verdict(plain, r"2\sqrt{2}", r"\sqrt{8}") == Verdict.WRONG


def test_no_text_makes_it_raise() -> None:
    plain = verifiers.build("math", algebra=False)
    pieces = [
        r"\boxed{", "}", "(", ")", "[", r"\{", r"\frac", "{1}", "1", "/", "0", "^", ",", r"\pm", "%", "<", "=", "x",
        r"\text{", "$", "answer is ", " or ", r"\cup", r"\overline{", "e9", "٣", "\ud800", " ",
    ]  # fmt: skip

    @given(st.text(max_size=40) | st.lists(st.sampled_from(pieces), max_size=12).map("".join))
    def check(completion: str) -> None:
        assert verdict(plain, "7", completion) in (Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSABLE)
        read(completion)

    check()
    assert verdict(plain, "7", "(" * 1500 + "7" + ")" * 1500) == Verdict.UNPARSABLE
    assert verdict(plain, "7", "10^{999999999}") == Verdict.WRONG


@given(st.fractions(min_value=-1000, max_value=1000, max_denominator=50))
def test_a_fraction_in_all_its_notations_and_its_neighbours(value) -> None:
    plain, sign = verifiers.build("math", algebra=False), "-" if value < 0 else ""
    over, under = abs(value.numerator), value.denominator
    whole, rest = divmod(over, under)
    spellings = [
        f"{sign}{over}/{under}",
        rf"{sign}\frac{{{over}}}{{{under}}}",
        rf"{sign}\dfrac{{{2 * over}}}{{{2 * under}}}",
    ]
    if whole and rest:
        spellings.append(rf"{sign}{whole}\frac{{{rest}}}{{{under}}}")
    for spelling in spellings:
        assert verdict(plain, str(value), rf"\boxed{{{spelling}}}") == Verdict.CORRECT
    for other in (value + 1, -value or 1, value + 1 / (under + value.denominator)):
        assert verdict(plain, str(value), str(other)) == Verdict.WRONG


def test_an_operand_is_no_result() -> None:
    strict = verifiers.build("last_number", operands=False)
    for text, expected in (("0 + 7 means", "U"), ("0 + 7 = 7", "C"), ("3 - 10", "U"), ("7", "C"), ("5, then 7", "C")):
        outcome = strict(completion=text, example_prompt="", answer="7", metadata="{}")
        assert outcome.verdict.name[0] == expected, text
    assert verdict(verifiers.build("last_number"), "7", "0 + 7 means") == Verdict.CORRECT  # the flaw that is documented


def test_answers_that_parse_to_nothing_are_found_before_a_run() -> None:
    math = verifiers.build("math", algebra=False)
    verifiers.check_answers(math, [(0, "7")], name="set")
    with pytest.raises(
        ValueError, match=r"set: the verifier can't use 2 of its answers: example 1: the answer '\$\$' has"
    ):
        verifiers.check_answers(math, [(0, "7"), (1, "$$"), (2, " ")], name="set")
    with pytest.raises(ValueError, match="example 3: the answer 'seven' is no number"):
        verifiers.check_answers(verifiers.build("last_number"), [(3, "seven")], name="set")
