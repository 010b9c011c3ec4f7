"""The verifier for programs: run against unit tests in a cage, and compared outside of it.

What a test expects never enters the cage, so that a program can't read it, nor an object that equals everything pass.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trustax.verifiers.types import CORRECT, ERROR, TIMEOUT, UNPARSABLE, WRONG, Outcome, Request

_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
_GRACE_S = 5.0  # beyond the cage's own clock, for Python to start and stop
_CAGE = Path(__file__).with_name("cage.py")


class Code:
    """The last code block of the completion passes every test in ``metadata["tests"]``.

    A test is ``{"input": text, "output": text}`` (standard input and output; trailing spaces don't count) or ``{"call":
    name, "args": [...], "expected": value}`` (a function's result as JSON; floats within 1e-9). ``limit_s`` seconds of
    time for all tests of a program, ``memory_mb`` of memory, no further process, no network, no file but in 16 MB of
    its own.
    """

    def __init__(self, *, limit_s: float = 10.0, memory_mb: int = 512, workers: int = 2) -> None:
        if limit_s <= 0 or memory_mb < 64 or workers < 1:
            raise ValueError(
                f"limit_s must be above 0, memory_mb at least 64 and workers at least 1, got "
                f"{limit_s}, {memory_mb} and {workers}"
            )
        self._limits = {"limit_s": limit_s, "memory_bytes": memory_mb << 20}
        self._workers = workers
        probe = self._run("print(6 * 7)", [{"input": ""}])
        if probe.get("results") != [{"output": "42\n"}]:
            raise ValueError(
                "the verifier 'code' refuses to run: programs can't be locked in here (it takes Linux 5.12+ on x86-64 "
                f"or ARM, with user namespaces allowed: sysctl kernel.unprivileged_userns_clone): {probe}"
            )

    def __call__(self, *, completion: str, example_prompt: str, answer: str, metadata: str) -> Outcome:
        del example_prompt, answer
        tests = json.loads(metadata).get("tests")
        if not isinstance(tests, list) or not tests or not all(map(_is_test, tests)):
            return ERROR
        blocks = _BLOCK.findall(completion)
        if not blocks or not blocks[-1].strip():
            return UNPARSABLE
        inputs = [{key: value for key, value in test.items() if key not in ("output", "expected")} for test in tests]
        found = self._run(blocks[-1], inputs)
        if "results" not in found:
            return (
                TIMEOUT if found.get("failure") == "timeout" else WRONG if found.get("failure") == "program" else ERROR
            )
        passed = [_passes(test, result) for test, result in zip(tests, found["results"], strict=False)]
        return CORRECT if len(passed) == len(tests) and all(passed) else WRONG

    def judge(self, requests: Sequence[Request]) -> list[Outcome]:
        with ThreadPoolExecutor(self._workers) as threads:
            return list(threads.map(lambda request: self(**request._asdict()), requests))

    def _run(self, program: str, tests: list[dict[str, Any]]) -> dict[str, Any]:
        job = json.dumps({"program": program, "tests": tests, **self._limits})
        try:
            done = subprocess.run(
                [sys.executable, "-I", str(_CAGE)],
                input=job.encode(),
                capture_output=True,
                timeout=self._limits["limit_s"] + _GRACE_S,
                env={"PATH": "", "LANG": "C.UTF-8"},
                cwd="/",
                check=False,
            )
            return json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            return {"failure": "timeout"}
        except (OSError, ValueError) as error:
            return {"failure": "cage", "error": str(error)}


def _is_test(test: Any) -> bool:
    return isinstance(test, dict) and (
        {"input", "output"} <= test.keys() or {"call", "args", "expected"} <= test.keys()
    )


def _passes(test: dict[str, Any], result: dict[str, Any]) -> bool:
    if "call" in test:
        return "value" in result and _same(test["expected"], result["value"])
    return "output" in result and _lines(result["output"]) == _lines(test["output"])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same(expected: Any, value: Any) -> bool:
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(_same, expected, value))
    if isinstance(expected, dict) and isinstance(value, dict):
        return expected.keys() == value.keys() and all(_same(expected[key], value[key]) for key in expected)
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, float) or isinstance(value, float):
        if not (isinstance(expected, int | float) and isinstance(value, int | float)):
            return False
        return abs(expected - value) <= 1e-9 * max(1.0, abs(expected))
    return type(expected) is type(value) and expected == value
