"""Reads the changelog for links that were committed and not handed over (rule S10), and checks that those which workers
handed over were committed (rule 14).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from pubsub_lib.core.handoffs import LinkName
from pubsub_lib.core.model import ALL, Heads, Link, Point
from pubsub_lib.failpoints import hit

MAX_LINKS: Final = 1000
"""Maximum number of links that one step reads."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""A step reads no further transaction after this size of changes."""


class Changelog(Protocol):
    """The methods of a store that the reader uses."""

    def read_heads(self, topics: Collection[str]) -> Heads:
        """The store's point. Blocks; raises StoreError."""

    def read_links(self, after: Point | None, maximum: int, max_bytes: int, /) -> tuple[list[Link], Point, bool]:
        """(links in commit order after a point, the store's head, whether they connect). Blocks; raises StoreError."""

    def holds_each(self, asked: Sequence[tuple[str, Point]]) -> Sequence[bool | None]:
        """Whether the history of each topic contains its point; None: it was trimmed. Blocks; raises StoreError."""


class Sends(Protocol):
    """Decides about links and sends them: :class:`pubsub_lib.service.outgoing.Outgoing`."""

    def in_changelog(self, links: Sequence[Link], now: float) -> None:
        """These links were read from the changelog."""

    def passed(self, after: Point) -> Point:
        """The point up to which all links after this one were sent."""

    def history_changed(self) -> None:
        """The changelog does not connect any more."""

    def overdue(self, now: float) -> Sequence[LinkName]:
        """Links that were handed over and not seen in the changelog for some time."""

    def judge(self, names: Sequence[LinkName], held: Sequence[bool | None], now: float) -> None:
        """Whether the store contains these."""

    def due(self, now: float, live: Collection[str], holds_orphans: bool) -> None:
        """Send the links that are due."""

    def next_time(self) -> float:
        """The time of the next call of ``due``."""


class ChangelogReader:
    """Reads step by step, from the head at the first step on: a restarted service need not know which links were sent
    before, because the next hello shows the head. Not thread-safe.
    """

    def __init__(
        self,
        store: Changelog,
        outgoing: Sends,
        interval: float,
        orphans: Callable[[float], tuple[Collection[str], bool]],
    ) -> None:
        """``orphans(now)``: the names of the live services, and whether this one holds the lease for orphans."""
        self._store = store
        self._outgoing = outgoing
        self._interval = interval
        self._orphans = orphans
        self._after: Point | None = None
        self.jumps = 0
        """How often the store's history changed, or was trimmed before it was read."""

    def step(self, now: float) -> float:
        """Read once, send the due links; returns the next step's time. Blocks for the database; raises StoreError."""
        more = self._read(now)
        self._check_handoffs(now)
        live, held = self._orphans(now)
        self._outgoing.due(now, live, held)
        return now if more else min(now + self._interval, max(self._outgoing.next_time(), now))

    def adjust(self, interval: float) -> None:
        """Use another interval from the next step on. Any thread."""
        self._interval = interval

    def _read(self, now: float) -> bool:
        if self._after is None:
            self._after = self._store.read_heads(()).store
            return False
        begin = self._after
        passed = self._outgoing.passed(begin)
        if passed != begin:
            hit("service.while_following")
            if self._store.read_heads(()).store == passed:
                self._after = passed
                return False  # nothing else was committed, so no link need be read and decoded
        links, head, complete = self._store.read_links(passed, MAX_LINKS, MAX_BYTES)
        if not complete and passed != begin:  # a restore may have undone only what was passed
            links, head, complete = self._store.read_links(begin, MAX_LINKS, MAX_BYTES)
        if links:
            hit("service.while_following")
        self._after = links[-1].point if complete and links else head
        if not complete:
            self.jumps += 1
            self._outgoing.history_changed()
        self._outgoing.in_changelog(links, now)
        return complete and self._after != head

    def _check_handoffs(self, now: float) -> None:
        """Look up what workers handed over and the changelog did not show, together with a point that this reader read
        from the store: without that point, the history changed.
        """
        overdue = self._outgoing.overdue(now)
        if not overdue or self._after is None:
            return
        own, *held = self._store.holds_each([(ALL, self._after), *overdue])
        if own:
            self._outgoing.judge(overdue, held, now)
        else:
            self._outgoing.history_changed()
