"""What one watcher has received: its handler calls, their latencies, and whether every key has its last value."""

import threading
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from _bench.e2e.plan import PROBE, Cell


class Watched(msgspec.Struct, frozen=True):
    """A watcher's report. ``ended``: when its handler had the last change. Times are nanoseconds."""

    ended: int
    events: int
    took: Any
    """Array of the latencies of a paced cell, one for each handler call."""


class Seen:
    """The state of a watcher's handler, which calls ``change``. ``ready`` is called once, at the first probe written
    after ``connected``. For one thread; another may wait for ``complete``.
    """

    def __init__(self, cell: Cell, ready: Callable[[], None]) -> None:
        self.complete = threading.Event()
        self._ready: Callable[[], None] | None = ready
        self._connected: int | None = None
        self._paced = cell.rate > 0
        self._open = cell.expected()
        self._ended = self._events = 0
        self._took = array("q")

    @property
    def done(self) -> bool:
        """Whether every key has its last value."""
        return not self._open

    def connected(self) -> None:
        """A probe that is written from now on counts."""
        self._connected = time.monotonic_ns()

    def change(self, key: str, value: Mapping[str, Any]) -> None:
        """The handler: one change."""
        now = time.monotonic_ns()
        if key == PROBE:
            self._probe(value["t"])
            return
        self._events += 1
        if self._paced:
            self._took.append(now - value["t"])
        if self._open.get(key) == value["n"]:
            del self._open[key]
            if not self._open:
                self._ended = now
                self.complete.set()

    def report(self) -> Watched:
        """After the end."""
        return Watched(self._ended, self._events, self._took)

    def _probe(self, written: int) -> None:
        if self._ready is not None and self._connected is not None and written > self._connected:
            self._ready()
            self._ready = None
