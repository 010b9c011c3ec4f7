import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustax import verifiers
from trustax.types import Verdict

LAST = verifiers.build("last_number")
C, W, U, E = Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSABLE, Verdict.ERROR


def verdict(verifier: verifiers.Verifier, completion: str, answer: str) -> Verdict:
    outcome = verifier(completion=completion, example_prompt="", answer=answer, metadata="{}")
    assert outcome.reward == (1.0 if outcome.verdict == C else 0.0)
    return outcome.verdict


@pytest.mark.parametrize(
    ("completion", "answer", "expected"),
    [
        ("72", "72", C),
        ("That makes 72 coins, in total.", "72", C),
        ("72.0", "72", C),
        ("1234", "1,234", C),
        ("#### -5", "-5", C),
        ("#### 5", "-5", W),
        ("#### 63" + " and 7 more words" * 25, "63", C),
        ("#### 63 #### 64", "63", W),
        ("12 ####", "12", U),
        ("3 + 4 = 7", "4", W),
        ("seven", "7", U),
        ("", "7", U),
        ("7", "seven", E),
        ("0.1", "0.10", C),
        ("0.3", "0.30000000000000004", W),
        ("9" * 400, "9" * 400, C),
        ("1e999", "72", W),
    ],
)
def test_last_number(completion: str, answer: str, expected: Verdict) -> None:
    assert verdict(LAST, completion, answer) == expected


def test_first_number_and_markers() -> None:
    first = verifiers.build("first_number")
    assert verdict(first, "7, since 3 + 4 is 7, not 8", "7") == C
    assert verdict(first, "8 or 7", "7") == W
    unmarked = verifiers.build("last_number", marker=None)
    assert verdict(unmarked, "#### 63 of 64", "64") == C
    assert verdict(verifiers.build("last_number", marker="Answer:"), "Answer: 5 of 9", "5") == C


def test_boxed() -> None:
    strict, loose = verifiers.build("boxed"), verifiers.build("boxed", strict=False)
    for verifier in (strict, loose):
        assert verdict(verifier, r"\boxed{4}, later \boxed{9}", "9") == C
        assert verdict(verifier, r"\boxed{\frac{2}{5}}", r"\frac{2}{ 5 }") == C
        assert verdict(verifier, r"\boxed{1,234.0}", "1234") == C
        assert verdict(verifier, r"\boxed{9} is not \boxed{8}", "9") == W
        assert verdict(verifier, r"9 \boxed{9", "9") == U  # cut off, or never meant as an answer
        assert verdict(verifier, r"9 \boxed{}", "9") == U
    assert verdict(strict, "the answer is 9", "9") == U
    assert verdict(loose, "the answer is 9", "9") == C


def test_exact() -> None:
    exact = verifiers.build("exact")
    assert verdict(exact, " Paris\n", "Paris") == C
    assert verdict(exact, "paris", "Paris") == W
    assert verdict(exact, "Paris.", "Paris") == W
    assert verdict(exact, " ", "Paris") == U
    assert verdict(verifiers.build("exact", ignore_case=True), "PARIS", "Paris") == C


@pytest.mark.parametrize("name", ["exact", "last_number", "first_number", "boxed"])
def test_no_text_makes_a_verifier_raise(name: str) -> None:
    verifier = verifiers.build(name)
    pieces = ["\\boxed{", "}", "#### ", "-", "1,", "234", ".", "$", "e9", "\\", "٣", "\x00", "\ud800", " "]

    @given(st.text(max_size=40) | st.lists(st.sampled_from(pieces)).map("".join))
    def check(completion: str) -> None:
        assert verdict(verifier, completion, "7") in (C, W, U)

    check()


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_gold_gets_full_marks_and_its_neighbours_none(gold: int, other: int) -> None:
    boxed = verifiers.build("boxed")
    for answer, expected in ((gold, C), (gold + 1, W), (gold - 1, W), (other, C if other == gold else W)):
        assert verdict(LAST, f"So it is {answer}.", str(gold)) == expected
        assert verdict(boxed, f"So it is \\boxed{{{answer}}}.", str(gold)) == expected


def test_arguments_are_named() -> None:
    """V02: callers elsewhere swapped the answer and the right answer."""
    with pytest.raises(TypeError):
        LAST("7", "", "7", "{}")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("last_numbr", {}, r"no verifier 'last_numbr' \(did you mean 'last_number'\?\); there are exact"),
        ("boxed", {"stric": True}, r"no option 'stric' \(did you mean 'strict'\?\); it has strict"),
        ("python", {}, "needs the option path"),
        ("exact", {"strict": True}, "no option 'strict'; it has ignore_case"),
    ],
)
def test_unknown_names_and_options_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verifiers.build(name, **options)
