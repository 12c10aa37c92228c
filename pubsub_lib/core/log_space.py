"""The memory of a relay's logs of links: one bound for all topics."""

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Protocol

MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of all links in the logs of a relay, as the logs count it. Replicas that change their parent were
without one for ``stale_after`` and some seconds, so this is enough for about 3 MB of changes a second."""


class SpacedLog(Protocol):
    """The used part of :class:`pubsub_lib.core.topic_log.TopicLog`."""

    @property
    def first_number(self) -> int | None:
        """The number of the first link; None without one."""

    def forget_first(self) -> None:
        """Forget the first link, and lower ``used``."""


class LogSpace:
    """When all links have more than ``max_bytes``, those are forgotten that were logged first, of whatever topic: so
    each topic's log reaches back as far in time. Not thread-safe.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self.used = 0
        """Bytes of all links. The logs lower it."""
        self._number = 0
        self._oldest: list[tuple[int, int, SpacedLog]] = []
        """A heap with one entry for each log with links: a number that is not above that of its first link."""
        self._listed: set[int] = set()
        """The logs in the heap, by their id."""

    @property
    def room(self) -> int:
        """Bytes that are left."""
        return self._max_bytes - self.used

    def number(self) -> int:
        """The number of the next link."""
        self._number += 1
        return self._number

    def added(self, log: SpacedLog, size: int) -> None:
        """A log got a link of this size after its others."""
        self.used += size
        if id(log) not in self._listed:
            self._list(log)
        while self.used > self._max_bytes:
            self._forget_one()

    def prepended(self, log: SpacedLog, size: int) -> None:
        """A log got links of this size, for which there is room, before its others. Their number is 0."""
        self.used += size
        self._oldest = [each for each in self._oldest if each[2] is not log]
        heapify(self._oldest)
        self._list(log)

    def _list(self, log: SpacedLog) -> None:
        first = log.first_number
        assert first is not None
        self._listed.add(id(log))
        heappush(self._oldest, (first, id(log), log))

    def _forget_one(self) -> None:
        number, name, log = self._oldest[0]
        first = log.first_number
        if first is None:
            heappop(self._oldest)
            self._listed.remove(name)
        elif first != number:
            heapreplace(self._oldest, (first, name, log))
        else:
            log.forget_first()
