"""Interrupts that are found again behind what they broke."""

import os
import signal

import pytest

from pubsub_lib.audit.ending import Terminated, interruption, terminated_in_order


def test_an_interrupt_is_found_behind_the_errors_that_it_caused() -> None:
    with pytest.raises(OSError, match="second") as second:
        try:
            try:
                raise Terminated
            finally:
                raise ValueError("first")
        except ValueError as first:
            raise OSError("second") from first
    assert isinstance(interruption(second.value), Terminated)
    assert interruption(OSError("alone")) is None


def test_sigterm_is_raised_inside_only() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), terminated_in_order():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
