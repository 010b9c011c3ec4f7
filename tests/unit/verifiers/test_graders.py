import json
import logging
import math
import sys
import types

import pytest

from trustax import verifiers
from trustax.data import Example, ReasoningGymConfig
from trustax.data.reasoning import split
from trustax.types import Verdict

# Ten tasks of different kinds: arithmetic, algebra, words, logic, games, grids whose records hold tuples.
TASKS = (
    "chain_sum", "countdown", "number_sorting", "simple_equations", "letter_counting", "spell_backward",
    "knights_knaves", "mini_sudoku", "rearc", "base_conversion",
)  # fmt: skip


@pytest.fixture(scope="module")
def score():
    verifier = verifiers.build("reasoning_gym", limit_s=None)

    def score(example: Example, completion: str) -> verifiers.Outcome:
        return verifier(
            completion=completion, example_prompt=example.prompt, answer=example.answer, metadata=example.metadata
        )

    return score


@pytest.mark.parametrize("task", TASKS)
def test_gold_gets_full_marks_and_nothing_else_does(score, task: str) -> None:
    """V05: a scorer that misses its own gold answer, or is content with another, teaches the wrong thing."""
    examples = split(ReasoningGymConfig(task, train_size=1, test_size=4))["test"]
    for number, example in enumerate(examples):
        assert score(example, example.answer) == (Verdict.CORRECT, 1.0)
        assert score(example, f"  {example.answer}\n").verdict == Verdict.CORRECT
        assert score(example, " \n") == (Verdict.UNPARSABLE, 0.0)
        others = [examples[number - 1].answer, example.answer[::-1], "?", "I don't know"]
        for other in others:
            if other.strip() != example.answer.strip():
                outcome = score(example, other)
                assert outcome.verdict in (Verdict.WRONG, Verdict.ERROR) and outcome.reward < 1.0, other


def record(task: str, entry: dict) -> Example:
    metadata = {"reasoning_gym": {"task": task, "options": {}, "entry": repr(entry)}}
    return Example(0, entry["question"], entry["answer"], json.dumps(metadata))


@pytest.mark.parametrize(
    ("completion", "expected"),
    [("15", False), ("3*5*1", False), ("7+5+3", True), ("5+5+5", False), ("3*5", False), ("3+5+7=15", False)],
)
def test_countdown_uses_the_given_numbers(score, completion: str, expected: bool) -> None:
    """V05: the value alone is not the answer; this task's questions want every number used."""
    entry = {"question": "countdown", "answer": "3 + 5 + 7", "metadata": {"numbers": [3, 5, 7], "target": 15}}
    assert (score(record("countdown", entry), completion).verdict == Verdict.CORRECT) == expected


def test_number_sorting_expects_the_numbers_shown(score) -> None:
    (example,) = split(ReasoningGymConfig("number_sorting", train_size=1, test_size=1))["test"]
    entry = {"metadata": {"sorted_numbers": ["-41.27", "-3.5", "8.36"], "direction": "ascending"}}
    entry |= {"question": example.prompt, "answer": "['-41.27', '-3.5', '8.36']"}
    assert score(record("number_sorting", entry), "['-41.27', '-3.5', '8.36']").verdict == Verdict.CORRECT
    assert score(record("number_sorting", entry), "['8.36', '-3.5', '-41.27']").verdict == Verdict.WRONG


def test_partial_marks_stay_a_reward(score) -> None:
    (example,) = split(ReasoningGymConfig("chain_sum", train_size=1, test_size=1))["test"]
    outcome = score(example, f"It is {example.answer}")
    assert outcome.verdict == Verdict.WRONG and 0.0 < outcome.reward < 1.0


def test_only_what_stands_in_the_tag_is_scored() -> None:
    tagged = verifiers.build("reasoning_gym", tag="answer", workers=1)  # in a process of its own
    (example,) = split(ReasoningGymConfig("chain_sum", train_size=1, test_size=1))["test"]

    def verdict(completion: str) -> Verdict:
        return tagged(completion=completion, example_prompt="", answer="", metadata=example.metadata).verdict

    assert verdict(f"<answer>1</answer> no: <answer> {example.answer} </answer>.") == Verdict.CORRECT
    assert verdict(f"<answer>{example.answer}") == Verdict.UNPARSABLE
    assert verdict(example.answer) == Verdict.UNPARSABLE


def test_a_source_without_the_record_is_refused(score) -> None:
    with pytest.raises(ValueError, match="needs examples of a reasoning-gym source; these have metadata a"):
        score(Example(0, "", "", '{"a": 1}'), "7")


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("my_rewards")
    monkeypatch.setitem(sys.modules, "my_rewards", module)
    return module


def grade(result):
    verifier = verifiers.build("python", path="my_rewards:score", limit_s=None)
    return verifier(completion="abc", example_prompt="p", answer="3", metadata="{}")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (True, (Verdict.CORRECT, 1.0)),
        (False, (Verdict.WRONG, 0.0)),
        (0.25, (Verdict.WRONG, 0.25)),
        (verifiers.Outcome(Verdict.TIMEOUT, 0.0), (Verdict.TIMEOUT, 0.0)),
        (None, (Verdict.ERROR, 0.0)),
        ("1", (Verdict.ERROR, 0.0)),
        (math.nan, (Verdict.ERROR, 0.0)),
        (verifiers.Outcome(Verdict.CORRECT, math.inf), (Verdict.ERROR, 0.0)),
    ],
)
def test_a_users_function_may_return(user_module, result: object, expected: tuple) -> None:
    user_module.score = lambda *, completion, example_prompt, answer, metadata: result
    assert grade(result) == expected


def test_a_users_function_gets_the_example(user_module) -> None:
    user_module.score = lambda completion, example_prompt, answer, metadata: (
        (completion, example_prompt, answer, metadata) == ("abc", "p", "3", "{}")
    )
    assert grade(True).verdict == Verdict.CORRECT


def test_a_users_function_that_raises_is_a_verdict_and_logged_once(user_module, caplog) -> None:
    def score(**_: str) -> float:
        raise KeyError("oops")

    user_module.score = score
    verifier = verifiers.build("python", path="my_rewards:score", limit_s=None)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            outcome = verifier(completion="", example_prompt="", answer="", metadata="{}")
            assert outcome == (Verdict.ERROR, 0.0)
    assert len(caplog.records) == 1 and "KeyError: 'oops'" in caplog.text


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_rewards", "needs path='module:function'"),
        ("no_such_module:score", "can't be imported"),
        ("my_rewards:absent", "has no function 'absent'"),
        ("my_rewards:few", "must accept the named arguments completion, example_prompt, answer, metadata"),
    ],
)
def test_a_wrong_path_is_refused_when_the_run_starts(user_module, path: str, message: str) -> None:
    user_module.few = lambda completion: 1.0
    with pytest.raises(ValueError, match=message):
        verifiers.build("python", path=path)
