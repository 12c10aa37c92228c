"""The last links of one topic in a relay: from them it answers deltas, also to replicas that come from another relay.

A point names a state for every process, so a link needs no number of the relay that keeps it.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Final

from pubsub_lib.core.model import ZERO, Link, Point
from pubsub_lib.core.reorder_buffer import size_of

MAX_LINKS: Final = 1000
"""Maximum number of links of one topic."""
MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of them, as ``size_of`` counts it."""


class TopicLog:
    """A bounded number of links, each with the earliest time at which it can have been in the store's history: a relay
    that sends it on after others need not have it for as long as they.
    """

    def __init__(self, point: Point, max_links: int = MAX_LINKS, max_bytes: int = MAX_BYTES) -> None:
        self._base = point
        self._max_links = max_links
        self._max_bytes = max_bytes
        self._links: deque[tuple[Link, float]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._links)

    @property
    def head(self) -> Point:
        """The point after the last link."""
        return self._links[-1][0].point if self._links else self._base

    def restart(self, point: Point) -> None:
        """A full sync led here: the links before it are not known."""
        self._links.clear()
        self._bytes = 0
        self._base = point

    def add(self, link: Link, applied: float) -> None:
        """The topic's next link was applied."""
        if link.prev != self.head:
            self.restart(link.prev)
        self._links.append((link, applied))
        self._bytes += size_of(link)
        while len(self._links) > self._max_links or self._bytes > self._max_bytes:
            first, _ = self._links.popleft()
            self._base = first.point
            self._bytes -= size_of(first)

    def lacks(self, point: Point) -> bool:
        """Whether links from before this log may lead from a point to it, and there is room for them."""
        room = len(self._links) < self._max_links and self._bytes < self._max_bytes
        return room and point.position < self._base.position and self.after(point) is None

    def prepend(self, links: Sequence[Link], confirmed: float) -> bool:
        """Put those of the links that lead to the log's first point before it. ``confirmed``: a time at which all of
        them were in the store's history. Returns whether they lead there, and whether there is room for them.
        """
        at = next((number for number, link in enumerate(links) if link.point == self._base), None)
        if at is None or any(link.prev != before.point for before, link in pairwise(links)):
            return False
        before = links[: at + 1]
        size = sum(size_of(link) for link in before)
        if len(self._links) + len(before) > self._max_links or self._bytes + size > self._max_bytes:
            return False
        # Else a restore may have undone later links of this log since it got them (rule R3).
        all_confirmed = any(link.point == self.head for link in links[at:])
        applied = confirmed if all_confirmed else min(confirmed, self._links[0][1])
        self._links.extendleft((link, applied) for link in reversed(before))
        self._base = before[0].prev
        self._bytes += size
        return True

    def after(self, point: Point) -> tuple[list[Link], float] | None:
        """The links after a point, and the time of the first of them (infinite without one); None: the log does not
        have the point.
        """
        if point == self.head:
            return [], float("inf")
        number = bisect_left(self._links, point.position, key=_begins_at)
        if number == len(self._links) or self._links[number][0].prev != point:
            return None
        return [each for each, _ in islice(self._links, number, None)], self._links[number][1]

    def holds(self, point: Point) -> bool | None:
        """Whether the topic's history up to its head contains a point; None: the log does not reach back to it."""
        if point in (ZERO, self.head) or any(link.prev == point for link, _ in self._links):
            return True
        return False if point.position > self._base.position or point.position == self.head.position else None


def _begins_at(each: tuple[Link, float]) -> int:
    return each[0].prev.position
