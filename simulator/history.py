"""The true history: every point that was ever committed, and the store's heads over time."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from pubsub_lib.core.model import ALL, ZERO, Link, Point
from simulator.store import Commit, Ident, ModelStore

Content = dict[Ident, tuple[int, bytes]]
"""An object's version and value."""


class History:
    """The reference for the invariants. All times are true times."""

    def __init__(self) -> None:
        self.contents: dict[tuple[str, Point], Content] = {}
        self.heads_at: dict[Point, dict[str, Point]] = {ZERO: {}}
        """A transaction's point -> every topic's head at that point."""
        self.transactions = 0
        self.restored_at = float("-inf")
        self.restores = 0
        self.trims = 0
        self.repeated = 0
        """Serial of a transaction that is in one history twice; 0: none."""
        self.nonces: dict[int, Point] = {}
        """A transaction's nonce -> its point."""
        self._serials: dict[int, list[Point]] = {}
        self._undone: set[Point] = set()
        """Transactions that a restore has undone, also when a later restore brought them back."""
        self._parents: dict[tuple[str, Point], Point] = {}
        self._times: dict[str, list[float]] = {}
        self._points: dict[str, list[Point]] = {}

    @property
    def position(self) -> int:
        """The store's position now."""
        points = self._points.get(ALL)
        return points[-1].position if points else 0

    def committed(self, commit: Commit, now: float, serial: int) -> None:
        """The store's history grew by the writer's transaction ``serial``."""
        self.committed_together([(commit, serial)], now)

    def committed_together(self, commits: Sequence[tuple[Commit, int]], now: float) -> None:
        """The same for several transactions, in their order: no reader is shown a head between them."""
        heads: dict[str, Point] = {}
        for commit, serial in commits:
            self._extend(commit, serial)
            heads |= {**{link.topic: link.point for link in commit.links}, ALL: commit.point}
        for chain, point in heads.items():
            self._show(chain, point, now)

    def _extend(self, commit: Commit, serial: int) -> None:
        self.transactions += 1
        self.nonces[commit.point.nonce] = commit.point
        heads = dict(self.heads_at[commit.links[0].tx_prev])
        for link in commit.links:
            self._grow(link)
            heads[link.topic] = link.point
        self._parents[ALL, commit.point] = commit.links[0].tx_prev
        self.heads_at[commit.point] = heads
        before = self._serials.setdefault(serial, [])
        # While a transaction is undone, its writer gets the true answer "not committed", and may write it again.
        if any(self.is_ancestor(ALL, point, commit.point) for point in before if point not in self._undone):
            self.repeated = serial
        before.append(commit.point)

    def _grow(self, link: Link) -> None:
        content = dict(self.content(link.topic, link.prev))
        for change in link.changes:
            if change.value is None:
                content.pop((change.table, change.key), None)
            else:
                content[change.table, change.key] = change.version, change.value
        self.contents[link.topic, link.point] = content
        self._parents[link.topic, link.point] = link.prev

    def restored(self, store: ModelStore, now: float) -> None:
        """The store was restored to an earlier state."""
        self.restored_at = now
        self.restores += 1
        for points in self._serials.values():
            self._undone.update(point for point in points if not self.is_ancestor(ALL, point, store.state.point))
        for chain in list(self._times):
            self._show(chain, store.state.point if chain == ALL else store.head(chain).point, now)

    def _show(self, chain: str, point: Point, now: float) -> None:
        self._times.setdefault(chain, []).append(now)
        self._points.setdefault(chain, []).append(point)

    def content(self, topic: str, point: Point) -> Content:
        """A topic's objects at a point. KeyError: it was never committed."""
        return {} if point == ZERO else self.contents[topic, point]

    def was_committed(self, chain: str, point: Point) -> bool:
        """True when this point was ever a head of the chain."""
        return point == ZERO or (chain, point) in self._parents

    def is_ancestor(self, chain: str, older: Point, younger: Point) -> bool:
        """True when ``younger`` is ``older``, or was reached from it."""
        while younger.position > older.position:
            younger = self._parents.get((chain, younger), ZERO)
        return younger == older

    def between(self, chain: str, older: Point, younger: Point) -> list[Point]:
        """The points after ``older`` up to ``younger``, the latest first; empty when ``older`` is not an ancestor."""
        found, at = [], younger
        while at.position > older.position:
            found.append(at)
            at = self._parents.get((chain, at), ZERO)
        return found if at == older else []

    def shown(self, chain: str, since: float, until: float) -> Iterable[Point]:
        """The heads of the store in this time, oldest first; the first may be older than ``since``."""
        times, points = self._times.get(chain, []), self._points.get(chain, [])
        first = bisect_right(times, since)
        if first == 0:
            yield ZERO
        for index in range(max(first - 1, 0), len(times)):
            if times[index] > until:
                break
            yield points[index]

    def covers(self, chain: str, known: Point, since: float, until: float) -> bool:
        """True when ``known`` contains everything that the store had at some moment in this time."""
        return any(self.is_ancestor(chain, head, known) for head in self.shown(chain, since, until))
