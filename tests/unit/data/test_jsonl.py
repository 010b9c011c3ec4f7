import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustax.data import JsonlConfig, read_jsonl
from trustax.data.jsonl import read_splits


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "own.jsonl"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def line(prompt: object = "2+2", answer: object = "4", **extra: object) -> str:
    return json.dumps({"prompt": prompt, "answer": answer, **extra}) + "\n"


def test_extra_keys_become_metadata(write) -> None:
    (example,) = read_jsonl(write(line(level=3, tags=["a"])))
    assert (example.index, example.prompt, example.answer) == (0, "2+2", "4")
    assert json.loads(example.metadata) == {"level": 3, "tags": ["a"]}


def test_encodings_of_other_systems(write) -> None:
    text = '\ufeff{"prompt": "größer? \u2028 汉字 🙂", "answer": "ü"}\r\n\r\n{"prompt": "b", "answer": "c"}\r\n'
    first, second = read_jsonl(write(text))
    assert (first.prompt, first.answer) == ("größer? \u2028 汉字 🙂", "ü")
    assert (second.index, second.prompt, second.answer) == (1, "b", "c")


@pytest.mark.parametrize(
    ("value", "text"), [(4, "4"), (-3, "-3"), (2.5, "2.5"), (True, "true"), (["4"], "4"), ([4], "4"), (0, "0")]
)
def test_answers_that_are_not_text_are_written_as_text_and_counted(write, caplog, value: object, text: str) -> None:
    """D01: integer and list answers."""
    with caplog.at_level(logging.WARNING):
        examples = read_jsonl(write(line() + line(answer=value)))
    assert examples[1].answer == text
    assert "1 of 2 answers were not text" in caplog.text


def test_answers_that_are_text_are_kept_as_they_are(write, caplog) -> None:
    assert read_jsonl(write(line(answer=" 4 ")))[0].answer == " 4 "
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line() + "{nope\n", "own.jsonl: line 2: not valid JSON"),
        (line() + "\n" + json.dumps({"prompt": "x"}) + "\n", r"line 3: no 'answer' \(keys: 'prompt'\)"),
        (line(answer=None), "line 1: no 'answer'"),
        (json.dumps({"question": "x", "answer": 1}), "line 1: no 'prompt' .*'question', 'answer'"),
        (line(answer=["1", "2"]), "line 1: 'answer' is a list of 2 entries"),
        (line(answer={"a": 1}), "must be text or a number, got dict"),
        (line(answer=" "), "'answer' is empty"),
        (line(prompt=""), "'prompt' must be text that is not empty"),
        (line(prompt=7), "'prompt' must be text"),
        ("[1]\n", "expected a JSON object, got list"),
        ('{"prompt": "x", "answer": NaN}', "line 1: not valid JSON"),
        ('{"prompt": "\\ud800", "answer": "1"}', "line 1: not valid JSON"),
        ("[" * 100_000, "line 1: not valid JSON"),
        ("", "holds no example"),
        ("\n \n", "holds no example"),
        (b"\xff\xfe{\x00", "not UTF-8"),
    ],
)
def test_bad_files_are_refused_with_the_line(write, text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_jsonl(write(text))


def test_all_bad_lines_are_reported_at_once_but_not_endlessly(write) -> None:
    with pytest.raises(ValueError, match=r"line 1: .*; line 5: .*; and 3 more lines$"):
        read_jsonl(write("{}\n" * 8))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent.jsonl can't be read: No such file"):
        read_jsonl(tmp_path / "absent.jsonl")
    with pytest.raises(ValueError, match="can't be read: Is a directory"):
        read_jsonl(tmp_path)


def test_other_key_names(write) -> None:
    path = write(json.dumps({"question": "2+2", "solution": 4, "prompt": "kept"}))
    (example,) = read_jsonl(path, prompt_key="question", answer_key="solution")
    assert (example.prompt, example.answer, example.metadata) == ("2+2", "4", '{"prompt": "kept"}')


def test_repeated_prompts_stay_on_one_side(write) -> None:
    path = write("".join(line(f"p{i % 6}", i) for i in range(12)))
    for seed in range(5):
        splits = read_splits(JsonlConfig(str(path), test_size=4, seed=seed))
        prompts = {name: {example.prompt for example in side} for name, side in splits.items()}
        assert not prompts["train"] & prompts["test"]
        assert (len(splits["train"]), len(splits["test"])) == (8, 4)
        assert [example.index for example in splits["train"]] == list(range(8))
        answers = [int(example.answer) for example in splits["train"]]
        assert answers == sorted(answers)  # file order
    with pytest.raises(ValueError, match="can't hold out exactly 3"):
        read_splits(JsonlConfig(str(path), test_size=3))
    with pytest.raises(ValueError, match="can't hold out exactly 12"):
        read_splits(JsonlConfig(str(path), test_size=12))


def test_a_test_file_of_its_own(write, tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(line("other", "1"))
    splits = read_splits(JsonlConfig(str(write(line())), test_path=str(tmp_path / "test.jsonl")))
    assert [example.prompt for example in splits["test"]] == ["other"]
    with pytest.raises(ValueError, match="not both"):
        JsonlConfig("x", test_path="y", test_size=3)


def test_any_text_is_read_or_refused_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "any.jsonl"

    @given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"any\.jsonl"):
            read_jsonl(path)

    check()
