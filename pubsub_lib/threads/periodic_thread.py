"""A thread that does one thing again and again, and lives whatever happens."""

import threading
import time
from collections.abc import Callable

from pubsub_lib.errors import PubSubError
from pubsub_lib.logs import logger
from pubsub_lib.threads.start import start_thread

_log = logger(__name__)

MAX_SLEEP = 3600.0
"""Seconds; a wait without a deadline still looks up once in a while."""
AFTER_FAILURE = 0.5
"""Seconds before a step that raised is done again."""


class PeriodicThread:
    """Calls ``step(now)`` on a thread of its own; what it returns is when to call it next, on ``time.monotonic``.

    A step that raises is tried again after a moment, with one line in the log per new failure.
    """

    def __init__(self, name: str, step: Callable[[float], float]) -> None:
        self._name = name
        self._step = step
        self._wake = threading.Event()
        self._closing = False
        self._failure = ""
        self.failures = 0
        """How many steps raised."""
        self.last_success = float("-inf")
        """When a step last ended without raising."""
        self._running_since = float("inf")
        self._thread = threading.Thread(target=self._run, name=f"pubsub-{name}", daemon=True)

    def start(self) -> None:
        """Begin. Raises TransportError when the system gives no thread."""
        start_thread(self._thread)

    def close(self, timeout: float) -> bool:
        """Stop; False when a step is still in the middle of something after so many seconds. Idempotent; from any
        thread, and from a step itself it does not wait.
        """
        self._closing = True
        self._wake.set()
        if self._thread is threading.current_thread():
            return False
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def running_for(self, now: float) -> float:
        """Seconds that the step which runs has taken so far; 0.0 between two steps, before the start and after the end.
        Any thread, does not block.
        """
        return max(0.0, now - self._running_since)

    def wake(self) -> None:
        """Let the next step come at once. Any thread, does not block."""
        self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            self._running_since = now = time.monotonic()
            until = self._once(now)
            self._running_since = float("inf")
            self._wake.wait(min(max(until - time.monotonic(), 0.0), MAX_SLEEP))
            self._wake.clear()

    def _once(self, now: float) -> float:
        try:
            until = self._step(now)
        except Exception as error:  # noqa: BLE001 - a thread that dies of its first exception is the worst of all
            self.failures += 1
            if self._closing:
                return now  # whatever it used is being closed
            if str(error) != self._failure:
                self._failure = str(error)
                if isinstance(error, PubSubError):
                    _log.warning("%s failed and is tried again: %s", self._name, error)
                else:
                    _log.exception("%s broke and is tried again; please report this", self._name)
            return time.monotonic() + AFTER_FAILURE
        if self._failure:
            self._failure = ""
            _log.info("%s works again", self._name)
        self.last_success = time.monotonic()
        return until
