"""reasoning-gym's own scorers. Also loaded by a worker of the pool by its path: nothing of the package is imported."""

import ast
import functools
import importlib
import json
from collections.abc import Callable
from typing import Any


def score(text: str, metadata: str) -> float:
    """The marks that the task gives to ``text`` on the record in ``metadata``."""
    scorer, entry = _scorer(metadata)
    return float(scorer(text, entry=entry))


@functools.lru_cache(maxsize=4096)
def _scorer(metadata: str) -> tuple[Callable[..., float], dict[str, Any]]:
    """The scorer of an example and the record it scores against."""
    record = json.loads(metadata)["reasoning_gym"]
    dataset = _task(record["task"], json.dumps(record["options"], sort_keys=True))
    return dataset.score_answer, ast.literal_eval(record["entry"])


@functools.lru_cache(maxsize=128)
def _task(task: str, options: str) -> Any:
    return importlib.import_module("reasoning_gym").create_dataset(task, **json.loads(options), seed=0, size=1)
