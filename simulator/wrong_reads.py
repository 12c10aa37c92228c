"""Checks that a replica shows what the store never had, or lacks what it had, for a bounded time only (rule 14).

Times are true times. The bounds count the time in which the replica runs: while it is paused it can be neither repaired
nor read. Methods raise Violation.
"""

from typing import TYPE_CHECKING

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.model import ALL, ZERO, Point
from pubsub_lib.core.quarantine import CONTRADICTIONS
from simulator import invariants
from simulator.exclusion_watch import knows_leases
from simulator.invariants import Violation
from simulator.plan import ANCHOR, BOUND, SPACING

if TYPE_CHECKING:
    from simulator.history import History
    from simulator.replica import Replica


class WrongReads:
    """The chains of all replicas that show a lie."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._since: dict[tuple[Replica, str], float] = {}
        self._beyond: dict[tuple[Replica, str], float] = {}
        """Chains that count as complete up to a position which the store does not have, and since when."""

    def changed(self, replica: "Replica", chain: Chain, now: float) -> None:
        """A chain may have changed: from here on it is right or wrong."""
        name = replica, chain.name
        right = chain.known is None or self._history.was_committed(chain.name, chain.known)
        if right and invariants.content_is_whole(self._history, replica, chain) is None:
            self._since.pop(name, None)
        else:
            self._since.setdefault(name, now)

    def replaced(self, replica: "Replica", name: str, head: Point) -> None:
        """A full sync replaced a chain's contents; links that had waited are not applied yet."""
        topics = [name] if name != ALL else [*replica.cache.topics()]
        points = {name: head} if name != ALL else self._history.heads_at[head]
        for topic in topics:
            if invariants.content_of(replica, topic) != self._history.content(topic, points.get(topic, ZERO)):
                raise Violation("replaced", f"{replica.name}: {topic!r} differs from the full sync's answer")
        self._since.pop((replica, name), None)

    def dropped(self, replica: "Replica", name: str) -> None:
        """A chain is not followed any more."""
        self._since.pop((replica, name), None)

    def look(self, replica: "Replica", well_since: float, now: float) -> None:
        """``well_since``: since when the database works."""
        for name in replica.topics:
            self._look_at_covered(replica, name, well_since, now)
            known = replica.replica_state.tracker.chain(name).known
            wrong_since = self._since.get((replica, name))
            if wrong_since is not None:
                begun = max(wrong_since, well_since)
                if begun < replica.process.since(ANCHOR):
                    seconds = now - begun
                    raise Violation("wrong read", f"{replica.name}: {name!r} at {known} is wrong since {seconds:.3f} s")
            elif known is not None:
                since = replica.process.since(max(ANCHOR, BOUND))
                if since > well_since and not self._history.covers(name, known, since, now):
                    raise Violation("withheld", f"{replica.name}: {name!r} at {known} lacks older changes")

    def _look_at_covered(self, replica: "Replica", name: str, well_since: float, now: float) -> None:
        covered = replica.replica_state.tracker.covered([name])
        if covered <= self._history.position:
            self._beyond.pop((replica, name), None)
            return
        begun = max(self._beyond.setdefault((replica, name), now), well_since)
        # Each reading ends it, and the same publisher may begin again until it is excluded.
        knows = knows_leases(replica, replica.clock.now())
        if begun < replica.process.since(ANCHOR if knows else CONTRADICTIONS * (ANCHOR + SPACING)):
            claim = f"counts as complete up to {covered}, beyond the store, since {now - begun:.3f} s"
            raise Violation("covered", f"{replica.name}: {name!r} {claim}")
