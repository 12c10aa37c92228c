"""Wakes the coroutines of an event loop from other threads."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Notifier:
    """Thread-safe notifier for the event loop. Several notifications at nearly the same time may cause one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._notified = False
        self._waiters: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Wake the waiters. Any thread; does not block, and does nothing while there are no waiters."""
        if self._waiters and not self._notified:
            self._notified = True
            try:
                self._loop.call_soon_threadsafe(self._wake_waiters)
            except RuntimeError:  # the loop was closed meanwhile, so there are no waiters
                self._waiters = set()

    def _wake_waiters(self) -> None:
        self._notified = False  # first: later changes must notify again
        for waiter in self._waiters:
            waiter.set()

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that every later notification sets. The waiter clears it, checks its condition, and waits for it."""
        waiter = asyncio.Event()
        self._waiters = {*self._waiters, waiter}
        try:
            yield waiter
        finally:
            self._waiters = self._waiters - {waiter}
