"""The papers' sets, from small files in their schemas that are made here: no real file has been read."""

import json
import logging
from pathlib import Path

import pytest

from trustax.data import DataConfig, MixtureConfig, PublishedConfig, load
from trustax.data.config import PUBLISHED
from trustax.data.published import SETS

VERL = {"data_source": "math_dapo", "ability": "MATH", "extra_info": {"index": "a"}}
ROWS = {
    "dapo_math_17k": VERL | {"prompt": [{"role": "user", "content": "Solve: 3 + 4"}]}
    | {"reward_model": {"ground_truth": "7", "style": "rule"}},
    "aime24": {"ID": "2024-I-1", "Problem": "3 + 4", "Solution": "It is 7.", "Answer": 7},
    "aime25": {"id": "0", "problem": "3 + 4", "answer": "7"},
    "aime26": {"problem_idx": 1, "problem": "3 + 4", "answer": 7},
    "math": {"problem": "3 + 4", "level": "Level 1", "type": "Algebra", "solution": r"So $3 + 4 = \boxed{7}$."},
    "math500": {"problem": "3 + 4", "solution": "…", "answer": "7", "subject": "Algebra", "level": 1, "unique_id": "a"},
    "gsm8k": {"question": "3 + 4", "answer": "3 + 4 = <<3+4=7>>7\n#### 7"},
    "amc": {"id": 0, "question": "3 + 4", "answer": 7.0, "url": ""},
    "minerva": {"question": "3 + 4", "answer": "7"},
    "olympiadbench": {"id": 1, "question": "3 + 4", "final_answer": ["$7$"], "is_multiple_answer": False},
}  # fmt: skip


def write(folder: Path, name: str, rows: list[dict], *, end: str = "jsonl") -> Path:
    (_, files), *_ = SETS[name].files.items()
    path = folder / next(file for file in files if file.endswith(end))
    if end == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def source(folder: Path, name: str, **options):
    (split, _), *_ = SETS[name].files.items()
    config = PublishedConfig(name, path=str(folder), **options)
    return load(DataConfig(source=config, folder=str(folder / "prepared")), split)


def test_every_set_has_a_row_here() -> None:
    assert set(ROWS) == set(SETS) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("end", ["jsonl", "parquet"])
def test_a_file_in_the_sets_schema_is_read(name: str, end: str, tmp_path: Path) -> None:
    write(tmp_path, name, [ROWS[name]], end=end)
    (example,) = source(tmp_path, name)
    assert example.prompt.endswith("3 + 4") and example.answer == "7"


def test_without_a_file_the_error_says_which_and_where(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"MATH-500 isn't in .*: download HuggingFaceH4/MATH-500 .* \(test: math500.parquet or"
    ):
        source(tmp_path, "math500")


def test_another_schema_is_refused_with_both_lists_of_columns(tmp_path: Path) -> None:
    write(tmp_path, "gsm8k", [{"Question": "3 + 4", "answer": "7"}])
    with pytest.raises(
        ValueError, match=r"not in the schema of GSM8K: expected the columns question, answer; found Question, answer"
    ):
        source(tmp_path, "gsm8k")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gsm8k", {"answer": "7"}, "row 1: 'answer' has no '####'"),
        ("math", {"solution": "7"}, r"row 1: 'solution' has no \\boxed"),
        ("math500", {"answer": " "}, "row 1: an empty answer"),
        ("math500", {"answer": None}, "row 1: expected text or a number, got NoneType"),
        ("olympiadbench", {"final_answer": []}, "row 1: 'final_answer' is empty"),
        ("dapo_math_17k", {"prompt": []}, "row 1: 'prompt' has 0 messages of a user"),
    ],
)
def test_bad_rows_are_named(name: str, change: dict, message: str, tmp_path: Path) -> None:
    write(tmp_path, name, [ROWS[name] | change])
    with pytest.raises(ValueError, match=message):
        source(tmp_path, name)


def test_a_corrupt_parquet_is_one_clear_error(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write(tmp_path, "aime25", [ROWS["aime25"]], end="parquet")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"aime25.parquet is not a parquet file that can be read"):
        source(tmp_path, "aime25")


def dapo(prompt: str, answer: str) -> dict:
    return VERL | {"prompt": [{"role": "user", "content": prompt}], "reward_model": {"ground_truth": answer}}


def test_the_subset_of_dapo_is_what_is_documented(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        dapo("a", "1"),
        dapo("b", "2"),
        dapo("a", "1"),
        dapo("c", "3"),
        dapo("c", "4"),
        dapo("求 d", "5"),
        dapo("e", "1/2"),
    ]
    write(tmp_path, "dapo_math_17k", rows)
    with caplog.at_level(logging.WARNING):
        kept = source(tmp_path, "dapo_math_17k")
    assert [(one.index, one.prompt, one.answer) for one in kept] == [(0, "a", "1"), (1, "b", "2")]
    assert "kept 2 examples (7 rows, 5 questions, 4 with one answer, 3 without Chinese)" in caplog.text
    assert len(source(tmp_path, "dapo_math_17k", filtered=False)) == 7


def test_a_filter_that_leaves_nothing_says_why(tmp_path: Path) -> None:
    write(tmp_path, "dapo_math_17k", [dapo("求 d", "5"), dapo("e", "1/2")])
    with pytest.raises(
        ValueError, match="the filter leaves nothing: 2 rows, 2 questions, 2 with one answer, 1 without Chinese, 0"
    ):
        source(tmp_path, "dapo_math_17k")


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    write(tmp_path, "aime25", [ROWS["aime25"]])
    assert source(tmp_path, "aime25")[0].answer == "7"
    write(tmp_path, "aime25", [ROWS["aime25"] | {"answer": "8"}])
    assert source(tmp_path, "aime25")[0].answer == "8"


def test_training_and_held_out_questions_from_different_sets(tmp_path: Path) -> None:
    for name in ("dapo_math_17k", "aime24", "aime25"):
        write(tmp_path, name, [ROWS[name]])
    one = {name: PublishedConfig(name, path=str(tmp_path)) for name in ("dapo_math_17k", "aime24", "aime25")}
    both = MixtureConfig((one["aime24"], one["aime25"]))
    config = DataConfig(source=one["dapo_math_17k"], test_source=both, folder=str(tmp_path / "prepared"))
    assert len(load(config, "train")) == 1
    test = load(config, "test")
    assert [test[i].index for i in range(len(test))] == [0, 1]
    with pytest.raises(ValueError, match=r"dapo_math_17k has no test split, only train; set data\.test_source"):
        load(DataConfig(source=one["dapo_math_17k"], folder=str(tmp_path / "prepared")), "test")
