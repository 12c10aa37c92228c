"""Questions and arrivals of subscribers, from the publisher's side: a bounded queue, and how fast it is answered."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

CONNECTED: Final = b""
"""What is taken when subscribers came: no question is empty."""
MAX_WAITING: Final = 10_000
"""Questions that wait; further ones are dropped, their askers ask again."""


class Pace:
    """So many acts a second, and after a rest as many at once. Does no I/O; times in seconds, by the caller's clock."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._at = 0.0

    def wait(self, now: float) -> float:
        """0.0: do one now, it is counted. Else: ask again after so many seconds."""
        self._left = min(float(self._per_second), self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._per_second
        self._left -= 1
        return 0.0


class HelloRequests:
    """Many threads put, one takes. An answer is far larger than its question, and waits in memory while its asker does
    not read: so many are let through a second, whoever asks."""

    def __init__(self, per_second: int) -> None:
        self._pace = Pace(per_second)
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._arrived = False
        self._closed = False

    def connected(self) -> None:
        """A subscriber came. Those that come before it is taken are one."""
        with self._changed:
            self._arrived = True
            self._changed.notify()

    def put(self, frames: Sequence[bytes]) -> int:
        """Queue them; how many found no room. Does not wait."""
        with self._changed:
            room = max(0, MAX_WAITING - len(self._waiting))
            self._waiting.extend(frames[:room])
            self._changed.notify()
        return len(frames[room:])

    def take(self) -> bytes | None:
        """``CONNECTED``, else the oldest question when its time has come; waits for them. None when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._arrived or self._closed)
            while not self._closed:
                if self._arrived:
                    self._arrived = False
                    return CONNECTED
                pause = self._pace.wait(time.monotonic())
                if not pause:
                    return self._waiting.popleft()
                self._changed.wait(pause)
        return None

    def close(self) -> None:
        """Forget them and end every wait. Idempotent."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
