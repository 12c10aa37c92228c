"""Signals of the service: shutdown, also requested by a thread of the service, and reloading of the configuration."""

import contextlib
import os
import select
import signal
import threading
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""They end the service."""
RELOAD: Final = signal.SIGHUP
MAX_PENDING: Final = 65536
"""Bytes of the pipe that one call of ``wait`` reads."""


class ShutdownSignal:
    """A context manager, for the main thread; ``ask`` may be called from any thread.

    A signal is written to a pipe, by ``signal.set_wakeup_fd``. Its handler must not take a lock, as ``Event.set`` does:
    the handler runs on the main thread between any two instructions, also while that thread holds the same lock, and
    would wait for itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: tuple[int, int] | None = None
        """The pipe's file descriptors: for reading, for writing."""
        self._asked = False
        self._reload = False
        self._wakeup_before = -1
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "ShutdownSignal":
        self._ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup_before = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
        # One signal ends the service in order; for an immediate end send SIGKILL, which loses no stored data.
        self._before = {number: signal.signal(number, self._received) for number in (*SIGNALS, RELOAD)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(self._wakeup_before)
        with self._lock:
            ends, self._ends = self._ends, None
        for end in ends or ():
            os.close(end)

    def ask(self) -> None:
        """Request the shutdown. Does not block; has no effect after the end."""
        self._asked = True
        with self._lock, contextlib.suppress(BlockingIOError):  # a full pipe contains requests already
            if self._ends is not None:
                os.write(self._ends[1], b"\0")

    def wait(self, seconds: float | None) -> bool:
        """Wait for a request for ``seconds`` (None: without end); returns whether the shutdown was requested. A request
        to reload ends the wait earlier, with False. The main thread.
        """
        if self._ends is not None and not self._asked and select.select([self._ends[0]], [], [], seconds)[0]:
            received = os.read(self._ends[0], MAX_PENDING)
            self._reload = self._reload or RELOAD in received
            if any(each != RELOAD for each in received):
                self._asked = True
        return self._asked

    def take_reload(self) -> bool:
        """Whether a reload was requested since the last call. The main thread."""
        asked, self._reload = self._reload, False
        return asked

    def _received(self, number: int, _frame: FrameType | None) -> None:
        """The pipe has the number already, unless requests to reload had filled it."""
        if number in SIGNALS:
            self._asked = True
