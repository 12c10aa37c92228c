"""Pauses connections whose subscriptions arrive faster than the sending thread reads them.

libzmq applies a subscription at once, and then keeps a copy for the thread, in a queue without a limit: about 100 bytes
of memory for 4 received ones. A client sends subscriptions to the same prefix and their ends at a million a second; the
thread, which also sends, reads a third of it. So this module compares the bytes that the kernel has received with
those that the thread has read since it last found the queue empty.
"""

from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from typing import Final

from pubsub_lib.logs import logger
from pubsub_zmq.inflow_guard import REST, busiest, end, is_of
from pubsub_zmq.reading_progress import ReadingProgress

_log = logger(__name__)

MAX_WAITING: Final = 1024 * 1024
"""Bytes of subscriptions that may wait before connections are paused; they take 25 MB of memory."""
PAUSE: Final = 1.0
"""Seconds for which a connection's data is dropped then; longer than for a long call, because what waits is to be read
meanwhile, and replicas of other connections need no such pause."""
MAX_PAUSED: Final = 64
"""Maximum number of connections that are paused at a time for this: each pause needs a file."""


MAX_UNREAD: Final = 8 * MAX_WAITING
"""Bytes that may wait before connections are ended, when pauses are not enough; they take 200 MB of memory."""
LARGE: Final = 512 * 1024
"""Bytes since the queue was empty up to which a connection is not ended: more than a replica sends at once. So no
replica is ended when thousands connect together."""


class Backlog:
    """The connections of one port. The guard's thread."""

    def __init__(
        self,
        port: int,
        progress: ReadingProgress,
        pause: Callable[[int, int, float, str], None],
        number_paused: Callable[[], int],
        counts: MutableMapping[str, int],
    ) -> None:
        """``pause`` drops a connection's data: its descriptor, the bytes that it brought, seconds and the reason.
        ``number_paused`` counts those that are paused now. ``counts``: its ``unread`` is the number of ended ones.
        """
        self._port = port
        self._progress = progress
        self._pause = pause
        self._number_paused = number_paused
        self._counts = counts
        self._received: Mapping[int, int] = {}
        self._since_empty = Counter[int]()
        """The bytes of each connection since the queue was found empty."""
        self._emptied = self._read = 0
        self.waiting = 0
        """Bytes that arrived and were not read, at the last look."""

    def look(self, received: Mapping[int, int], now: float) -> bool:
        """Pause the connections that brought most since the look before, while too much waits. ``received``: the bytes
        of each connection, read from the kernel just now; also of connections to other ports. Returns whether it
        does, so that the next look must come soon.
        """
        grown = self._grown(received)
        self._received = received
        emptied, read = self._progress.emptied, self._progress.total
        if emptied > self._emptied:
            self.waiting = 0
            self._since_empty.clear()
        else:
            self.waiting = max(0, self.waiting + sum(grown.values()) - (read - self._read))
            self._since_empty.update(grown)
        self._emptied, self._read = emptied, read
        if self.waiting <= MAX_WAITING:
            return False
        for descriptor in busiest(grown)[: max(0, MAX_PAUSED - self._number_paused())]:
            self._pause(descriptor, grown[descriptor], PAUSE, "which arrived faster than this publisher reads them")
        if self.waiting > MAX_UNREAD:
            self._end_largest()
        return True

    def _end_largest(self) -> None:
        """End those that brought most since the queue was empty, until the others brought what may wait."""
        left = self._since_empty.total()
        for descriptor, size in self._since_empty.most_common():
            if left <= MAX_WAITING or size <= LARGE:
                return
            left -= size
            del self._since_empty[descriptor]
            peer = end(descriptor) if is_of(descriptor, self._port) else None
            if peer is not None:
                self._counts["unread"] += 1
                _log.warning(
                    "the connection from %s to port %d was ended: it is one of those that brought %d bytes of "
                    "subscriptions which this publisher could not read in time; let a firewall refuse it if it is no "
                    "replica",
                    peer,
                    self._port,
                    self.waiting,
                )

    def _grown(self, received: Mapping[int, int]) -> dict[int, int]:
        """The bytes that each connection brought since the last look; those to other ports only when all are few."""
        brought = {each: size - self._received.get(each, 0) for each, size in received.items()}
        grown = {each: size for each, size in brought.items() if size > 0}
        if sum(grown.values()) <= REST:
            return grown
        return {each: size for each, size in grown.items() if is_of(each, self._port)}
