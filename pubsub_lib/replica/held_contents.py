"""Records what a replica holds, in numbers (docs/audit.md, "Kinds"), so that an audit can compare it with the changelog
while the replica runs, and after it was killed.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from pubsub_lib.core.model import ALL
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.journal import Journal

MAX_HELD: Final = 500
"""Maximum number of topics that are recorded at a mark: the replica's lock is held for some milliseconds."""


class LockOwner(Protocol):
    """The part of a replica's engine that is needed at marks."""

    def read(self, look: Callable[[ReplicaState], None]) -> None:
        """See :meth:`pubsub_lib.replica.engine.Engine.read`."""

    def call_if_free(self, fn: Callable[[], None]) -> object:
        """See :meth:`pubsub_lib.replica.engine.Engine.call_if_free`."""


class HeldContents:
    """The topics about which something was received since they were recorded. The caller holds the replica's lock,
    except in ``at_mark``.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._touched: set[str] = set()

    def touch(self, topics: Iterable[str]) -> None:
        """Record these topics next time."""
        self._touched.update(topics)

    def at_mark(self, owner: LockOwner) -> None:
        """Record topics, unless another thread holds the replica's lock: no mark waits; the next one records them."""
        owner.call_if_free(lambda: owner.read(self.record))

    def record(self, state: ReplicaState) -> None:
        """Write the number and the digest of the objects of at most ``MAX_HELD`` topics, at the points that their
        chains have reached.
        """
        tracker, left = state.tracker, MAX_HELD
        everything = ALL in tracker.topics
        while self._touched and left:
            topic, left = self._touched.pop(), left - 1
            chain = ALL if everything else topic
            known = tracker.chain(chain).known if chain in tracker.topics else None
            if topic != ALL and known is not None:
                count, digest = state.cache.head(topic)
                self._journal.note("held", topic=topic, point=known, count=count, digest=digest)

    def record_all(self, state: ReplicaState) -> None:
        """Write every topic."""
        self._touched.update(state.cache.topics(), state.tracker.topics)
        while self._touched:
            self.record(state)
