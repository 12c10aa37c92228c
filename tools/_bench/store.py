"""A store that holds plans instead of a database: no database commits as fast as a burst is sent here."""

from collections.abc import Callable, Collection, Mapping, Sequence

from _bench.payload import Plan
from pubsub_lib.core.model import ALL, EMPTY, ZERO, Full, Head, Heads, Link, SyncAnswer, TopicSnapshot, Want
from pubsub_lib.errors import StoreError


class PlannedStore:
    """What a publisher and a replica need of a store. Any thread; nothing blocks.

    A replica is given the objects before the burst, once; a topic without a plan is one that was never written.
    Whatever else it asks for means that messages were lost,
    which would make the figure worthless: StoreError, and the case fails.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = {plan.topic: plan for plan in plans}
        self._committed = False

    def commit(self) -> None:
        """From now on the heads are those behind the last transaction."""
        self._committed = True

    def read_heads(self, topics: Collection[str]) -> Heads:
        """The heads, for hellos."""
        names = self._plans if ALL in topics else topics
        heads = {name: self._head(name) for name in names}
        newest = max((head.point for head in heads.values()), key=lambda point: point.position, default=ZERO)
        return Heads(newest, heads)

    def on_commit(self, callback: Callable[[Sequence[Link]], None], *, after_fork: bool = False) -> Callable[[], None]:
        """Nothing commits here; the bench calls the publisher itself."""
        return lambda: None

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """The objects before the burst. Raises StoreError for everything else."""
        if self._committed or any(want.after is not None for want in wants.values()):
            raise StoreError("a replica asked the store for what it should have received")
        return SyncAnswer(self.read_heads(wants).store, {name: self._full(name) for name in wants})

    def _full(self, name: str) -> Full:
        plan = self._plans.get(name)
        return Full({name: TopicSnapshot(EMPTY, [])}, ZERO) if plan is None else plan.full()

    def _head(self, name: str) -> Head:
        plan = self._plans.get(name)
        if plan is None:
            return EMPTY
        return plan.end if self._committed else plan.start.head
