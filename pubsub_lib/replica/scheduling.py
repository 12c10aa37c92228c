"""The clock, the waits and the loops of a replica's engine. Tests replace them by those of a clock of their own."""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from pubsub_lib.threads.periodic_thread import PeriodicThread


class Loop(Protocol):
    """Calls one step again and again, from ``start`` to ``close``."""

    def start(self) -> None:
        """Begin. Raises TransportError when the system cannot start a thread."""

    def close(self, timeout: float) -> bool:
        """End, waiting at most ``timeout`` seconds; False when a step still runs then. Idempotent, from any thread; a
        step may call it.
        """

    def wake(self) -> None:
        """Call the next step at once. Any thread, does not block."""


class Scheduler(Protocol):
    """What the engine and the handlers of one replica need of time and threads."""

    @property
    def now(self) -> Callable[[], float]:
        """The clock, in seconds, for all state of the replica."""

    @property
    def threaded(self) -> bool:
        """Whether each handler has a thread. False: ``Handlers.run_ready`` calls them."""

    def condition(self, lock: "threading.RLock | None" = None) -> threading.Condition:
        """A condition of this lock, or of a lock of its own, for the waits of other threads."""

    def loop(self, name: str, step: Callable[[float], float], due: Callable[[], float]) -> Loop:
        """A loop that is not started yet. ``step(now)`` returns the time of its next call. ``due()`` returns the same
        for the present state; it may take the replica's lock.
        """


class Threads:
    """The scheduler of production: each loop and each handler is a thread."""

    threaded = True

    @property
    def now(self) -> Callable[[], float]:
        """``time.monotonic``, by which the loops wait, too."""
        return time.monotonic

    def condition(self, lock: "threading.RLock | None" = None) -> threading.Condition:
        """See :class:`Scheduler`, also for the other methods."""
        return threading.Condition(lock)

    def loop(self, name: str, step: Callable[[float], float], due: Callable[[], float]) -> Loop:
        """A thread, which relies on ``step`` and on ``wake``, and does not call ``due``."""
        return PeriodicThread(name, step)
