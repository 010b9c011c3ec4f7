"""A process that calls one function on what comes down its pipe, and that its parent may kill at any moment.

Started by ``pool`` as a script, so that it imports neither JAX nor the rest of the package: it is up in 50 ms.
"""

import importlib
import importlib.util
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(target: str) -> Callable[..., Any]:
    """The function ``module:name`` or ``folder/file.py:name``."""
    where, _, name = target.rpartition(":")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    return vars(module)[name]


def die_with(parent: int) -> None:
    """End this process soon after ``parent``: one that was killed closes no pipe that a busy function would read."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Say that the function is loaded, then answer each line with a line until the pipe closes."""
    settings = json.loads(sys.argv[1])
    die_with(settings["parent"])
    sys.path[:] = settings["path"]
    resource.setrlimit(resource.RLIMIT_AS, (settings["memory_bytes"],) * 2)
    # What the function prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        function = load(settings["target"])
    except Exception as error:  # noqa: BLE001  somebody else's module may raise anything
        say({"error": f"{type(error).__name__}: {error}"})
        return
    say({"ready": True})
    for line in sys.stdin:
        try:
            answer: Any = {"value": function(**json.loads(line))}
            json.dumps(answer)
        except Exception as error:  # noqa: BLE001  so may its function
            answer = {"error": f"{type(error).__name__}: {error}"}
        say(answer)


if __name__ == "__main__":
    main()
