"""Shutdown signalling: by a signal at any instruction, and by any thread."""

import os
import signal
import threading

import pytest

from pubsub_lib.service.shutdown import SIGNALS, ShutdownSignal

LONG = 120.0


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_ends_the_wait_while_its_thread_holds_the_lock(number: signal.Signals) -> None:
    """A handler that takes a lock would then wait for its own thread for ever."""
    with ShutdownSignal() as stop:
        assert not stop.wait(0.0)
        with stop._lock:
            signal.raise_signal(number)
        assert stop.wait(None)
        assert stop.wait(None)


def test_signal_wakes_the_waiting_thread() -> None:
    with ShutdownSignal() as stop:
        sender = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        sender.start()
        assert stop.wait(LONG)
        sender.join(LONG)


def test_ask_may_be_called_repeatedly_and_after_the_end() -> None:
    with ShutdownSignal() as stop:

        def ask() -> None:
            for _ in range(100_000):  # more than fits into a pipe
                stop.ask()

        asking = threading.Thread(target=ask)
        asking.start()
        assert stop.wait(LONG)
        asking.join(LONG)
        assert not asking.is_alive()
    stop.ask()


def test_handlers_and_descriptors_are_restored() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    files = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with ShutdownSignal():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert set(os.listdir("/proc/self/fd")) == files  # noqa: PTH208
    assert signal.set_wakeup_fd(-1) == -1
