"""Start threads; when the system cannot start one, raise an error of this library."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from pubsub_lib.errors import TransportError


def _nothing() -> None:
    """The function of a dropped thread."""


def start_thread(thread: threading.Thread) -> None:
    """Start this thread. Raises TransportError when the system cannot start it."""
    try:
        thread.start()
    except RuntimeError as error:
        raise TransportError(
            f"cannot start the thread {thread.name!r}: {error}; raise the limits of processes and memory"
        ) from error


class ReadyThread:
    """A thread that is started before its resources are opened, so that no resources stay open without a thread.

    Call either ``run`` or ``drop``, once. The constructor raises TransportError when the system cannot start a thread.
    """

    def __init__(self, name: str) -> None:
        self._handed: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.thread: Final = threading.Thread(target=lambda: self._handed.get()(), name=name, daemon=True)
        start_thread(self.thread)

    def run(self, target: Callable[[], None]) -> None:
        """Run this function on the thread: the resources are open."""
        self._handed.put(target)

    def drop(self) -> None:
        """End the thread: the resources could not be opened."""
        self._handed.put(_nothing)
