"""The links of the changelog that a running service publishes itself: those that no worker handed over (rule S10).

This lowers the load and shortens the delay. Replicas converge without it, by hellos. So all memory is bounded, and
forgetting a link is harmless.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence

import msgspec

from pubsub_lib.core.model import Link, Point
from pubsub_lib.core.reorder_buffer import size_of

MAX_REMEMBERED = 100_000
"""Maximum number of remembered links that were handed over, of their transactions, and of links of the changelog."""
MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of the links of the changelog that wait, as ``size_of`` counts it; the newest one waits anyway."""
MAX_DUE = 1000
"""Maximum number of links that are due at once: sending them is quick, and others are sent between."""


class _Seen(msgspec.Struct, frozen=True):
    link: Link
    since: float
    size: int
    expected: bool = False
    """A worker handed it over, which was not believed: it is due at once, whatever its origin."""


class UnpublishedLinks:
    """A service's knowledge of published and unpublished links. Sans-I/O, not thread-safe.

    ``grace``: seconds that a worker has to hand a committed link over. ``keep``: seconds after which a link that
    another live service must publish is forgotten; at least twice the lease time, so that a service's death is seen.
    A link of this service is never forgotten before its grace is over, however short ``keep`` is.
    """

    def __init__(self, service: str, grace: float, keep: float) -> None:
        self._service = service
        self._grace = grace
        self._keep = max(keep, 2 * grace)
        self._looked = float("-inf")
        self._unsettled = 0
        """Links that were due, and were not settled yet."""
        self._more = False
        """Whether further ones may be due."""
        self._published: OrderedDict[tuple[str, Point], None] = OrderedDict()
        self._pending: OrderedDict[tuple[str, Point], _Seen] = OrderedDict()
        self._bytes = 0
        """The size of those."""
        self._expected: OrderedDict[tuple[str, Point], None] = OrderedDict()
        """Links that workers handed over, which were not believed, and that the changelog has not shown yet."""
        self._parts: OrderedDict[Point, int] = OrderedDict()
        """Of transactions of which some links were published: how many others there are."""
        self._following: OrderedDict[Point, Point] = OrderedDict()
        """Transactions of which all links were published: by the point before, their own."""

    def handed_over(self, links: Sequence[Link], *, compared: bool = False) -> list[Link]:
        """Links that are to be published are handed over. Returns all that were not published before. ``compared``:
        a worker states that it committed them, so the reader of the changelog must not pass them: they are compared.
        """
        return [link for link in links if self._publish(link, walkable=not compared)]

    def shown(self, link: Link) -> Link | None:
        """What the changelog showed in the place of this link, if that waits for its publication."""
        seen = self._pending.get((link.topic, link.point))
        return None if seen is None else seen.link

    def unknown(self, links: Sequence[Link]) -> list[Link]:
        """Those of these links that were neither published nor shown by the changelog."""
        names = [(link, (link.topic, link.point)) for link in links]
        return [link for link, name in names if name not in self._published and name not in self._pending]

    def expect(self, links: Sequence[Link]) -> None:
        """Workers handed these unknown links over, which are not believed: they are due once the changelog shows them,
        without the grace.
        """
        for link in links:
            self._expected[link.topic, link.point] = None
            if len(self._expected) > MAX_REMEMBERED:
                self._expected.popitem(last=False)

    def in_changelog(self, links: Sequence[Link], now: float) -> None:
        """Links were read from the changelog, in commit order."""
        for link in links:
            name = (link.topic, link.point)
            if name not in self._published and name not in self._pending:
                expected = name in self._expected
                if expected:
                    del self._expected[name]
                self._pending[name] = seen = _Seen(link, now, size_of(link), expected)
                self._bytes += seen.size
        while len(self._pending) > MAX_REMEMBERED or (self._bytes > MAX_BYTES and len(self._pending) > 1):
            _, seen = self._pending.popitem(last=False)
            self._bytes -= seen.size

    def passed(self, after: Point) -> Point:
        """The last point to which only transactions lead from ``after`` whose links were all published, and need not be
        compared: nothing up to there need be read in the changelog. For one reader, which continues from the returned
        point.
        """
        while (point := self._following.pop(after, None)) is not None:
            after = point
        return after

    def due(self, now: float, live: Collection[str], holds_orphans: bool) -> list[Link]:
        """The first ``MAX_DUE`` of the links whose grace is over and that this service must publish, in commit order:
        its own, and while it holds the lease for orphans also those of no origin and of origins that are not ``live``.
        They stay due until ``settle``.
        """
        self._looked = now
        ours: list[Link] = []
        expired: list[tuple[str, Point]] = []
        for name, seen in self._pending.items():
            if seen.expected or (now >= seen.since + self._grace and self._is_ours(seen.link, live, holds_orphans)):
                ours.append(seen.link)
                if len(ours) == MAX_DUE:
                    break
            elif now >= seen.since + self._keep:
                expired.append(name)
        for name in expired:
            self._bytes -= self._pending.pop(name).size
        self._unsettled = len(ours)
        self._more = len(ours) == MAX_DUE
        return ours

    def _is_ours(self, link: Link, live: Collection[str], holds_orphans: bool) -> bool:
        return link.origin == self._service or (holds_orphans and link.origin not in live)

    def settle(self, links: Sequence[Link]) -> None:
        """Links that were due were published, or are given up."""
        for link in links:
            self._publish(link)
        self._unsettled -= len(links)

    def next_time(self) -> float:
        """When the grace of a further link ends, in the past while links stayed due; infinite without one. Call ``due``
        also when ``live`` or the lease changes: links of other services wait for that. With the time of the oldest link
        the caller would loop busily.
        """
        if self._unsettled or self._more:
            return self._looked
        ends = (seen.since + self._grace for seen in self._pending.values())
        return next((end for end in ends if end > self._looked), float("inf"))

    def _publish(self, link: Link, *, walkable: bool = True) -> bool:
        name = (link.topic, link.point)
        seen = self._pending.pop(name, None)
        if seen is not None:
            self._bytes -= seen.size
        if name in self._published:
            return False
        self._published[name] = None
        if walkable:
            self._walk(link)
        for each in (self._published, self._parts, self._following):
            if len(each) > MAX_REMEMBERED:
                each.popitem(last=False)
        return True

    def _walk(self, link: Link) -> None:
        left = self._parts.pop(link.point, link.tx_links) - 1
        if left:
            self._parts[link.point] = left
        else:
            self._following[link.tx_prev] = link.point
