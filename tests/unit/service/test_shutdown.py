"""Shutdown signalling: by a signal at any instruction, and by any thread."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable

import pytest

from pubsub_lib.service.shutdown import RELOAD, SIGNALS, ShutdownSignal

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


def test_reload_ends_the_wait_without_a_shutdown() -> None:
    with ShutdownSignal() as signals:
        assert not signals.take_reload()
        signal.raise_signal(RELOAD)
        signal.raise_signal(RELOAD)
        assert not signals.wait(LONG)
        assert signals.take_reload()
        assert not signals.take_reload()
        assert not signals.wait(0.0)
        signal.raise_signal(RELOAD)
        signals.ask()
        assert signals.wait(LONG)


@pytest.mark.parametrize("end", [lambda signals: signals.ask(), lambda _: signal.raise_signal(signal.SIGTERM)])
def test_shutdown_is_not_lost_behind_requests_to_reload(end: Callable[[ShutdownSignal], None]) -> None:
    with ShutdownSignal() as signals:
        assert signals._ends is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(signals._ends[1], bytes([RELOAD]) * 1024)
        end(signals)
        assert signals.wait(LONG)


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
    numbers = (*SIGNALS, RELOAD)
    before = [signal.getsignal(number) for number in numbers]
    files = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with ShutdownSignal():
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before
    assert set(os.listdir("/proc/self/fd")) == files  # noqa: PTH208
    assert signal.set_wakeup_fd(-1) == -1
