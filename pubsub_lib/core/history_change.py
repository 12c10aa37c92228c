"""A replica's notice that the store's history changed: a restored backup, a fail-over, acknowledged commits lost.

Versions may go back then. Code that keeps versions (a handler that ignores older ones, a program that compares) must
be notified before the first such change. The notice goes through a handler's queue as a barrier: events that were
pushed before it come before it, except retries, which come after it; events that were pushed later come after it, also
with retries and conflation.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pubsub_lib.core.events import Event
from pubsub_lib.core.model import ALL, Point

BARRIER_TABLE: Final = ""
"""The table of an event that is a notice. No real table can have this name."""
PARKED_NOTICE: Final = BARRIER_TABLE, ""
"""The table and key under which a queue keeps a parked notice, until a later notice is handled or parked."""


class HistoryChange(msgspec.Struct, frozen=True):
    """The store's history is another one. Immutable.

    ``points``: for each topic that was read again (``""``: everything), the point that the replica had reached, and the
    point that it has reached in the current history. The two are equal when the topic's own history did not change, but
    the replica had applied a delete of another topic that is undone now, and shows an object of this topic again.

    ``publishers``: service name and UUID of the publisher whose message led to the point that the replica had reached,
    for topics that no reading of the store led there. After a restore this is an honest publisher; without one, a
    publisher that sent what was never committed.
    """

    points: Mapping[str, tuple[Point, Point]]
    publishers: Mapping[str, tuple[str, str]] = {}
    quarantined: tuple[tuple[str, str], ...] = ()
    """Those of them whose messages are not used from now on."""

    def concerns(self, topic: str | None) -> bool:
        """Whether versions of this topic (None: of any topic) may have gone back."""
        return topic is None or topic in self.points or ALL in self.points

    def as_event(self, number: int) -> Event:
        """The barrier for a handler's queue. ``number``: unique per notice, so that two are not merged."""
        position = max(after.position for _, after in self.points.values())
        value = msgspec.json.encode(self)
        key = f"history change {number}"
        return Event(BARRIER_TABLE, key, "", "create", position, None, None, value, position)


def is_barrier(event: Event) -> bool:
    """Whether an event is a notice of a changed history, and not a change of an object."""
    return event.table == BARRIER_TABLE


def of_event(event: Event) -> HistoryChange:
    """The notice in a barrier."""
    assert event.new_value is not None
    return msgspec.json.decode(event.new_value, type=HistoryChange)
