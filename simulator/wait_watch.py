"""Checks the waits for commits of a replica, by the true history. Methods raise Violation by way of the monitor."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from pubsub_lib.core.model import Point
from simulator.history import History

if TYPE_CHECKING:
    from simulator.replica import Replica

ENDS: Final = 2.5
"""Seconds in calm after which a wait for a commit that the replica has must have ended: a look, and a query."""

Demand = Callable[[str, "Replica", str | None], None]
"""An invariant, the replica, and what is wrong: nothing when it is None."""


class WaitWatch:
    """The waits of all replicas of one run."""

    def __init__(self, history: History, demand: Demand) -> None:
        self._history = history
        self._demand = demand

    def read_back(self, replica: "Replica", point: Point, chains: Collection[str]) -> None:
        """A wait for a commit succeeded: the commit is on each of these chains."""
        for name in chains:
            chain = replica.replica_state.tracker.chain(name)
            if chain.known is None or not self._history.is_ancestor(name, point, chain.known):
                self._demand("read back", replica, f"{point} is called applied in {name!r} at {chain.known}")

    def called_lost(self, replica: "Replica", point: Point, chain: str, since: float) -> None:
        """A wait ended with HistoryChanged, by a query since this true time: a restore has undone the commit."""
        history, now = self._history, replica.world.kernel.now
        wrong = None
        if history.restored_at < 0:
            wrong = "the history never changed"
        elif all(history.is_ancestor(chain, point, head) for head in history.shown(chain, since, now)):
            wrong = "the store had it for the whole time of the query"
        if wrong is not None:
            self._demand("called lost", replica, f"{point} of {chain!r} is called lost, and {wrong}")

    def called_unknown(self, replica: "Replica", point: Point) -> None:
        """A wait ended with OutcomeUnknown: the changelog was trimmed."""
        if not self._history.trims:
            self._demand("called unknown", replica, f"{point} is called unknown, and the changelog was never trimmed")

    def looked(self, replica: "Replica", point: Point, chains: Collection[str], since: float) -> float:
        """A wait goes on. ``since``: the true time since which the replica has had the commit; returns it for the next
        look.
        """
        now = replica.world.kernel.now
        if not self._has(replica, point, chains):
            return now
        if now - max(since, replica.world.settled_since) > ENDS:
            self._demand("waits", replica, f"waits for {point} for {now - since:.3f} s, and has it in all of {chains}")
        return since

    def _has(self, replica: "Replica", point: Point, chains: Collection[str]) -> bool:
        """Whether the commit is on each of these chains, whose known points are in the store's present history."""
        history, now = self._history, replica.world.kernel.now
        for name in chains:
            chain = replica.replica_state.tracker.chain(name)
            known = chain.known
            if known is None or chain.frozen or not history.is_ancestor(name, point, known):
                return False
            if not all(history.is_ancestor(name, known, head) for head in history.shown(name, now, now)):
                return False
        return True
