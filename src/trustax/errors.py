"""What can go wrong, by whose hand: the command line turns each kind into one line and an exit code."""

import signal


class UserError(ValueError):
    """Bad input. The message says what, where, and how to mend it; the command line exits with 2."""


class ConfigError(UserError):
    """A config, an override or a run folder that cannot be used as it is."""


class RunError(RuntimeError):
    """A job that started well and failed, such as a loss that is not finite; the command line exits with 1."""


class CheckpointError(RunError):
    """A checkpoint that could not be written or read."""


class RunInterrupted(RunError):
    """A run that stopped because it was asked to, with its state saved; exits with 128 + the signal's number."""

    def __init__(self, message: str, *, signal_number: int = signal.SIGINT):
        super().__init__(message)
        self.signal_number = int(signal_number)
