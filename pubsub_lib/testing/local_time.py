"""The clock of :class:`pubsub_lib.testing.local.Local`. It moves only while a thread waits.

A wait runs all due work, in the waiting thread. When no work is due, the clock jumps to the next time at which work is
due. So a test of hours takes milliseconds, and every run of it is the same.
"""

import math
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from pubsub_lib.errors import WaitTimeout

T = TypeVar("T")

INSTANT: Final = 0.001
"""Seconds that the clock moves when a part is due but does nothing."""


class TimedPart(Protocol):
    """A component with work that depends on the time."""

    def run(self, now: float) -> bool:
        """Do the due work; return whether there was any."""

    def next_time(self) -> float:
        """The time of the next work. At or before now: work is due; infinite: there is no planned work."""


class LocalTime:
    """The seconds since the start, and the parts that depend on them. Any thread; one thread at a time steps."""

    def __init__(self) -> None:
        self._now = 0.0
        self._parts: list[TimedPart] = []
        self._lock = threading.RLock()

    def now(self) -> float:
        """Seconds since the start. Does not block."""
        return self._now

    def add(self, part: TimedPart) -> None:
        """Start to run this part. Parts run in the order in which they were added."""
        self._parts = [*self._parts, part]

    def remove(self, part: TimedPart) -> None:
        """Stop to run this part. Idempotent."""
        self._parts = [other for other in self._parts if other is not part]

    def step(self, seconds: float | None = None) -> None:
        """Run every part's due work. When there was none, move the clock to the next due time, by at most ``seconds``.

        Raises WaitTimeout when no work is planned and no seconds are given, and every exception of a part.
        """
        with self._lock:
            ran = [part.run(self._now) for part in self._parts]
            if any(ran):
                return
            following = min((part.next_time() for part in self._parts), default=math.inf)
            if seconds is None and following == math.inf:
                raise WaitTimeout("no planned work can end this wait; commit a change first, or give a timeout")
            latest = math.inf if seconds is None else self._now + max(seconds, 0.0)
            self._now = min(max(following, self._now + INSTANT), latest)


class TimeCondition(threading.Condition):
    """A condition whose waits step the local time instead of blocking."""

    def __init__(self, time: LocalTime, lock: "threading.RLock | None" = None) -> None:
        super().__init__(lock)
        self._time = time

    def wait(self, timeout: float | None = None) -> bool:
        """Do one step, with the lock released."""
        self.release()
        try:
            self._time.step(timeout)
        finally:
            self.acquire()
        return True

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Step until the predicate is true or ``timeout`` seconds of the local clock are over; return its result."""
        until = None if timeout is None else self._time.now() + timeout
        while not (result := predicate()):
            left = None if until is None else until - self._time.now()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result


class LocalScheduler:
    """Runs the loops of one replica in the thread that waits. See :class:`pubsub_lib.replica.scheduling.Scheduler`."""

    threaded = False

    def __init__(self, time: LocalTime) -> None:
        self.now = time.now
        self._time = time

    def condition(self, lock: "threading.RLock | None" = None) -> TimeCondition:
        """A condition whose waits step the local time."""
        return TimeCondition(self._time, lock)

    def loop(self, name: str, step: Callable[[float], float], due: Callable[[], float]) -> "LocalLoop":
        """A part of the local time."""
        return LocalLoop(self._time, step, due)


class LocalLoop:
    """Calls ``step`` when it is due by ``due()``. See :class:`pubsub_lib.replica.scheduling.Loop`."""

    def __init__(self, time: LocalTime, step: Callable[[float], float], due: Callable[[], float]) -> None:
        self._time = time
        self._step = step
        self.next_time = due

    def start(self) -> None:
        """Join the parts of the local time."""
        self._time.add(self)

    def close(self, timeout: float) -> bool:
        """Leave the parts of the local time."""
        self._time.remove(self)
        return True

    def wake(self) -> None:
        """Nothing to do: ``due()`` is called again before each step."""

    def run(self, now: float) -> bool:
        """Do the step, if it is due."""
        due = self.next_time() <= now
        if due:
            self._step(now)
        return due
