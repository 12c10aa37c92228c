"""The checks of a run with liars: a replica may believe a lie, for a bounded time.

The invariants that a lie may break while it is believed are not checked: those about the truth of a replica's state,
and those about the causes of syncs, because the evidence contains lies.
"""

from typing import TYPE_CHECKING, Final

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.model import ALL, Point
from simulator import invariants
from simulator.history import History
from simulator.invariants import Violation
from simulator.monitor import Monitor
from simulator.plan import ANCHOR, BOUND

if TYPE_CHECKING:
    from simulator.replica import Replica
    from simulator.world import World

MAY_BREAK: Final = frozenset({
    "clock", "asked", "delta without cause", "full without cause", "incomplete", "repair", "guard", "handler twice",
    "handler back", "read back",
})  # fmt: skip


class LiarMonitor(Monitor):
    """The invariants of a run with liars."""

    may_break = MAY_BREAK

    def __init__(self, world: "World", history: History) -> None:
        super().__init__(world, history)
        self._wrong: dict[tuple[Replica, str], float] = {}
        """Since when a replica's chain shows what the store never had."""
        self._well_since = 0.0
        """Since when the database works."""

    def check_chain(
        self, replica: "Replica", chain: Chain, before: Point | None, noticed: tuple[Point, Point] | None, *,
        changed: bool,
    ) -> None:  # fmt: skip
        """A chain may have changed: from here on it is right or wrong."""
        known = chain.known
        name = replica, chain.name
        if known is None or not (changed or chain.name in replica.replaced):
            return
        if not self._history.was_committed(chain.name, known):
            if known not in self._world.lies.forged:
                wrong = f"{chain.name!r} is at {known}, which no publisher of this store sent"
                raise Violation("committed", f"{replica.name}: {wrong}")
        elif invariants.content_is_whole(self._history, replica, chain) is None:
            self._wrong.pop(name, None)
            return
        self._wrong.setdefault(name, self._world.kernel.now)

    def replaced(self, replica: "Replica", chain: str, head: Point) -> None:
        """A full sync replaced a chain's contents; links that had waited are not applied yet."""
        topics = [chain] if chain != ALL else [*replica.cache.topics()]
        points = {chain: head} if chain != ALL else self._history.heads_at[head]
        for topic in topics:
            expected = self._history.content(topic, points.get(topic, Point(0, 0)))
            if invariants.content_of(replica, topic) != expected:
                raise Violation("replaced", f"{replica.name}: {topic!r} differs from the full sync's answer")
        self._wrong.pop((replica, chain), None)

    def mismatched(self, replica: "Replica", topic: str) -> None:
        """A lie may differ in its count or digest: the replica reads the differing buckets."""

    def dropped(self, replica: "Replica", topic: str) -> None:
        """A replica stops following a topic."""
        super().dropped(replica, topic)
        self._wrong.pop((replica, topic), None)

    def look(self, replica: "Replica") -> None:
        """What is wrong, or missing, is not for longer than the anchor's bound."""
        database, now = self._world.database, self._world.kernel.now
        if not database.up or database.stalled or database.slowness or database.hang_chance:
            self._well_since = now
        for name in replica.topics:
            since = self._wrong.get((replica, name))
            chain = replica.replica_state.tracker.chain(name)
            if since is not None:
                seconds = now - max(since, self._well_since)
                if seconds > ANCHOR:
                    wrong = f"{name!r} at {chain.known} is wrong since {seconds:.3f} s"
                    raise Violation("wrong read", f"{replica.name}: {wrong}")
            elif chain.known is not None and now - max(ANCHOR, BOUND) > self._well_since:
                since = now - max(ANCHOR, BOUND)
                if not self._history.covers(name, chain.known, since, now):
                    raise Violation("withheld", f"{replica.name}: {name!r} at {chain.known} lacks older changes")
