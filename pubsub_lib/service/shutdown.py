"""Being asked to end: by a signal, or by a thread of the service."""

import contextlib
import os
import select
import signal
import threading
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class ShutdownSignal:
    """A context manager, for the main thread; ``ask`` from any.

    A signal goes into a pipe, by ``signal.set_wakeup_fd``. Its handler must not take a lock, as ``Event.set`` does: it
    runs on the main thread between any two instructions, also while that thread holds the same lock, and waits for
    itself then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: tuple[int, int] | None = None
        """The pipe: where it is read, and where it is written."""
        self._asked = False
        self._wakeup_before = -1
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "ShutdownSignal":
        self._ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup_before = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
        # One signal ends it in order; whoever cannot wait sends SIGKILL, which loses nothing that is stored.
        self._before = {number: signal.signal(number, _received) for number in SIGNALS}
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
        """Ask for the end. Does not block; after the end it does nothing."""
        with self._lock, contextlib.suppress(BlockingIOError):  # a full pipe has been asked enough
            if self._ends is not None:
                os.write(self._ends[1], b"\0")

    def wait(self, seconds: float | None) -> bool:
        """Wait to be asked for so long, or without end for None. The main thread."""
        if self._ends is not None and not self._asked:
            self._asked = bool(select.select([self._ends[0]], [], [], seconds)[0])
        return self._asked


def _received(_number: int, _frame: FrameType | None) -> None:
    """What is to be done happened before: the number is in the pipe."""
