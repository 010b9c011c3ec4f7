"""The papers' sets, from files that a user has downloaded: which file, where to put it, and what stands in it.

No hub is reached. A schema is what the set's card or its users' loaders say; **all of them are unverified until a real
file has been read** here, so a file that differs is refused with the columns expected and found.
"""

import dataclasses
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trustax.data.tables import file_problem, read_rows
from trustax.data.types import Example, renumbered

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]
Parse = Callable[[Row], tuple[str, str]]  # a row's question and answer


@dataclasses.dataclass(frozen=True)
class Schema:
    """Columns that a file must have, and how a row of it is read."""

    columns: tuple[str, ...]
    parse: Parse


@dataclasses.dataclass(frozen=True)
class PublishedSet:
    """A set by its files: ``files[split]`` are names under the set's folder, the first that is there is read."""

    title: str
    source: str  # where the user finds it: owner/name of the data set, and its paper
    files: Mapping[str, tuple[str, ...]]
    schemas: tuple[Schema, ...]


def _pair(question: str, answer: str) -> Schema:
    return Schema((question, answer), lambda row: (_text(row[question]), _text(row[answer])))


def _chat(row: Row) -> tuple[str, str]:
    """verl's layout: the question is the user's message of ``prompt``, the answer ``reward_model.ground_truth``."""
    messages = [message for message in row["prompt"] if message["role"] == "user"]
    if len(messages) != 1:
        raise ValueError(f"'prompt' has {len(messages)} messages of a user, expected one")
    return _text(messages[0]["content"]), _text(row["reward_model"]["ground_truth"])


def _boxed_solution(row: Row) -> tuple[str, str]:
    match = _last_box(_text(row["solution"]))
    if match is None:
        raise ValueError("'solution' has no \\boxed{...} to take the answer from")
    return _text(row["problem"]), match


def _after_hashes(row: Row) -> tuple[str, str]:
    _, found, answer = _text(row["answer"]).rpartition("####")
    if not found:
        raise ValueError("'answer' has no '####' to take the answer from")
    return _text(row["question"]), answer.strip()


def _olympiad(row: Row) -> tuple[str, str]:
    answers = row["final_answer"]
    answers = [answers] if isinstance(answers, str) else list(answers)
    if not answers:
        raise ValueError("'final_answer' is empty")
    return _text(row["question"]), ", ".join(_text(answer).strip("$ ") for answer in answers)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected text or a number, got {type(value).__name__}")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _last_box(text: str) -> str | None:
    """The last ``\\boxed{...}`` or ``\\boxed 7`` of a worked solution."""
    place = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    rest = text[place:].partition("{")[2] if place >= 0 else ""
    short = re.match(r"\\boxed\s+([^\s{$.]+)", text[place:]) if place >= 0 else None
    if short is not None:
        return short[1]
    depth = 1
    for position, char in enumerate(rest):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return rest[:position].strip()
    return None


_VERL = Schema(("prompt", "reward_model"), _chat)
_QUESTION_OR_PROBLEM = (_pair("problem", "answer"), _pair("question", "answer"), _pair("Problem", "Answer"), _VERL)


def _files(*stems: str, split: str = "test") -> dict[str, tuple[str, ...]]:
    return {split: tuple(f"{stem}.{end}" for stem in stems for end in ("parquet", "jsonl"))}


SETS: dict[str, PublishedSet] = {
    "dapo_math_17k": PublishedSet(
        "DAPO-Math-17k",
        "BytedTsinghua-SIA/DAPO-Math-17k (arXiv 2503.14476)",
        _files("dapo-math-17k", split="train"),
        (_VERL,),
    ),
    "aime24": PublishedSet(
        "AIME 2024",
        "Maxwell-Jia/AIME_2024 or BytedTsinghua-SIA/AIME-2024",
        _files("aime24", "aime-2024"),
        _QUESTION_OR_PROBLEM,
    ),
    "aime25": PublishedSet(
        "AIME 2025", "math-ai/aime25 or opencompass/AIME2025", _files("aime25"), _QUESTION_OR_PROBLEM
    ),
    "aime26": PublishedSet("AIME 2026", "math-ai/aime26", _files("aime26"), _QUESTION_OR_PROBLEM),
    "math": PublishedSet(
        "MATH",
        "hendrycks/competition_math (arXiv 2103.03874)",
        _files("math-train", split="train") | _files("math-test"),
        (Schema(("problem", "solution"), _boxed_solution),),
    ),
    "math500": PublishedSet(
        "MATH-500", "HuggingFaceH4/MATH-500 (arXiv 2305.20050)", _files("math500"), (_pair("problem", "answer"),)
    ),
    "gsm8k": PublishedSet(
        "GSM8K",
        "openai/gsm8k, main (arXiv 2110.14168)",
        _files("gsm8k-train", split="train") | _files("gsm8k-test"),
        (Schema(("question", "answer"), _after_hashes),),
    ),
    "amc": PublishedSet("AMC 2023", "math-ai/amc23 or AI-MO/aimo-validation-amc", _files("amc"), _QUESTION_OR_PROBLEM),
    "minerva": PublishedSet(
        "Minerva", "math-ai/minervamath (arXiv 2206.14858)", _files("minerva"), (_pair("question", "answer"),)
    ),
    "olympiadbench": PublishedSet(
        "OlympiadBench",
        "Hothan/OlympiadBench, OE_TO_maths_en_COMP (arXiv 2402.14008)",
        _files("olympiadbench"),
        (Schema(("question", "final_answer"), _olympiad),),
    ),
}


def find_files(name: str, folder: str | Path) -> dict[str, Path]:
    """The file of each split that is there; a folder without any is refused with what to fetch and where to put it."""
    known = SETS[name]
    there = {split: [Path(folder) / file for file in files] for split, files in known.files.items()}
    present = {split: [path for path in paths if path.is_file()] for split, paths in there.items()}
    found = {split: paths[0] for split, paths in present.items() if paths}
    if not found:
        wanted = "; ".join(f"{split}: {' or '.join(files)}" for split, files in known.files.items())
        raise ValueError(
            f"{known.title} isn't in {folder}: download {known.source} and put its file there ({wanted}). "
            f"Nothing is fetched at run time"
        )
    return found


def read_published(name: str, path: Path, *, filtered: bool) -> list[Example]:
    """The examples of one file of a set; with ``filtered`` only those that ``select`` keeps (DAPO-Math-17k alone)."""
    known = SETS[name]
    rows = read_rows(path)
    columns = sorted({column for row in rows[:1] for column in row})
    schema = next((one for one in known.schemas if set(one.columns) <= set(columns)), None)
    if schema is None:
        expected = " or ".join(", ".join(one.columns) for one in known.schemas)
        raise ValueError(
            f"{path} is not in the schema of {known.title}: expected the columns {expected}; found "
            f"{', '.join(columns)}. The file should be {known.source}"
        )
    examples: list[Example] = []
    problems: list[str] = []
    for number, row in enumerate(rows, start=1):
        try:
            prompt, answer = schema.parse(row)
            if not prompt.strip() or not answer.strip():
                raise ValueError(f"an empty {'question' if not prompt.strip() else 'answer'}")
            examples.append(Example(len(examples), prompt, answer))
        except (KeyError, TypeError, ValueError) as error:
            problems.append(f"row {number}: {error}")
    if problems:
        raise file_problem(path, problems)
    return select(examples, name=str(path)) if filtered and name == "dapo_math_17k" else examples


def select(examples: list[Example], *, name: str) -> list[Example]:
    """A subset of DAPO-Math-17k in the size of the papers' "about 13k": theirs is not published, this one is ours.

    In order: (1) a question that occurs again is kept once (the file repeats each about a hundred times); (2) questions
    whose copies have different answers are dropped; (3) so are questions with Chinese characters; (4) and answers that
    are no whole numbers. The counts are logged.
    """
    answers: dict[str, set[str]] = {}
    for example in examples:
        answers.setdefault(example.prompt, set()).add(example.answer.strip())
    first: dict[str, Example] = {}
    for example in examples:
        first.setdefault(example.prompt, example)
    unique = list(first.values())
    consistent = [example for example in unique if len(answers[example.prompt]) == 1]
    english = [example for example in consistent if not re.search(r"[\u3400-\u9fff]", example.prompt)]
    whole = [example for example in english if re.fullmatch(r"-?[0-9]+", example.answer.strip())]
    steps = (
        f"{len(examples)} rows, {len(unique)} questions, {len(consistent)} with one answer, "
        f"{len(english)} without Chinese"
    )
    logger.warning("%s: kept %d examples (%s)", name, len(whole), steps)
    if not whole:
        raise ValueError(f"{name}: the filter leaves nothing: {steps}, 0 with a whole number as answer")
    return renumbered(whole)


def split(name: str, folder: str | Path, *, filtered: bool) -> dict[str, list[Example]]:
    """Every split whose file is there."""
    return {side: read_published(name, path, filtered=filtered) for side, path in find_files(name, folder).items()}
