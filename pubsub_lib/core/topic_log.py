"""The last links of one topic in a relay: from them it answers deltas, also to replicas that come from another relay.

A point names a state for every process, so a link needs no number of the relay that keeps it.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Final

import msgspec

from pubsub_lib.core.log_space import LogSpace
from pubsub_lib.core.model import ZERO, Link, Point
from pubsub_lib.core.reorder_buffer import size_of

LINK_OVERHEAD: Final = 400
"""Bytes of a link without its changes, as it counts for the bound."""


class _Logged(msgspec.Struct, frozen=True, gc=False):
    link: Link
    applied: float
    size: int
    number: int
    """Links are numbered in the order in which they were logged, of all topics."""


class TopicLog:
    """The last links of a topic, each with the earliest time at which it can have been in the store's history: a relay
    that sends it on after others need not have it for as long as they. ``space``: bounds all logs together.
    """

    def __init__(self, point: Point, space: LogSpace | None = None) -> None:
        self._base = point
        self._space = LogSpace() if space is None else space
        self._links: deque[_Logged] = deque()

    def __len__(self) -> int:
        return len(self._links)

    @property
    def head(self) -> Point:
        """The point after the last link."""
        return self._links[-1].link.point if self._links else self._base

    @property
    def first_number(self) -> int | None:
        """The number of the first link; None without one."""
        return self._links[0].number if self._links else None

    def restart(self, point: Point) -> None:
        """A full sync led here: the links before it are not known."""
        self._space.used -= sum(each.size for each in self._links)
        self._links.clear()
        self._base = point

    def add(self, link: Link, applied: float) -> None:
        """The topic's next link was applied."""
        if link.prev != self.head:
            self.restart(link.prev)
        size = LINK_OVERHEAD + size_of(link)
        self._links.append(_Logged(link, applied, size, self._space.number()))
        self._space.added(self, size)

    def forget_first(self) -> None:
        """Forget the first link. Called by the space, when there is no room for all links."""
        first = self._links.popleft()
        self._base = first.link.point
        self._space.used -= first.size

    def lacks(self, point: Point) -> bool:
        """Whether links from before this log may lead from a point to it, and there is room for them."""
        return self._space.room > 0 and point.position < self._base.position and self.after(point) is None

    def prepend(self, links: Sequence[Link], confirmed: float) -> bool:
        """Put those of the links that lead to the log's first point before it. ``confirmed``: a time at which all of
        them were in the store's history. Returns whether they lead there, and whether there is room for them.
        """
        at = next((number for number, link in enumerate(links) if link.point == self._base), None)
        if at is None or any(link.prev != before.point for before, link in pairwise(links)):
            return False
        before = links[: at + 1]
        sizes = [LINK_OVERHEAD + size_of(link) for link in before]
        if sum(sizes) > self._space.room:
            return False
        # Else a restore may have undone later links of this log since it got them (rule R3).
        all_confirmed = any(link.point == self.head for link in links[at:])
        applied = confirmed if all_confirmed else min(confirmed, self._links[0].applied)
        older = [_Logged(link, applied, size, 0) for link, size in zip(before, sizes, strict=True)]
        self._links.extendleft(reversed(older))
        self._base = before[0].prev
        self._space.prepended(self, sum(sizes))
        return True

    def after(self, point: Point) -> tuple[list[Link], float] | None:
        """The links after a point, and the time of the first of them (infinite without one); None: the log does not
        have the point.
        """
        if point == self.head:
            return [], float("inf")
        number = bisect_left(self._links, point.position, key=_begins_at)
        if number == len(self._links) or self._links[number].link.prev != point:
            return None
        return [each.link for each in islice(self._links, number, None)], self._links[number].applied

    def holds(self, point: Point) -> bool | None:
        """Whether the topic's history up to its head contains a point; None: the log does not reach back to it."""
        if point == ZERO or self.after(point) is not None:
            return True
        return False if point.position > self._base.position or point.position == self.head.position else None


def _begins_at(each: _Logged) -> int:
    return each.link.prev.position
