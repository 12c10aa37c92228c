"""The status of a replica at one moment: metrics and readiness, for people and for the HTTP endpoint."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from pubsub_lib.core.handler_queue import Parked
from pubsub_lib.core.index import IndexStatus
from pubsub_lib.core.model import Point
from pubsub_lib.core.quarantine import QuarantinedPublisher
from pubsub_lib.core.sequence_gaps import Tally
from pubsub_lib.core.timing import Timing, no_publisher_bound
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.core.tracker_counters import Counters, Faults
from pubsub_lib.errors import PubSubError
from pubsub_lib.latency import NO_LATENCIES, Latencies
from pubsub_lib.replica.handlers import HandlerCounters
from pubsub_lib.replica.unreadable import UnreadableObject

DRIVER_DROPS: Final = ("truncated", "oversized", "version", "foreign", "overflow")
"""Reasons why a driver drops a received message, as in :meth:`pubsub_lib.api.Subscriber.counters`."""
MAX_TEXT: Final = 500
"""Maximum number of characters of a handler's exception in the status."""


class ChainStatus(msgspec.Struct, frozen=True):
    """The state of one subscribed topic (or of everything)."""

    state: str
    known: Point | None
    staleness: float
    waiting: int
    """Messages that wait for an earlier one."""


class ParkedObject(msgspec.Struct, frozen=True):
    """An object whose last change a handler failed to handle. It is not retried until the object changes."""

    handler: str
    topic: str
    table: str
    key: str
    version: int | None
    """The change's version; None for a delete that a sync found."""
    error: str
    """The handler's exception at the last attempt: its type and message."""


class Status(msgspec.Struct, frozen=True):
    """The status of a replica at one moment. Times in seconds."""

    synced: bool
    staleness: float
    polling: bool
    """True while no publisher sends fresh hello replies and the store is polled."""
    chains: Mapping[str, ChainStatus]
    counters: Counters
    """Links applied, and syncs by kind and cause (``deltas``, ``fulls``)."""
    sequences: Tally
    """``holes``: messages that were missing."""
    faults: Faults
    driver: Mapping[str, int]
    handlers: HandlerCounters
    parked: Sequence[ParkedObject]
    """Objects whose changes handlers do not retry now; for each handler the newest ``queue_limit``."""
    problems: Sequence[str]
    """Why the replica is not ready, one sentence each."""
    last_error: str
    """Why the last sync failed; "" after a success."""
    indexes: Mapping[str, IndexStatus] = {}
    """For each index the number of objects that it leaves out because they could not be indexed, with examples."""
    unreadable: Sequence[UnreadableObject] = ()
    """Objects that did not fit the declared type of their table when they were last read, and still exist: at most
    ``pubsub_lib.replica.unreadable.MAX_KEPT``. Objects that handlers could not read are in ``parked``.
    """
    unreadable_reads: int = 0
    """Number of reads that failed so since the start."""
    commit_to_applied: Latencies = NO_LATENCIES
    """The time from the commit until a link was applied, by the wall clocks of both hosts. Nothing is counted without
    ``replica_metrics_port``, nor for what a full sync brought.
    """
    store_id: str = ""
    """The id of the store, as hex digits, in the last reading; "" before the first one."""
    journal: Mapping[str, int] = {}
    """Records ``written`` and ``lost`` by the journal; empty without a journal."""
    journal_error: str = ""
    """Why records of the journal are being lost now; "" when none are. The replica itself is not affected."""
    quarantined: Sequence[QuarantinedPublisher] = ()
    """The publishers whose messages are not used now, at most ``pubsub_lib.core.quarantine.MAX_KEPT``."""
    announcements: Mapping[str, int] = {}
    """With a sync channel: announcements that were ``accepted`` above, and ``failed`` ones."""

    @property
    def ready(self) -> bool:
        """True when the replica's contents can be relied on: synced, and not more stale than ``max_staleness``."""
        return not self.problems

    @property
    def dropped(self) -> Mapping[str, int]:
        """Received messages that were dropped, by reason. The driver: ``truncated``, ``oversized``, ``version``,
        ``foreign`` (of another program), ``overflow`` (its queue was full). The tracker: ``old`` (known already),
        ``other_history`` (of another history of the store), ``overflowed`` (too many waited), ``unsubscribed``,
        ``quarantined`` (of publishers that the store had contradicted), ``foreign_store`` (of publishers of
        another store).
        """
        counters = self.counters
        return {
            **{why: self.driver.get(why, 0) for why in DRIVER_DROPS},
            "old": counters.old,
            "other_history": counters.foreign,
            "overflowed": counters.overflowed,
            "unsubscribed": counters.unsubscribed,
            "quarantined": counters.quarantined,
            "foreign_store": counters.foreign_store,
        }


def chain_status(tracker: Tracker, name: str, now: float) -> ChainStatus:
    """The state of this chain."""
    chain = tracker.chain(name)
    return ChainStatus(
        chain.state.value, chain.known, tracker.freshness.staleness(name, now), chain.reorder_buffer.messages
    )


def parked_objects(parked: Iterable[tuple[str, Parked]]) -> tuple[ParkedObject, ...]:
    """(handler's name, event and error) as plain data."""
    return tuple(
        ParkedObject(
            name, each.event.topic, each.event.table, each.event.key, each.event.version, each.text[:MAX_TEXT]
        )
        for name, each in parked
    )


def max_staleness(timing: Timing) -> float:
    """The staleness, in seconds, above which a replica is not ready: the bound without any publisher (rule 13), with
    the longest configured wait for a sync and one that takes no time. The promised bound allows for a sync's time, too.
    """
    return no_publisher_bound(timing, sync_time=0.0)


def unfit(topic: str) -> str:
    """The sentence for a topic whose objects do not match its count or digest although all of them were read."""
    return (
        f"the store's count or digest of the topic {topic!r} does not match its objects, so their correctness is not "
        f"proved; run pubsub-db verify {shlex.quote(topic)}, which lists the changes that were made without the library"
    )


def problems(
    timing: Timing,
    *,
    synced: bool,
    staleness: float,
    last_error: PubSubError | None,
    failure: PubSubError | None,
    mismatching: Iterable[str] = (),
    started: bool = True,
    subscribed: bool = True,
    handled: bool = True,
) -> list[str]:
    """Why a replica is not ready, one sentence each; none when it is. ``handled``: whether its handlers have handled
    the objects that were there at their begin.
    """
    found = []
    why = "" if last_error is None else f"; the last sync failed: {last_error}"
    if failure is not None:
        found.append(f"the consistency check of the replica failed: {failure}")
    if not started:
        found.append("the replica was not started; call start(), or use it in a with statement")
    elif not subscribed:
        found.append("no topic is subscribed to, so the replica is empty; call subscribe()")
    elif not synced:
        found.append(f"the replica is not synced yet{why}")
    elif staleness > (maximum := max_staleness(timing)):
        found.append(f"the replica may be stale by {staleness:.1f} s, more than {maximum:.1f} s{why}")
    if started and synced and not handled:
        found.append("handlers have not handled all objects that were there when they began; the replica has them")
    found.extend(unfit(topic) for topic in sorted(mismatching))
    return found


def rejected(driver: Mapping[str, int], tracker: Counters) -> Mapping[str, int]:
    """The counters of messages that were not used, by cause, for the journal."""
    counted = {why: driver.get(why, 0) for why in DRIVER_DROPS}
    unused = {name: getattr(tracker, name) for name in ("overflowed", "quarantined", "unleased", "foreign_store")}
    return {**counted, "other_history": tracker.foreign, **unused}
