import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trustax import verifiers
from trustax.types import Verdict
from trustax.verifiers import Request
from trustax.verifiers.pool import Pool


@pytest.fixture
def folder_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    sys.modules.pop("slow_graders", None)


def requests(*completions: str) -> list[Request]:
    return [Request(completion, "", "7", "{}") for completion in completions]


def test_a_grader_that_loops_costs_only_its_own_limit(folder_on_path) -> None:
    verifier = verifiers.build("python", path="slow_graders:loops", limit_s=0.5, workers=2)
    verifiers.judge(verifier, requests("7"))  # the workers start
    began = time.monotonic()
    outcomes = verifiers.judge(verifier, requests("7", "loop", "8", "raise", "die", "7"))
    assert time.monotonic() - began < 5.0
    expected = [Verdict.CORRECT, Verdict.TIMEOUT, Verdict.WRONG, Verdict.ERROR, Verdict.ERROR, Verdict.CORRECT]
    assert [outcome.verdict for outcome in outcomes] == expected


def test_workers_share_the_calls(folder_on_path) -> None:
    """Sleep instead of work, so that a busy machine can't blur the comparison."""
    seconds = {}
    for workers in (1, 4):
        verifier = verifiers.build("python", path="slow_graders:sleeps", limit_s=5.0, workers=workers)
        verifiers.judge(verifier, requests("7", "7", "7", "7"))
        began = time.monotonic()
        assert {o.verdict for o in verifiers.judge(verifier, requests(*"77777777"))} == {Verdict.CORRECT}
        seconds[workers] = time.monotonic() - began
    assert seconds[4] < seconds[1] / 2


def test_killed_workers_are_no_more(folder_on_path) -> None:
    pool = Pool("slow_graders:loops", limit_s=0.2, workers=1)
    (answer,) = pool.map([requests("loop")[0]._asdict()])
    assert answer.timed_out and pool._workers == [None]


def test_a_worker_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import sys, threading, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from trustax.verifiers.pool import Pool\n"
        "pool = Pool('slow_graders:loops', limit_s=1e3, workers=1)\n"
        "call = {'completion': 'loop', 'example_prompt': '', 'answer': '7', 'metadata': '{}'}\n"
        "threading.Thread(target=pool.map, args=([call],), daemon=True).start()\n"
        "while pool._workers[0] is None: time.sleep(0.01)\n"
        "print(pool._workers[0]._process.pid, flush=True)\n"
        "time.sleep(1e3)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(300):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker is still there 30 seconds after its parent")


def test_what_cannot_be_loaded_is_an_error_and_not_a_hang() -> None:
    (answer,) = Pool("no_such_module:f", limit_s=1.0, workers=1).map([{}])
    assert answer.error is not None and "ModuleNotFoundError" in answer.error


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match=r"limit_s must be above 0 seconds, got 0; workers must be at least 1, got 0"):
        Pool("a:b", limit_s=0, workers=0)
