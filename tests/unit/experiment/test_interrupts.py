"""A request to stop is a flag, set at any moment and read when it suits."""

import os
import signal

import pytest

from trustax.experiment.interrupts import Interrupts


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_flag_and_a_second_changes_nothing(number, capfd):
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        assert not interrupts.stop_requested()
        os.kill(os.getpid(), number)
        assert interrupts.stop_requested()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.signal_number == number
    assert signal.getsignal(number) is before
    assert capfd.readouterr().err.count("stop") == 2


def test_the_handlers_are_restored_after_an_error():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError), Interrupts():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGTERM) is before
