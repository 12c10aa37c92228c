"""A wait for one commit: whether what it did is on the chains that a replica follows.

A position does not tell. After a restored backup, or a crash of a server that had acknowledged commits it had not yet
written, other transactions take the same positions. So the commit's point must lie on the replica's own chain. The
replica remembers its last points; where these do not reach, the store has to be asked. Sans-I/O: a look says what to
ask, and the answer is brought back.
"""

from collections.abc import Collection, Sequence

import msgspec

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.model import Point
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.errors import HistoryChanged, OutcomeUnknown


class PlaceQuestion(msgspec.Struct, frozen=True):
    """Which of these points the store's history of a chain holds: the commit's, and the one that the replica knows."""

    chain: str
    points: tuple[Point, Point]


class Awaited:
    """One wait. Not thread-safe; ``look`` needs the replica's lock, ``answered`` does not."""

    def __init__(self, point: Point, now: float) -> None:
        """``point``: the commit's, of which the store told before ``now``."""
        self._point = point
        self._begun = now
        self._settled: dict[str, object] = {}
        """Per chain that has the commit the history in which it has it: a full sync, or a topic that is dropped and
        followed again, may take it away while another chain is waited for."""
        self._asked: dict[str, tuple[Point, float, object]] = {}
        """Per chain what was known, the best proof and the chain's history, when the store was asked last."""

    def look(self, tracker: Tracker, chains: Collection[str]) -> bool | PlaceQuestion:
        """True: these chains have the commit. False: not yet. Or what to ask the store now, without the lock."""
        waits = False
        for name in chains:
            chain = tracker.chain(name)
            if self._settled.get(name) is chain.history:
                continue
            if chain.known is None or chain.frozen:
                waits = True
            elif self._point.position <= chain.known.position and chain.passed(self._point):
                self._settled[name] = chain.history
            elif self._may_be_lost(chain, chain.known, tracker.freshness.of(name).proof):
                return PlaceQuestion(name, (self._point, chain.known))
            else:
                waits = True
        return not waits

    def _may_be_lost(self, chain: Chain, known: Point, proof: float) -> bool:
        """Either known is beyond the commit and nobody remembers how it came there; or the store was read after the
        commit and did not show it. Each is asked about once.
        """
        if self._asked.get(chain.name) == (known, proof, chain.history):
            return False
        if known.position < self._point.position and proof <= self._begun:
            return False
        self._asked[chain.name] = known, proof, chain.history
        return True

    def answered(self, question: PlaceQuestion, held: Sequence[bool | None]) -> None:
        """The store's answer: for each of the points True, False, or None when the changelog no longer tells.

        Raises HistoryChanged, OutcomeUnknown.
        """
        ours, known = held
        if ours is None:
            raise OutcomeUnknown(
                f"nobody can tell whether the commit at position {self._point.position} is in the store's history: the "
                "changelog does not reach back to it any more; read the objects themselves, and keep more of the "
                "changelog (keep_links)",
                self._point.nonce,
            )
        if not ours:
            raise HistoryChanged(
                f"the commit at position {self._point.position} is not in the store's history any more: the database "
                "was restored from a backup, or lost commits that it had acknowledged; read the objects, and write "
                "again what is missing",
                self._point,
            )
        if known and self._point.position <= question.points[1].position:
            self._settled[question.chain] = self._asked[question.chain][2]

    def forget(self, question: PlaceQuestion) -> None:
        """The store could not be asked: ask again."""
        self._asked.pop(question.chain, None)
