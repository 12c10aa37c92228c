"""A periodic thread that survives exceptions."""

import threading
import time
from collections.abc import Callable

from pubsub_lib.errors import PubSubError, described
from pubsub_lib.logs import logger
from pubsub_lib.threads.start import start_thread

_log = logger(__name__)

MAX_SLEEP = 3600.0
"""Maximum seconds between two steps, also without a deadline."""
AFTER_FAILURE = 0.5
"""Seconds before a step that raised is called again, unless the loop has a pause of its own."""


class PeriodicThread:
    """Calls ``step(now)`` on its own thread. The step returns the time of its next call, by ``time.monotonic``.

    A step that raises is called again after ``AFTER_FAILURE`` seconds; each new error is logged once. ``pause`` is
    called after each failure, and returns these seconds in place of that. An error is also SystemExit, which would end
    this thread without a line in the log while the program goes on, and KeyboardInterrupt: Ctrl-C raises it in the main
    thread only, so here it comes from a fault in the step.
    """

    def __init__(
        self, name: str, step: Callable[[float], float], pause: Callable[[], float] = lambda: AFTER_FAILURE
    ) -> None:
        self._name = name
        self._step = step
        self._pause = pause
        self._wake = threading.Event()
        self._closing = False
        self._failure: str | None = None
        """The last step's error; None after a success. An error may have no message."""
        self.failures = 0
        """Number of steps that raised."""
        self.last_success = float("-inf")
        """Time at which a step last ended without an exception."""
        self._running_since = float("inf")
        self._thread = threading.Thread(target=self._run, name=f"pubsub-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread. Raises TransportError when the system cannot start it."""
        start_thread(self._thread)

    def close(self, timeout: float) -> bool:
        """Stop, waiting at most ``timeout`` seconds; False when a step still runs then. Idempotent. Any thread; called
        by a step it does not wait.
        """
        self._closing = True
        self._wake.set()
        if self._thread is threading.current_thread():
            return False
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def running_for(self, now: float) -> float:
        """Seconds since the running step began; 0.0 between two steps, before the start and after the end. Any thread,
        does not block.
        """
        return max(0.0, now - self._running_since)

    def wake(self) -> None:
        """Call the next step at once. Any thread, does not block."""
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
        except BaseException as error:  # noqa: BLE001 - no exception may end this thread
            self.failures += 1
            if self._closing:
                return now  # the step's resources are being closed
            failure = described(error)
            if failure != self._failure:
                self._failure = failure
                if isinstance(error, PubSubError):
                    _log.warning("%s failed and will be retried: %s", self._name, str(error) or failure)
                else:
                    _log.exception("internal error in %s, which will be retried; please report this", self._name)
            return time.monotonic() + self._pause()
        if self._failure is not None:
            self._failure = None
            _log.info("%s works again", self._name)
        self.last_success = time.monotonic()
        return until
