"""A look into a replica at one moment: its metrics, and whether it is ready. For people and for the endpoint alike."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from pubsub_lib.core.handler_queue import Parked
from pubsub_lib.core.index import IndexStatus
from pubsub_lib.core.model import Point
from pubsub_lib.core.replica_state import Faults
from pubsub_lib.core.sequence_gaps import Tally
from pubsub_lib.core.timing import Timing, no_publisher_bound
from pubsub_lib.core.tracker import Counters
from pubsub_lib.errors import PubSubError
from pubsub_lib.replica.handlers import HandlerCounters
from pubsub_lib.replica.unreadable import UnreadableObject

DRIVER_DROPS: Final = ("truncated", "oversized", "version", "foreign", "overflow")
"""Why a driver drops what it received: the reasons of :meth:`pubsub_lib.api.Subscriber.counters`."""


class ChainStatus(msgspec.Struct, frozen=True):
    """Where one followed topic (or everything) stands."""

    state: str
    known: Point | None
    staleness: float
    waiting: int
    """Messages that wait for an earlier one."""


class ParkedObject(msgspec.Struct, frozen=True):
    """An object whose last change a handler did not manage; it is not tried again before the object changes."""

    handler: str
    topic: str
    table: str
    key: str
    version: int | None
    """Of the change; None for a delete that a sync found."""
    error: str
    """What the handler raised at its last try."""


class Status(msgspec.Struct, frozen=True):
    """A look into a replica at one moment. Times in seconds."""

    synced: bool
    staleness: float
    polling: bool
    """No publisher proves to be fresh; the store is polled."""
    chains: Mapping[str, ChainStatus]
    counters: Counters
    """Links applied, and syncs by kind and cause (``deltas``, ``fulls``)."""
    sequences: Tally
    """``holes``: messages that were missing."""
    faults: Faults
    driver: Mapping[str, int]
    handlers: HandlerCounters
    parked: Sequence[ParkedObject]
    """What handlers gave up for now; of each handler the newest ``queue_limit``."""
    problems: Sequence[str]
    """Why the replica is not ready, one sentence each."""
    last_error: str
    """Why the last sync failed; "" after a success."""
    indexes: Mapping[str, IndexStatus] = {}
    """Of each index how many objects it leaves out because they could not be indexed, with examples."""
    unreadable: Sequence[UnreadableObject] = ()
    """Objects that did not fit the declared type of their table when they were last read, and are still there: at most
    ``pubsub_lib.replica.unreadable.MAX_KEPT``. What handlers could not read is in ``parked``.
    """
    unreadable_reads: int = 0
    """How many reads of one object failed so, ever."""
    journal: Mapping[str, int] = {}
    """Records ``written`` and ``lost`` by the journal; empty when none is kept."""
    journal_error: str = ""
    """Why records of the journal are being lost now; "" while all is well. The replica itself goes on."""

    @property
    def ready(self) -> bool:
        """True when what the replica holds can be relied on: synced, and no more stale than is promised."""
        return not self.problems

    @property
    def dropped(self) -> Mapping[str, int]:
        """Messages that were received and not used, by reason. The driver: ``truncated``, ``oversized``, ``version``,
        ``foreign`` (no message of ours), ``overflow`` (its own queue). The tracker: ``old`` (known already),
        ``other_history`` (of another history of the store), ``overflowed`` (too much waited), ``unsubscribed``.
        """
        counters = self.counters
        return {
            **{why: self.driver.get(why, 0) for why in DRIVER_DROPS},
            "old": counters.old,
            "other_history": counters.foreign,
            "overflowed": counters.overflowed,
            "unsubscribed": counters.unsubscribed,
        }


def parked_objects(parked: Iterable[tuple[str, Parked]]) -> tuple[ParkedObject, ...]:
    """(handler's name, event and error) as plain data."""
    return tuple(
        ParkedObject(
            name, each.event.topic, each.event.table, each.event.key, each.event.version, f"{each.error!r:.500}"
        )
        for name, each in parked
    )


def max_staleness(timing: Timing) -> float:
    """Seconds: a replica that is more stale is outside of what is promised while it reaches the store. The bound
    without any publisher (rule 13), with the longest configured wait for a sync.
    """
    return no_publisher_bound(timing, sync_time=0.0)


def unfit(topic: str) -> str:
    """The sentence for a topic that does not fit its count or digest although everything was read."""
    return (
        f"the store's count or digest of the topic {topic!r} does not fit its objects, so nothing proves that they are "
        f"right here; run pubsub-db verify {shlex.quote(topic)}, which names what was changed behind the library's back"
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
    followed: bool = True,
) -> list[str]:
    """Why a replica is not ready, one sentence each; none when it is."""
    found = []
    why = "" if last_error is None else f"; the last sync failed: {last_error}"
    if failure is not None:
        found.append(f"the replica must not be trusted any more: {failure}")
    if not started:
        found.append("the replica was not started; call start(), or use it in a with statement")
    elif not followed:
        found.append("no topic is subscribed to, so the replica knows nothing of the store; call subscribe()")
    elif not synced:
        found.append(f"the replica is not synced yet{why}")
    elif staleness > (maximum := max_staleness(timing)):
        found.append(f"the replica may be stale by {staleness:.1f} s, and {maximum:.1f} s are promised{why}")
    found.extend(unfit(topic) for topic in sorted(mismatching))
    return found
