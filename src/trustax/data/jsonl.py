"""A user's own questions: one JSON object a line, with a prompt and an answer."""

import json
import logging
import operator
import random
from pathlib import Path
from typing import Any

from trustax.data.config import JsonlConfig
from trustax.data.types import Example, renumbered

logger = logging.getLogger(__name__)

# Problems beyond this many are counted, not listed.
MAX_PROBLEMS = 5


def read_jsonl(path: str | Path, *, prompt_key: str = "prompt", answer_key: str = "answer") -> list[Example]:
    """Read every line or refuse the file, naming the lines that are wrong.

    Blank lines are skipped; keys beyond prompt and answer become metadata. A number, a boolean, or a list with one
    entry as the answer is written as text, once, and the log says how many were.
    """
    path = Path(path)
    try:
        # Not splitlines(): that also cuts at U+2028 and its kin, which JSON allows inside a string.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from error
    examples: list[Example] = []
    problems: list[str] = []
    normalized = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            example, changed = _parse_line(line, len(examples), prompt_key, answer_key)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
        else:
            examples.append(example)
            normalized += changed
    if problems:
        listed = "; ".join(problems[:MAX_PROBLEMS])
        more = f"; and {len(problems) - MAX_PROBLEMS} more lines" if len(problems) > MAX_PROBLEMS else ""
        raise ValueError(f"{path}: {listed}{more}")
    if not examples:
        raise ValueError(f'{path} holds no example: write one {{"{prompt_key}": ..., "{answer_key}": ...}} a line')
    if normalized:
        logger.warning(
            "%s: %d of %d answers were not text and are now written as text", path, normalized, len(examples)
        )
    return examples


def _parse_line(line: str, index: int, prompt_key: str, answer_key: str) -> tuple[Example, bool]:
    """The example of a line, and whether its answer had to be turned into text."""
    try:
        record = json.loads(line, parse_constant=_refuse_constant)
        json.dumps(record, ensure_ascii=False).encode()  # an escaped lone surrogate is JSON, but not text
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {type(record).__name__}")
    for key in (prompt_key, answer_key):
        if record.get(key) is None:
            raise ValueError(f"no {key!r} (keys: {', '.join(map(repr, record)) or 'none'})")
    prompt = record.pop(prompt_key)
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"{prompt_key!r} must be text that is not empty, got {prompt!r}")
    value = record.pop(answer_key)
    answer = _answer_text(value, answer_key)
    return Example(index, prompt, answer, json.dumps(record, ensure_ascii=False)), not isinstance(value, str)


def _answer_text(value: Any, answer_key: str) -> str:
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"{answer_key!r} is a list of {len(value)} entries: one right answer a line")
        value = value[0]
    if isinstance(value, bool):
        value = "true" if value else "false"
    if isinstance(value, (int, float)):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"{answer_key!r} must be text or a number, got {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{answer_key!r} is empty")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def read_splits(config: JsonlConfig) -> dict[str, list[Example]]:
    """The training examples and, where the config names them, the held-out ones."""
    examples = read_jsonl(config.path, prompt_key=config.prompt_key, answer_key=config.answer_key)
    if config.test_path is not None:
        test = read_jsonl(config.test_path, prompt_key=config.prompt_key, answer_key=config.answer_key)
        return {"train": examples, "test": test}
    if config.test_size == 0:
        return {"train": examples}
    return _hold_out(examples, config)


def _hold_out(examples: list[Example], config: JsonlConfig) -> dict[str, list[Example]]:
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault(example.prompt, []).append(example)
    order = list(groups.values())
    random.Random(config.seed).shuffle(order)
    test: list[Example] = []
    train: list[Example] = []
    for group in order:
        side = test if len(test) + len(group) <= config.test_size else train
        side.extend(group)
    if len(test) != config.test_size or not train:
        raise ValueError(
            f"{config.path} has {len(examples)} lines ({len(groups)} different prompts): can't hold out exactly "
            f"{config.test_size} and keep repeated prompts together; change test_size or give a test_path"
        )
    in_file_order = operator.attrgetter("index")
    return {
        "train": renumbered(sorted(train, key=in_file_order)),
        "test": renumbered(sorted(test, key=in_file_order)),
    }
