"""Calls on a bounded number of daemon threads."""

import threading
from concurrent.futures import Future
from functools import partial

import pytest
from _patience import longest

from pubsub_lib.errors import TransportError
from pubsub_lib.threads.daemon_calls import DaemonCalls

LONG = longest(30.0)


def test_calls_run_on_a_bounded_number_of_daemon_threads_and_the_others_wait() -> None:
    calls, go, begun = DaemonCalls(2, "pubsub-test"), threading.Event(), threading.Semaphore(0)

    def call(number: int) -> tuple[int, bool]:
        begun.release()
        assert go.wait(LONG)
        return number, threading.current_thread().daemon

    futures = [calls.submit(partial(call, number)) for number in range(5)]
    for _ in range(2):
        assert begun.acquire(timeout=LONG)
    assert futures[3].cancel(), "it has not begun"
    assert not futures[0].cancel()
    threads = [each for each in threading.enumerate() if each.name == "pubsub-test"]
    assert len(threads) == 2
    go.set()
    assert [futures[number].result(LONG) for number in (0, 1, 2, 4)] == [(0, True), (1, True), (2, True), (4, True)]
    for each in threads:
        each.join(LONG)
        assert not each.is_alive(), "no call waits"
    assert calls.submit(lambda: "again").result(LONG) == "again"


def test_exception_is_the_futures() -> None:
    def fail() -> None:
        raise SystemExit("even this")

    calls = DaemonCalls(1, "pubsub-test")
    with pytest.raises(SystemExit, match="even this"):
        calls.submit(fail).result(LONG)
    assert calls.submit(lambda: 1).result(LONG) == 1


def test_call_waits_for_a_running_thread_when_the_system_starts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, go = DaemonCalls(2, "pubsub-test"), threading.Event()
    first: Future[bool] = calls.submit(lambda: go.wait(LONG))

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        second = calls.submit(lambda: 2)
        go.set()
        assert (first.result(LONG), second.result(LONG)) == (True, 2)
        with pytest.raises(TransportError, match="cannot start the thread 'pubsub-test'"):
            DaemonCalls(2, "pubsub-test").submit(lambda: 3)
