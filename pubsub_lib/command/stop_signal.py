"""Wait for SIGTERM and SIGINT in the main thread of a program that ends in order."""

import contextlib
import os
import select
import signal
import threading
from types import FrameType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""They stop the program."""
MAX_PENDING: Final = 65536
"""Bytes of the pipe that one call of ``wait`` reads."""
_MAX_WAIT: Final = 2**31 - 1
"""Of ``select.poll``, in milliseconds."""
_ASKED: Final = 0
"""In the pipe, in place of a signal's number."""


class StopSignal:
    """A context manager, for the main thread; ``ask`` may be called from any thread.

    A signal is written to a pipe, by ``signal.set_wakeup_fd``. Its handler must not take a lock, as ``Event.set`` does:
    the handler runs on the main thread between any two instructions, also while that thread holds the same lock, and
    would wait for itself.

    ``more``: further signals that a subclass takes. ``end_at_second``: a signal that arrives again ends the process at
    once, in its default way.
    """

    def __init__(self, *more: signal.Signals, end_at_second: bool = False) -> None:
        self._handled = (*SIGNALS, *more)
        self._end_at_second = end_at_second
        self._lock = threading.Lock()
        self._ends: tuple[int, int] | None = None
        """The pipe's file descriptors: for reading, for writing."""
        self._asked = False
        self._wakeup_before = -1
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup_before = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._received) for number in self._handled}
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
        """Request the stop. Does not block; has no effect after the end."""
        self._asked = True
        with self._lock, contextlib.suppress(BlockingIOError):  # a full pipe contains requests already
            if self._ends is not None:
                os.write(self._ends[1], bytes([_ASKED]))

    def wait(self, seconds: float | None) -> bool:
        """Wait for a request for ``seconds`` (None: without end; otherwise at most 24 days); returns whether the stop
        was requested. Another signal that has a handler ends the wait earlier, with False. The main thread.
        """
        if self._ends is not None and not self._asked:
            poller = select.poll()  # select.select() fails for descriptors of 1024 and more
            poller.register(self._ends[0], select.POLLIN)
            if poller.poll(None if seconds is None else min(1000 * max(0.0, seconds), _MAX_WAIT)):
                self._take(os.read(self._ends[0], MAX_PENDING))
        return self._asked

    def _take(self, received: bytes) -> None:
        """Use what was in the pipe: numbers of signals, and ``_ASKED``."""
        self._asked = self._asked or any(each in (_ASKED, *SIGNALS) for each in received)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        """The pipe has the number already, unless other signals had filled it."""
        if number in SIGNALS:
            self._asked = True
            if self._end_at_second:
                signal.signal(number, signal.SIG_DFL)
