"""The outcome of a run in one small file."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from trustax.errors import ConfigError
from trustax.experiment.files import write_atomically


@dataclasses.dataclass(frozen=True)
class Summary:
    """Held-out accuracy before and after (0..1; sampled, and greedy), and what it took."""

    name: str
    objective: str
    seed: int
    steps: int
    eval_before: float
    eval_after: float
    greedy_before: float
    greedy_after: float
    wall_seconds: float
    tokens_per_second: float
    versions: dict[str, str]

    def write(self, path: Path) -> None:
        """Write the file whole or not at all."""
        write_atomically(path, json.dumps(dataclasses.asdict(self), indent=2, allow_nan=False) + "\n")


def read_summary(path: Path) -> Summary:
    """Read what ``Summary.write`` wrote; fields that this version does not know are left aside."""
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: that run is not finished")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names = [field.name for field in dataclasses.fields(Summary)]
    missing = [name for name in names if name not in document]
    if missing:
        raise ConfigError(f"{path} lacks {', '.join(missing)}")
    return Summary(**{name: document[name] for name in names})
