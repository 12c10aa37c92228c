"""Starting a thread, so that a system that gives none is an error of this library."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from pubsub_lib.errors import TransportError


def _nothing() -> None:
    """What a thread does for which nothing was prepared."""


def start_thread(thread: threading.Thread) -> None:
    """Start it. Raises TransportError when the system gives no thread."""
    try:
        thread.start()
    except RuntimeError as error:
        raise TransportError(
            f"cannot start the thread {thread.name!r}: {error}; raise the limits of processes and memory"
        ) from error


class ReadyThread:
    """A thread that runs before what it works on is opened, so that nothing opened is left behind without a thread.

    Call either ``run`` or ``drop``, once. Raises TransportError when the system gives no thread.
    """

    def __init__(self, name: str) -> None:
        self._handed: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.thread: Final = threading.Thread(target=lambda: self._handed.get()(), name=name, daemon=True)
        start_thread(self.thread)

    def run(self, target: Callable[[], None]) -> None:
        """All is open: this is what the thread does."""
        self._handed.put(target)

    def drop(self) -> None:
        """It could not be opened: the thread ends."""
        self._handed.put(_nothing)
