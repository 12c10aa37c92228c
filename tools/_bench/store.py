"""A store with plans instead of a database: no database commits as fast as these bursts are sent."""

from collections.abc import Callable, Collection, Mapping, Sequence

from _bench.payload import Plan
from pubsub_lib import Store
from pubsub_lib.core.contents import ReadObjects
from pubsub_lib.core.model import ALL, EMPTY, ZERO, Full, Head, Heads, Link, SyncAnswer, TopicSnapshot, Want
from pubsub_lib.errors import StoreError

STORE_ID = bytes(range(16))
"""The id of a planned store."""


class PlannedStore:
    """The interface of a store that a publisher and a replica need. Any thread may call; no method blocks.

    A replica gets the objects before the burst once; a topic without a plan was never written. Any other request means
    that messages were lost, which makes the figure worthless: it raises StoreError, and the case fails.
    """

    def __init__(self, plans: Sequence[Plan], store_id: bytes = STORE_ID) -> None:
        self._store_id = store_id
        self._plans = {plan.topic: plan for plan in plans}
        self._committed = False

    def commit(self) -> None:
        """Make the heads those after the last transaction."""
        self._committed = True

    def read_heads(self, topics: Collection[str]) -> Heads:
        """The heads, for hellos."""
        names = self._plans if ALL in topics else topics
        heads = {name: self._head(name) for name in names}
        newest = max((head.point for head in heads.values()), key=lambda point: point.position, default=ZERO)
        return Heads(newest, heads, self._store_id)

    @property
    def store_id(self) -> bytes:
        """The id of the planned store."""
        return self._store_id

    def on_commit(
        self, callback: Callable[[Sequence[Link]], None], *, after_fork: bool = False, unless_published: bool = False
    ) -> Callable[[], None]:
        """No callback is called: there are no commits, and the bench calls the publisher itself."""
        return lambda: None

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """The objects before the burst. Raises StoreError for other requests."""
        if self._committed or any(want.after is not None for want in wants.values()):
            raise StoreError("a replica asked the store for messages that it should have received")
        return SyncAnswer(self.read_heads(wants).store, {name: self._full(name) for name in wants}, self._store_id)

    def _full(self, name: str) -> Full:
        plan = self._plans.get(name)
        return Full({name: TopicSnapshot(EMPTY, [])}, ZERO) if plan is None else plan.full()

    def _head(self, name: str) -> Head:
        plan = self._plans.get(name)
        if plan is None:
            return EMPTY
        return plan.end if self._committed else plan.start.head


class DirectoryStore(Store):
    """A database, of which only the directory is used, with plans instead of its objects."""

    def __init__(self, url: str, plans: Sequence[Plan]) -> None:
        super().__init__(url)
        self._planned = PlannedStore(plans, self.store_id)

    def commit(self) -> None:
        """See :meth:`PlannedStore.commit`."""
        self._planned.commit()

    def read_heads(self, topics: Collection[str]) -> Heads:
        """See :meth:`PlannedStore.read_heads`."""
        return self._planned.read_heads(topics)

    def read_sync(self, wants: Mapping[str, Want], read: ReadObjects | None = None) -> SyncAnswer:
        """See :meth:`PlannedStore.read_sync`."""
        return self._planned.read_sync(wants)
