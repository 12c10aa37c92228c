"""Why the last sync of a replica failed: what its source raised, or what the tracker found."""

from pubsub_lib.core.sync_scheduler import SyncScheduler
from pubsub_lib.errors import PubSubError, StoreError, described


class SyncFailures:
    """The last failure of one replica's syncs. An equal one is logged once. The engine calls its methods with the
    replica's lock held, except ``why``.
    """

    def __init__(self, syncs: SyncScheduler) -> None:
        self._syncs = syncs
        self._found = ""
        """What the tracker had found at the last call."""
        self.last: PubSubError | None = None
        """Why the last sync failed; None after a success."""

    def why(self) -> str:
        """Why the replica may wait longer than expected, as the end of a sentence; "" without a reason. Any thread."""
        error = self.last
        return "" if error is None else f": the last sync failed because {error}"

    def raised(self, error: Exception) -> bool:
        """The source raised this exception. True: the last failure was an equal one."""
        before = self.last
        self.last = error if isinstance(error, PubSubError) else PubSubError(f"internal error: {described(error)}")
        return before is not None and str(before) == str(self.last)

    def answered(self) -> PubSubError | None:
        """The source answered, perhaps too late: the tracker has judged the answer. Returns the failure to log."""
        if not self._syncs.failure:
            self.last = None
        return self.found()

    def found(self) -> PubSubError | None:
        """The tracker took a step: a sync may have timed out, whose source still hangs. Returns the failure to log."""
        before, self._found = self._found, self._syncs.failure
        if self._found == before:
            return None
        if not self._found:  # for example, the topic was dropped
            self.last = None if str(self.last) == before else self.last
            return None
        self.last = StoreError(self._found)
        return self.last
