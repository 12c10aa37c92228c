"""Log lines about the faults of a replica. A fault that lasts is logged once, until it is over."""

from collections.abc import Collection, Mapping, Sequence

from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.foreign_stores import ForeignPublisher
from pubsub_lib.core.index import Index, IndexStatus
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.topic_objects import Rot
from pubsub_lib.errors import PubSubError
from pubsub_lib.logs import fields, logger
from pubsub_lib.replica.history_log import log_history_change, log_quarantined
from pubsub_lib.replica.journaling import ReplicaJournal
from pubsub_lib.replica.status import unfit

_log = logger(__name__)


class FaultLog:
    """The faults of one replica that were logged and last. The caller holds the replica's lock around
    ``new_incomplete``; the other methods are called without it.
    """

    def __init__(self) -> None:
        self._incomplete: frozenset[str] = frozenset()
        """Indexes that were logged because they leave objects out."""
        self._mismatching: frozenset[str] = frozenset()
        """Topics that were logged because their objects do not match their digest."""

    def new_incomplete(self, indexes: Collection[Index]) -> Mapping[str, IndexStatus]:
        """The indexes that leave objects out and did not at the last call."""
        failing = {index.name: index.status(1) for index in indexes if index.left_out}
        fresh = {name: status for name, status in failing.items() if name not in self._incomplete}
        self._incomplete = frozenset(failing)
        return fresh

    def log_incomplete(self, indexes: Mapping[str, IndexStatus]) -> None:
        """One line for each of these indexes."""
        for name, status in indexes.items():
            key, error = next(iter(status.examples.items()))
            _log.error(
                "the index %r leaves out %d objects of the table %r, for example %r (%s); lookup does not find them",
                name,
                status.left_out,
                status.table,
                key,
                error,
                extra=fields(index=name, table=status.table, key=key, objects=status.left_out),
            )

    def log_mismatching(self, topics: frozenset[str]) -> None:
        """Log each topic once. The number of its further reads is in the metrics."""
        for topic in sorted(topics - self._mismatching):
            _log.error("%s", unfit(topic), extra=fields(topic=topic))
        self._mismatching = topics


def log_step(outcome: StepResult, journal: ReplicaJournal | None) -> None:
    """Log a changed history, and publishers of another store or with false digests: these are also journalled."""
    if outcome.history is not None:
        log_history_change(outcome.history)
    if outcome.foreign is not None:
        log_foreign_publisher(outcome.foreign)
    if journal is not None:
        journal.quarantined(outcome.quarantined)
    log_quarantined(outcome.quarantined, "counts, digests, changes or positions that the database denies")


def log_foreign_publisher(found: ForeignPublisher) -> None:
    """Messages of another store were received, for the first time from this publisher."""
    _log.warning(
        "the publisher %r with the UUID %s sends messages of another store (id %s, the store of this replica has %s); "
        "they are dropped: correct the address or the socket path that the two share, or run pubsub-db new-id if one "
        "database is a copy of the other",
        found.service,
        found.uuid,
        found.theirs.hex() or "none",
        found.own.hex(),
        extra=fields(service=found.service, uuid=found.uuid),
    )


def report_rot(rotted: Sequence[Rot], journal: ReplicaJournal | None) -> None:
    """Journal and log the objects that a step found to be altered or lost in memory."""
    for rot in rotted:
        if journal is not None:
            journal.rotted(rot)
        log_rot(rot)


def log_rot(rot: Rot) -> None:
    """Objects in memory were altered or lost."""
    named = ", ".join(f"{table} {key!r}" for table, key in rot.names) or "names unknown"
    _log.error(
        "%d objects of the topic %r were altered or lost in this process's memory (%s) and are read again; if "
        "this happens again, have the host's memory tested",
        rot.objects,
        rot.topic,
        named,
        extra=fields(topic=rot.topic, objects=rot.objects),
    )


def log_failed_sync(job: StartSync | None, error: Exception | None, *, logged: bool) -> None:
    """``job``: None for one that still waits for its source. ``error``: None when no line is due. ``logged``: an equal
    failure was logged before. An internal error is logged each time.
    """
    if error is None:
        return
    more = fields(error=type(error).__name__, **({} if job is None else {"topics": len(job.wants)}))
    if not isinstance(error, PubSubError):
        _log.error("internal error in a sync, which will be retried; please report this", exc_info=error, extra=more)
    elif not logged:
        _log.warning("a sync failed and will be retried: %s", error, extra=more)
