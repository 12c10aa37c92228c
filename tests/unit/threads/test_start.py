"""A thread that is started before its work is prepared, and a system that cannot start a thread."""

import threading

import pytest

from pubsub_lib.errors import TransportError
from pubsub_lib.threads.start import ReadyThread, start_thread


def _no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_ready_thread_waits_for_its_work_and_runs_it() -> None:
    ready = ReadyThread("pubsub-test")
    assert (ready.thread.is_alive(), ready.thread.name, ready.thread.daemon) == (True, "pubsub-test", True)
    ran: list[str] = []
    ready.run(lambda: ran.append(threading.current_thread().name))
    ready.thread.join(10)
    assert ran == ["pubsub-test"]


def test_ready_thread_ends_when_its_work_is_dropped() -> None:
    ready = ReadyThread("pubsub-test")
    ready.drop()
    ready.thread.join(10)
    assert not ready.thread.is_alive()


def test_start_thread_names_the_thread_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", _no_thread)
    with pytest.raises(TransportError, match="cannot start the thread 'pubsub-x': can't start new thread; raise the"):
        start_thread(threading.Thread(name="pubsub-x"))
    with pytest.raises(TransportError, match="cannot start the thread 'pubsub-y'"):
        ReadyThread("pubsub-y")
