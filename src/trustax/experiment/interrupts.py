"""A request to stop as a flag that the loop looks at, so that a run ends with its state saved."""

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupts:
    """Inside ``with``, SIGTERM and SIGINT set a flag instead of ending the process.

    Look at ``stop_requested()`` between the phases of a step, not only between steps: a compilation, a generation or
    an evaluation may take minutes. Further signals change nothing, so that a save in flight is completed; whoever
    cannot wait has SIGKILL, after which the previous checkpoint is still whole.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._before: dict[int, Any] = {}

    def stop_requested(self) -> bool:
        """Whether a signal has come."""
        return self.signal_number is not None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number is None:
            self.signal_number = number
            _say("stop requested: finishing the current phase, then saving\n")
        else:
            _say("stop already requested; still saving (kill -9 loses what came after the last checkpoint)\n")


def _say(text: str) -> None:
    # print() may be in use by the very code that the signal interrupted; a plain write is safe.
    os.write(2, text.encode())
