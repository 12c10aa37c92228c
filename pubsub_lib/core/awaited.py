"""A wait for one commit, until its changes are on the chains that a replica follows.

A position alone does not identify a commit. After a restored backup, or a crash of a server that had acknowledged
commits it had not yet written, other transactions take the same positions. So the commit's point must lie on the
replica's own chain. The replica remembers its last points; for older points it has to query the store. Sans-I/O: a look
returns the query, and the caller brings the answer back.
"""

from collections.abc import Collection, Sequence

import msgspec

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.model import ALL, Point
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.errors import HistoryChanged, OutcomeUnknown


class HistoryQuery(msgspec.Struct, frozen=True):
    """Which of these points the store's history of a chain holds: the commit's, and the one that the replica knows."""

    chain: str
    points: tuple[Point, Point]


class Awaited:
    """One wait. Not thread-safe; ``look`` needs the replica's lock, ``answered`` does not."""

    def __init__(self, point: Point, now: float) -> None:
        """``point``: the commit's point, which the store returned before ``now``."""
        self._point = point
        self._begun = now
        self._settled: dict[str, object] = {}
        """Per chain that has the commit: the history in which it has it. A full sync, or a topic that is dropped and
        followed again, may remove the commit while the wait continues for another chain."""
        self._asked: dict[str, tuple[Point, float, object]] = {}
        """Per chain: known, the best proof and the chain's history at the last query."""

    def look(self, tracker: Tracker, chains: Collection[str]) -> bool | HistoryQuery:
        """True: these chains have the commit. False: not yet. Else the query to send to the store, without the lock."""
        waits = False
        for name in chains:
            chain = tracker.chain(name)
            if self._settled.get(name) is chain.history:
                continue
            if chain.known is None or chain.frozen:
                waits = True
            elif self._point.position <= chain.known.position and chain.passed(self._point):
                self._settled[name] = chain.history
            elif self._may_be_lost(chain, chain.known, tracker.freshness.of[name].proof):
                return HistoryQuery(name, (self._point, chain.known))
            else:
                waits = True
        return not waits

    def in_history(self) -> bool | HistoryQuery:
        """True: the store's history had the commit. Else the query to send to the store, without the lock. For topics
        that the commit did not write to: their chains do not show whether it was undone.
        """
        if ALL in self._settled:
            return True
        self._asked[ALL] = self._point, self._begun, None
        return HistoryQuery(ALL, (self._point, self._point))

    def _may_be_lost(self, chain: Chain, known: Point, proof: float) -> bool:
        """True when known is beyond the commit and the remembered points do not show how, or when the store was read
        after the commit and did not show it. Each case leads to one query.
        """
        if self._asked.get(chain.name) == (known, proof, chain.history):
            return False
        if known.position < self._point.position and proof <= self._begun:
            return False
        self._asked[chain.name] = known, proof, chain.history
        return True

    def answered(self, query: HistoryQuery, held: Sequence[bool | None]) -> None:
        """The store's answer: for each point True, False, or None when the changelog was trimmed beyond it.

        Raises HistoryChanged, OutcomeUnknown.
        """
        ours, known = held
        if ours is None:
            raise OutcomeUnknown(
                f"cannot decide whether the commit at position {self._point.position} is in the store's history: the "
                "changelog does not reach back to it any more; read the objects themselves, and keep more of the "
                "changelog (keep_links)",
                self._point.nonce,
                self._point.position,
            )
        if not ours:
            raise HistoryChanged(
                f"the commit at position {self._point.position} is not in the store's history any more: the database "
                "was restored from a backup, or lost commits that it had acknowledged; read the objects, and write "
                "the missing changes again",
                self._point,
            )
        if known and self._point.position <= query.points[1].position:
            self._settled[query.chain] = self._asked[query.chain][2]

    def forget(self, query: HistoryQuery) -> None:
        """The query failed: a later look returns it again."""
        self._asked.pop(query.chain, None)
