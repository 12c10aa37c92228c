"""Hello requests and new connections of subscribers, at the publisher of any driver: a bounded queue, a rate limit, and
the thread that calls back.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final, Literal

import msgspec

from pubsub_lib.api import OnConnected, OnHelloRequest
from pubsub_lib.core import codec
from pubsub_lib.core.limits import MAX_HELLO_TOPICS, Limits
from pubsub_lib.core.model import MAX_NAME_BYTES
from pubsub_lib.errors import FrameError, PubSubError
from pubsub_lib.logs import logger

_log = logger(__name__)

MAX_WAITING: Final = 10_000
"""Maximum number of queued hello requests. Further ones are dropped; their subscribers ask again."""
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the queued hello requests together; a replica's largest request has 52 kB."""


class Event(Enum):
    """What is queued beside hello requests."""

    CONNECTED = "connected"


def request_limits(limits: Limits) -> Limits:
    """The limits of hello requests. A request for as many topics as a replica names in one always fits."""
    size = MAX_HELLO_TOPICS * (MAX_NAME_BYTES + 5) + codec.MAX_HEADER_BYTES + 64
    return msgspec.structs.replace(limits, max_frame_bytes=max(limits.max_frame_bytes, size))


class Pace:
    """A rate limit: ``per_second`` actions a second (infinite: no limit), and as many at once after a pause. Does no
    I/O; times in seconds, by the caller's clock."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = 0.0

    def wait(self, now: float) -> float:
        """Return 0.0 when an action may be done now, and count it; otherwise the seconds until the next attempt."""
        if math.isinf(self._per_second):
            return 0.0
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._per_second
        self._left -= 1
        return 0.0


class HelloRequests:
    """Many threads put, one answers. The rate is limited for all subscribers together, because a reply is far larger
    than its request, and stays in memory while its subscriber does not read. Where the driver names the peers, each in
    turn has its oldest request answered, and one peer alone fills at most half of the queue.

    A separate thread answers, because the callbacks may wait for locks that a sender holds while it waits for the
    driver's own thread.
    """

    def __init__(self, limits: Limits, per_second: float = math.inf) -> None:
        self._limits = limits
        self._pace = Pace(per_second)
        self.counts = dict.fromkeys(("asks", "callback_errors", "foreign", "oversized", "truncated", "version"), 0)
        """Changed by the answering thread only. The names never change, so any thread may copy it."""
        self._refused = dict.fromkeys(("foreign", "oversized", "truncated"), 0)
        """Changed by the receiving thread only."""
        self._changed = threading.Condition()
        self._waiting: dict[int | None, deque[bytes]] = {}
        """The requests of each peer that has any, the peer whose turn is next first."""
        self._number = 0
        """Number of queued requests."""
        self._bytes = 0
        """Size of the queued requests together."""
        self._arrived = False
        self._closed = False

    def connected(self) -> None:
        """A subscriber connected. Several connections before the next ``take`` become one item."""
        with self._changed:
            self._arrived = True
            self._changed.notify()

    def put(self, frames: Sequence[bytes], peer: int | None = None) -> int:
        """Queue hello requests of this peer; None: the driver does not know it. Return the number dropped because the
        queue is full, or because the peer has as many in it as there is room left. After :meth:`close` none is queued.
        Does not wait.
        """
        dropped = 0
        with self._changed:
            if self._closed:
                return 0
            own = self._waiting.get(peer) or deque()
            for frame in frames:
                room = MAX_WAITING - self._number
                if room > (0 if peer is None else len(own)) and self._bytes + len(frame) <= MAX_WAITING_BYTES:
                    own.append(frame)
                    self._number += 1
                    self._bytes += len(frame)
                else:
                    dropped += 1
            if own:
                self._waiting[peer] = own
            self._changed.notify()
        return dropped

    def refuse(self, error: FrameError) -> None:
        """Count a hello request that cannot be queued. The receiving thread."""
        self._refused[error.reason] += 1

    def counters(self) -> Mapping[str, int]:
        """``counts``, with the requests that were refused. Any thread."""
        return {name: number + self._refused.get(name, 0) for name, number in self.counts.items()}

    def take(self) -> bytes | Literal[Event.CONNECTED] | None:
        """Wait for an item and return it: ``Event.CONNECTED``, or the oldest request when the rate allows it. None when
        closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._arrived or self._closed)
            while not self._closed:
                if self._arrived:
                    self._arrived = False
                    return Event.CONNECTED
                pause = self._pace.wait(time.monotonic())
                if not pause:
                    return self._next()
                self._changed.wait(pause)
        return None

    def _next(self) -> bytes:
        peer, own = next(iter(self._waiting.items()))
        frame = own.popleft()
        del self._waiting[peer]
        if own:
            self._waiting[peer] = own  # at the end: the others come first
        self._number -= 1
        self._bytes -= len(frame)
        return frame

    def answer(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """The answering thread: call the callbacks until :meth:`close`. Their exceptions are logged and counted."""
        while (frame := self.take()) is not None:
            if frame is Event.CONNECTED:
                self.call(on_connected)
            else:
                self.pass_on(frame, on_hello_request)

    def pass_on(self, frame: bytes, on_hello_request: OnHelloRequest) -> None:
        """Decode one hello request and call back, or count why it was dropped. The answering thread."""
        self.counts["asks"] += 1
        try:
            request = codec.read_hello_request(frame, self._limits)
        except FrameError as error:
            self.counts[error.reason] += 1
            return
        self.call(partial(on_hello_request, request))

    def call(self, callback: Callable[[], None]) -> None:
        """Call back; an exception is logged and counted. The answering thread."""
        try:
            callback()
        except PubSubError as error:
            self.counts["callback_errors"] += 1
            _log.warning("a hello request or a new connection was not answered: %s", error)
        except BaseException:  # noqa: BLE001 - a service's error must not end this thread
            self.counts["callback_errors"] += 1
            _log.exception("answering a hello request or a new connection failed")

    def close(self) -> None:
        """Drop the queued requests and end every wait. Idempotent."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._number = self._bytes = 0
            self._changed.notify_all()
