"""Calls on daemon threads: one that hangs does not keep the process from ending."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pubsub_lib.errors import TransportError
from pubsub_lib.threads.start import start_thread

T = TypeVar("T")


class DaemonCalls:
    """Calls functions on at most ``threads`` daemon threads; further calls wait for one of them. A thread ends when no
    call waits. The threads of ``concurrent.futures`` are no daemons, and the interpreter waits for them at its end.
    Any thread may submit.
    """

    def __init__(self, threads: int, name: str) -> None:
        """``name``: of the threads."""
        self._threads = threads
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = 0

    def submit(self, fn: Callable[[], T]) -> Future[T]:
        """Call the function on a thread. Its call can be cancelled until it begins. Does not block. Raises
        TransportError when the system cannot start a thread, and none runs.
        """
        future: Future[T] = Future()
        with self._lock:
            self._waiting.append((future, fn))
            if self._running < self._threads:
                try:
                    start_thread(threading.Thread(target=self._run, name=self._name, daemon=True))
                    self._running += 1
                except TransportError:
                    if not self._running:
                        self._waiting.pop()
                        raise
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                future, fn = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(fn())
            except BaseException as error:  # noqa: BLE001 - for the caller, who waits for the future
                future.set_exception(error)
            del future, fn  # this thread may wait in the next call for long
