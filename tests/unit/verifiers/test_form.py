import pytest

from trustax import verifiers
from trustax.types import Verdict

C, W, U = Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSABLE


def verdict(verifier, completion: str, answer: str = "7") -> Verdict:
    return verifier(completion=completion, example_prompt="", answer=answer, metadata="{}").verdict


def test_a_pattern_finds_the_last_answer() -> None:
    regex = verifiers.build("regex", pattern=r"Answer: (?P<answer>\w+)")
    assert verdict(regex, "Answer: 6, no, Answer: 7") == C
    assert verdict(regex, "Answer: 6") == W
    assert verdict(regex, "7") == U
    assert verdict(verifiers.build("regex", pattern="total", ignore_case=True), "Total 7") == C


def test_a_pattern_that_never_ends_is_a_timeout() -> None:
    regex = verifiers.build("regex", pattern="(a+)+$", limit_s=0.3)
    assert verdict(regex, "a" * 60 + "b") == Verdict.TIMEOUT
    assert verdict(regex, "aa") == C


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>3 + 4</think>\n<answer>7</answer>\n", C),
        ("<think>3 + 4</think><answer></answer>", W),
        ("<answer>7</answer><think>3 + 4</think>", W),
        ("<think>3 + 4</think><answer>7</answer> indeed", W),
        ("So <think>3 + 4</think><answer>7</answer>", W),
        ("<think>a</think><think>b</think><answer>7</answer>", W),
        ("<think>3 + 4<answer>7</answer></think>", W),
        ("<think>3 + 4</think>", W),
        ("", W),
    ],
)
def test_sections_in_order(completion: str, expected: Verdict) -> None:
    assert verdict(verifiers.build("format"), completion) == expected


def test_weights_make_one_reward() -> None:
    parts = [
        {"name": "math", "weight": 0.8, "options": {"algebra": False}},
        {"name": "format", "weight": 0.2, "options": {"tags": ["answer"]}},
    ]
    both = verifiers.build("weighted", parts=parts)

    def outcome(completion: str) -> tuple[Verdict, float]:
        found = both(completion=completion, example_prompt="", answer="7", metadata="{}")
        return found.verdict, pytest.approx(found.reward)

    assert outcome("<answer>7</answer>") == (C, 1.0)
    assert outcome("7") == (C, 0.8)
    assert outcome("<answer>8</answer>") == (W, 0.2)
    assert outcome("8") == (W, 0.0)


def test_half_a_grade_is_no_grade() -> None:
    parts = [{"name": "format", "options": {"tags": ["answer"]}}, {"name": "last_number"}]
    outcome = verifiers.build("weighted", parts=parts)(
        completion="<answer>7</answer>", example_prompt="", answer="seven", metadata="{}"
    )
    assert outcome == (Verdict.ERROR, 0.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("regex", {"pattern": "("}, "not a regular expression"),
        ("format", {"tags": []}, "tags must be one or more names"),
        ("weighted", {"parts": []}, "parts is empty"),
        ("weighted", {"parts": [{"nmae": "math"}]}, "has name, options and weight, got nmae"),
        ("weighted", {"parts": [{"name": "exact", "weight": -1}]}, "weights must be at least 0"),
        ("weighted", {"parts": [{"name": "exat"}]}, "did you mean 'exact'"),
        ("math", {"algebra": True, "limit_s": -1}, "limit_s must be above 0"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verifiers.build(name, **options)
