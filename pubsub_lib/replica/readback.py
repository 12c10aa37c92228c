"""Wait for a commit in a replica: checks under the replica's lock, and queries of the store without the lock."""

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from pubsub_lib.arguments import wrong
from pubsub_lib.core.awaited import Awaited, HistoryQuery
from pubsub_lib.core.model import ALL, Link, Point
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.errors import OutcomeUnknown, StoreError, WaitTimeout


class Committed(Protocol):
    """The result of a committed transaction."""

    @property
    def links(self) -> Sequence[Link]:
        """The transaction's changes of each topic."""

    @property
    def point(self) -> Point:
        """The transaction's point."""


def check_position(target: object) -> None:
    """Raises UsageError for an invalid position or commit."""
    number = isinstance(target, int) and not isinstance(target, bool) and target >= 0
    if not (number or target is None or isinstance(getattr(target, "point", None), Point)):
        raise wrong("position", target, "an integer from 0, or tx.commit of a finished transaction")


@runtime_checkable
class HistoryReader(Protocol):
    """A store that can be queried for the points of its history."""

    def holds(self, topic: str, points: Sequence[Point]) -> Sequence[bool | None]:
        """For each point whether it is in the topic's history (``ALL``: the store's history); None: unknown. Blocks;
        raises StoreError.
        """


RETRY = 1.0
"""Seconds before a failed query of the store is retried."""


def pause_after(error: StoreError, left: float | None) -> float:
    """Seconds to wait before the retry; ``left``: those until the wait's timeout. Raises WaitTimeout after it."""
    if left is None:
        return RETRY
    if left <= 0:
        raise WaitTimeout(f"the store could not be queried for the commit in time: {error}")
    return min(left, RETRY)


class Readback:
    """One wait: by position for a number, by the commit's point for a commit.

    Call ``look`` with the replica's lock held; call ``ask`` without the lock when ``question`` is not None.
    """

    def __init__(self, target: int | Committed, topics: Sequence[str] | None, reader: object, now: float) -> None:
        """``reader``: the database, if it is a HistoryReader; else only the replica's own chains can decide."""
        self.target = target
        self.topics = topics
        """The topics to wait for; None: all subscribed topics."""
        self._reader = reader
        self._number = target if isinstance(target, int) else target.point.position
        self._awaited = None if isinstance(target, int) else Awaited(target.point, now)
        self._wrote = frozenset() if isinstance(target, int) else frozenset(link.topic for link in target.links)
        self.question: HistoryQuery | None = None
        """The query that the store must answer before the wait continues."""

    @property
    def number(self) -> int:
        """The position to wait for."""
        return self._number

    def look(self, tracker: Tracker) -> bool:
        """Whether the topics have the commit. When ``question`` is set afterwards, ``ask`` before the next ``look``.

        Raises OutcomeUnknown when the topics cannot show that, and there is no database to query.
        """
        if self._awaited is None:
            return tracker.covered(self.topics) >= self._number
        if ALL in tracker.topics:
            return self._look_at(tracker, (ALL,))
        names = tracker.topics if self.topics is None else self.topics
        others = [name for name in names if name not in self._wrote]
        mine = [name for name in names if name in self._wrote]
        if not mine and not isinstance(self._reader, HistoryReader):
            raise self._undecided()
        if others and tracker.covered(others) < self._number:
            return False
        return self._look_at(tracker, mine) if mine else self._found(self._awaited.in_history())

    def _look_at(self, tracker: Tracker, chains: Collection[str]) -> bool:
        assert self._awaited is not None
        return self._found(self._awaited.look(tracker, [name for name in chains if name in tracker.topics]))

    def _found(self, found: bool | HistoryQuery) -> bool:
        self.question = found if isinstance(found, HistoryQuery) else None
        return found is True

    def ask(self) -> StoreError | None:
        """Query the store. Blocks for the database. Returns the error of a failed query, else None.

        Raises HistoryChanged, OutcomeUnknown.
        """
        question, self.question = self.question, None
        assert question is not None
        assert self._awaited is not None
        if not isinstance(self._reader, HistoryReader):
            raise self._undecided()
        try:
            held = self._reader.holds(question.chain, question.points)
        except StoreError as error:
            self._awaited.forget(question)
            return error
        self._awaited.answered(question, held)
        return None

    def _undecided(self) -> OutcomeUnknown:
        assert not isinstance(self.target, int)
        return OutcomeUnknown(
            f"cannot decide whether the commit at position {self._number} is in the store's history: the topics of the "
            "wait do not show it, and this replica has no database to query; set store_url, or read the objects "
            "themselves",
            self.target.point.nonce,
            self.target.point.position,
        )
