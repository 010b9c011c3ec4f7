"""Somebody else's function in processes of its own, with a time limit that holds: who overruns it is killed.

A thread cannot be stopped and an alarm is not heard inside C code; a process can always be killed. A call that overruns
costs its limit on one worker, while the others go on.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

START_LIMIT_S = 120.0
MEMORY_BYTES = 8 << 30


class Answer(NamedTuple):
    """What came of a call: a value, or the reason why there is none."""

    value: Any = None
    error: str | None = None
    timed_out: bool = False


class Pool:
    """Workers that call ``target`` (``module:function`` or ``file.py:function``), started when first needed."""

    def __init__(self, target: str, *, limit_s: float, workers: int | None = None) -> None:
        count = len(os.sched_getaffinity(0)) if workers is None else workers
        problems = [] if limit_s > 0 else [f"limit_s must be above 0 seconds, got {limit_s}"]
        problems += [] if count >= 1 else [f"workers must be at least 1, got {count}"]
        if problems:
            raise ValueError("; ".join(problems))
        self._target, self._limit_s = target, limit_s
        self._workers: list[_Worker | None] = [None] * count
        self._lock = threading.Lock()

    def map(self, calls: Sequence[dict[str, Any]]) -> list[Answer]:
        """The answer of each call, in order; returns after at most about ``limit_s · len(calls) / workers``."""
        answers = [Answer(error="not called")] * len(calls)
        waiting = deque(enumerate(calls))
        with self._lock:  # one map at a time: workers hold one call each
            slots = range(min(len(self._workers), len(calls)))
            threads = [
                threading.Thread(target=self._serve, args=(slot, waiting, answers), daemon=True) for slot in slots
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return answers

    def close(self) -> None:
        """End the workers; a later call starts new ones."""
        for slot, worker in enumerate(self._workers):
            if worker is not None:
                worker.kill()
                self._workers[slot] = None

    def _serve(self, slot: int, waiting: "deque[tuple[int, dict[str, Any]]]", answers: list[Answer]) -> None:
        while True:
            try:
                number, call = waiting.popleft()
            except IndexError:
                return
            worker = self._workers[slot]
            if worker is None:
                worker = self._workers[slot] = _Worker(self._target)
            answers[number] = worker.failure if worker.failure is not None else worker.call(call, self._limit_s)
            if not worker.alive:
                worker.kill()
                self._workers[slot] = None


class _Worker:
    """One process, in a session of its own, so that what it started dies with it. ``-P``: our math.py isn't it."""

    def __init__(self, target: str) -> None:
        settings = {"parent": os.getpid(), "target": target, "path": sys.path, "memory_bytes": MEMORY_BYTES}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("worker.py")), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, self._process)
        self._unread = b""
        self.alive = True
        started = self._read(START_LIMIT_S)
        self.failure = None if started.value is True else Answer(error=f"the grader can't be loaded: {started.error}")
        if self.failure is not None:
            self.alive = False

    def call(self, arguments: dict[str, Any], limit_s: float) -> Answer:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.alive = False
            return Answer(error="the grader's process ended")
        return self._read(limit_s)

    def kill(self) -> None:
        self._end()

    def _read(self, limit_s: float) -> Answer:
        assert self._process.stdout is not None
        file, deadline = self._process.stdout.fileno(), time.monotonic() + limit_s
        while b"\n" not in self._unread:
            ready, _, _ = select.select([file], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(file, 1 << 16) if ready else b""
            if not chunk:
                self.alive = False
                return Answer(error="the grader's process ended") if ready else Answer(timed_out=True)
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        message = json.loads(line)
        if "error" in message:
            return Answer(error=message["error"])
        return Answer(value=message["ready"] if "ready" in message else message["value"])


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was still to be written has nobody to read it
                pipe.close()
