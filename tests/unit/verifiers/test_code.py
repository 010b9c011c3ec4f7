"""Programs in a cage. Each escape is tried for real; where no cage can be had there is nothing to try."""

import json
import time

import pytest

from trustax import verifiers
from trustax.types import Verdict
from trustax.verifiers import code as code_module

DOUBLE = [{"call": "f", "args": [2], "expected": 4}]
C, W = Verdict.CORRECT, Verdict.WRONG


@pytest.fixture(scope="module")
def code():
    try:
        return verifiers.build("code", limit_s=3.0, memory_mb=256)
    except ValueError as error:
        pytest.skip(str(error))


def verdict(code, program: str, tests: list[dict], fence: str = "```python\n{}\n```") -> Verdict:
    metadata = json.dumps({"tests": tests})
    return code(completion=fence.format(program), example_prompt="", answer="", metadata=metadata).verdict


def test_programs_are_judged_by_what_they_return_or_print(code) -> None:
    assert verdict(code, "def f(x): return x * x", DOUBLE) == C
    assert verdict(code, "def f(x): return x * 3", DOUBLE) == W
    assert verdict(code, "def f(x): return 1/0", DOUBLE) == W
    assert verdict(code, "def f(x:", DOUBLE) == W
    assert verdict(code, "def g(x): return 4", DOUBLE) == W
    assert verdict(code, "def f(x): return x * x", DOUBLE, fence="{}") == Verdict.UNPARSABLE
    assert verdict(code, "def f(x): return x * x", []) == Verdict.ERROR
    printed = [{"input": "3\n", "output": "6"}, {"input": "4", "output": "8\n"}]
    assert verdict(code, "import sys\nprint(int(input()) * 2)\nsys.exit()", printed) == C
    assert verdict(code, "print(6)", printed) == W


@pytest.mark.parametrize(
    "program",
    [
        "class A:\n    def __eq__(self, other): return True\ndef f(x): return A()",
        "import os\ndef f(x): os._exit(0)",
        "raise SystemExit",
        "import os\ndef f(x): os.fork(); return 4",
        "import subprocess\ndef f(x): subprocess.run(['true']); return 4",
        "import socket\ndef f(x): socket.socket(); return 4",
        "import os\ndef f(x): os.kill(-1, 9); return 4",
        "def f(x): open('/usr/escaped', 'w'); return 4",
        "def f(x): open('/tmp/big', 'wb').write(b'x' * (17 << 20)); return 4",
        "def f(x): y = 'x' * (1 << 29); return 4",
        "import os\ndef f(x): return 4 if os.listdir('/proc') else 0",
        "def f(x): files = [open('/tmp/' + str(i), 'w') for i in range(64)]; return 4",
        "import ctypes\ndef f(x): return 4 if ctypes.CDLL(None).unshare(0x10000000) == 0 else 0",
    ],
)
def test_nothing_gets_out(code, program: str) -> None:
    assert verdict(code, program, DOUBLE) == W


@pytest.mark.parametrize("body", ["while True: pass", "__import__('time').sleep(60)"])
def test_a_program_that_never_ends_costs_its_limit(code, body: str) -> None:
    quick = verifiers.build("code", limit_s=0.5)
    began = time.monotonic()
    assert verdict(quick, f"def f(x):\n    {body}", DOUBLE) == Verdict.TIMEOUT
    assert time.monotonic() - began < 5.0


def test_without_a_cage_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_module.Code, "_run", lambda *_: {"failure": "cage", "error": "unshare: not permitted"})
    with pytest.raises(ValueError, match=r"refuses to run: programs can't be locked in here.*unshare: not permitted"):
        verifiers.build("code")
