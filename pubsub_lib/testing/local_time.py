"""The clock of :class:`pubsub_lib.testing.local.Local`: it stands still until somebody waits, and then it jumps.

Whoever waits turns the crank: what is due is done, in the waiting thread, and when nothing is due the clock goes to the
next moment at which something is. So a test of hours takes milliseconds, and every run of it is the same.
"""

import math
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from pubsub_lib.errors import WaitTimeout

T = TypeVar("T")

INSTANT: Final = 0.001
"""Seconds that pass when a part is due and has nothing to do after all."""


class TimedPart(Protocol):
    """Something that does things in time."""

    def run(self, now: float) -> bool:
        """Do what is due; whether there was anything."""

    def next_time(self) -> float:
        """When there will be something to do; at or before now: at once; infinite: not by itself."""


class LocalTime:
    """Seconds since the beginning, and the parts that live by them. Any thread; one at a time turns."""

    def __init__(self) -> None:
        self._now = 0.0
        self._parts: list[TimedPart] = []
        self._lock = threading.RLock()

    def now(self) -> float:
        """Seconds since the beginning. Does not block."""
        return self._now

    def add(self, part: TimedPart) -> None:
        """Let this part live from now on. Parts run in the order in which they were added."""
        self._parts = [*self._parts, part]

    def remove(self, part: TimedPart) -> None:
        """Not any more. Idempotent."""
        self._parts = [other for other in self._parts if other is not part]

    def turn(self, seconds: float | None = None) -> None:
        """Let every part do what is due. When there was nothing, go to the next moment, at most so many seconds on.

        Raises WaitTimeout when nothing will ever happen and no seconds are given, and whatever a part raises.
        """
        with self._lock:
            ran = [part.run(self._now) for part in self._parts]
            if any(ran):
                return
            following = min((part.next_time() for part in self._parts), default=math.inf)
            if seconds is None and following == math.inf:
                raise WaitTimeout("nothing will ever happen that could end this wait; commit or change something first")
            latest = math.inf if seconds is None else self._now + max(seconds, 0.0)
            self._now = min(max(following, self._now + INSTANT), latest)


class Turning(threading.Condition):
    """A condition whose waits turn the crank instead of blocking."""

    def __init__(self, time: LocalTime, lock: "threading.RLock | None" = None) -> None:
        super().__init__(lock)
        self._time = time

    def wait(self, timeout: float | None = None) -> bool:
        """One turn, with the lock released."""
        self.release()
        try:
            self._time.turn(timeout)
        finally:
            self.acquire()
        return True

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Turn until the predicate holds, or so many seconds of the local clock are over; what it last said."""
        until = None if timeout is None else self._time.now() + timeout
        while not (said := predicate()):
            left = None if until is None else until - self._time.now()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return said
