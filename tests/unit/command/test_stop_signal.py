"""The stop of a program: by a signal at any instruction, and by any thread."""

import fcntl
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import pytest
from _patience import longest
from _processes import poll

from pubsub_lib.command.stop_signal import SIGNALS, StopSignal

LONG = longest(120.0)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_ends_the_wait_while_its_thread_holds_the_lock(number: signal.Signals) -> None:
    """A handler that takes a lock would then wait for its own thread for ever."""
    with StopSignal() as stop:
        assert not stop.wait(0.0)
        with stop._lock:
            signal.raise_signal(number)
        assert stop.wait(None)
        assert stop.wait(None)


def test_signal_wakes_the_waiting_thread() -> None:
    with StopSignal() as stop:
        sender = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        sender.start()
        assert stop.wait(LONG)
        sender.join(LONG)


def test_ask_may_be_called_repeatedly_and_after_the_end() -> None:
    with StopSignal() as stop:

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
    with StopSignal():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    # A thread of an earlier test may have a file open for a moment.
    assert poll(lambda: set(os.listdir("/proc/self/fd")) == files, LONG)  # noqa: PTH208
    assert signal.set_wakeup_fd(-1) == -1


def test_signal_is_seen_by_the_next_wait() -> None:
    with StopSignal(end_at_second=True) as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(LONG)


def test_wait_may_take_as_long_as_threads_may_wait() -> None:
    with StopSignal() as stop:
        sender = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        sender.start()
        assert stop.wait(threading.TIMEOUT_MAX)
        sender.join(LONG)


def test_wait_works_in_a_process_with_more_than_a_thousand_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """``select.select`` does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(os, "pipe2", partial(high_pipe, os.pipe2))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    try:
        with StopSignal() as stop:
            assert not stop.wait(0.0)
            assert not stop.wait(0.001)
            signal.raise_signal(signal.SIGTERM)
            assert stop.wait(None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def high_pipe(pipe: Callable[[int], tuple[int, int]], flags: int) -> tuple[int, int]:
    """A pipe with descriptors of 1024 and more."""
    ends = pipe(flags)
    first, second = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 1024) for end in ends)
    for end in ends:
        os.close(end)
    return first, second


def test_other_signal_ends_the_wait_and_is_no_stop() -> None:
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        with StopSignal() as stop:
            signal.raise_signal(signal.SIGUSR1)
            assert not stop.wait(LONG)
            signal.raise_signal(signal.SIGTERM)
            assert stop.wait(LONG)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_pipe_is_restored_for_a_stop_inside_another() -> None:
    with StopSignal() as outer:
        with StopSignal() as inner:
            inner.ask()
        assert inner.wait(None)
        assert not outer.wait(0.0)
        signal.raise_signal(signal.SIGTERM)
        assert outer._ends is not None
        assert select.select([outer._ends[0]], [], [], LONG)[0]
        assert outer.wait(None)


SECOND = """
import signal, sys
from pubsub_lib.command.stop_signal import StopSignal
with StopSignal(end_at_second=True) as stop:
    for name in sys.argv[1:]:
        signal.raise_signal(signal.Signals[name])
        assert stop.wait(30)
print("in order")
"""


@pytest.mark.parametrize(
    ("names", "status", "printed"),
    [
        (["SIGTERM", "SIGINT"], 0, "in order\n"),
        (["SIGTERM", "SIGTERM"], -signal.SIGTERM, ""),
        (["SIGINT", "SIGTERM", "SIGINT"], -signal.SIGINT, ""),
    ],
)
def test_second_signal_of_a_kind_ends_the_process_where_that_is_wanted(
    names: list[str], status: int, printed: str
) -> None:
    ended = subprocess.run([sys.executable, "-c", SECOND, *names], stdout=subprocess.PIPE, text=True, timeout=LONG)
    assert (ended.returncode, ended.stdout) == (status, printed)
