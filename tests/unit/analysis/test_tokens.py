"""Tokens coloured or bracketed by what became of them."""

import io

import pytest
from rich.console import Console

from trustax.analysis.outcome import print_outcome
from trustax.analysis.tokens import colour_divergence, colour_masked, mark_masked, visible

RECORD = {
    "step": 3, "kind": "train", "prompt": "4+5=", "answer": "9", "completion": "4 + 5 = 9", "verdict": "correct",
    "tokens": ["4", " + 5", " =", " 9"], "kept": [True, True, False, True], "divergence": [0.0, 0.01, 0.2, None],
    "advantage": 0.5,
}  # fmt: skip


def test_masked_tokens_are_in_brackets():
    assert mark_masked(RECORD) == "4 + 5[ =] 9"
    assert mark_masked({"tokens": ["a", "b"]}) == "ab"  # an evaluation has no mask


def test_masked_tokens_are_coloured():
    text = colour_masked(RECORD)
    assert text.plain == "4 + 5 = 9"
    styles = [str(span.style) for span in text.spans]
    assert styles == ["green", "green", "white on red", "green"]


def test_divergence_is_a_ground_from_white_to_red():
    text = colour_divergence(RECORD, delta=0.1)
    styles = [str(span.style) for span in text.spans]
    assert styles == [
        "rgb(0,0,0) on rgb(255,255,255)", "rgb(0,0,0) on rgb(255,230,230)", "rgb(0,0,0) on rgb(255,0,0)", "bright_black"
    ]  # fmt: skip
    with pytest.raises(ValueError, match="delta must be above 0"):
        colour_divergence(RECORD, delta=0.0)


def test_a_record_whose_parts_differ_in_length_is_refused():
    with pytest.raises(ValueError):
        mark_masked({"tokens": ["a", "b"], "kept": [True]})


def test_nothing_a_model_writes_can_steer_the_terminal():
    assert visible("a\nb\tc\x1b[2J\x07é") == "a⏎b⇥c\\x1b[2J\\x07é"


SUMMARY = {"name": "toy", "objective": "pdm_topk_kl", "steps": 5, "seed": 0,
           "eval_before": 0.16, "eval_after": 0.85, "greedy_before": 0.71, "greedy_after": 0.66}  # fmt: skip


def evaluation(step: int, prompt: str, completion: str, verdict: str) -> dict:
    return {"step": step, "kind": "eval", "prompt": prompt, "answer": "9", "completion": completion, "verdict": verdict}


def printed(samples, **keywords) -> str:
    out = io.StringIO()
    print_outcome(Console(file=out, width=100, **keywords), SUMMARY, samples)
    return out.getvalue()


def test_the_outcome_shows_accuracy_samples_and_masked_tokens():
    samples = [
        evaluation(0, "4+5=", "[b]no idea[/b]", "wrong"),
        evaluation(2, "4+5=", "in between", "wrong"),
        evaluation(5, "4+5=", "9", "correct"),
        evaluation(0, "only before", "x", "unparsable"),
        RECORD,
        RECORD | {"kept": [True] * 2, "tokens": ["nothing was", " masked"]},
    ]
    out = printed(samples)
    assert "16.0%" in out and "85.0%" in out and "+69.0 points" in out and "-5.0 points" in out
    assert "[b]no idea[/b]  (wrong)" in out and "9  (correct)" in out
    assert "in between" not in out and "only before" not in out and "nothing was masked" not in out
    assert "4 + 5[ =] 9" in out and "\x1b" not in out
    assert "\x1b[" in printed(samples, force_terminal=True)


def test_without_samples_the_accuracy_stands_alone():
    assert printed([]).count("held-out") == 1
