"""A replica's notice that the store's history changed: a restored backup, a fail-over, acknowledged commits lost.

Versions may go back then. Whoever keeps versions (a handler that ignores older ones, a program that compares) must
know that before the first such change comes. The notice travels through a handler's queue as a barrier: what was
pushed before it comes before it, what was pushed after it comes after it, whatever is retried or conflated.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pubsub_lib.core.events import Event
from pubsub_lib.core.model import ALL, Point

BARRIER_TABLE: Final = ""
"""The table of an event that is such a notice; no table may have this name."""


class HistoryChange(msgspec.Struct, frozen=True):
    """The store's history is another one. Immutable.

    ``points``: for each topic that was read anew (``""``: everything), the point that the replica had reached, and the
    one that it has reached in the history that holds now. The two are the same when the topic itself went on, but the
    replica had applied a delete of another topic that is undone now, and shows an object of this topic again.
    """

    points: Mapping[str, tuple[Point, Point]]

    def concerns(self, topic: str | None) -> bool:
        """Whether objects of this topic (None: of any) may have gone back."""
        return topic is None or topic in self.points or ALL in self.points

    def as_event(self, number: int) -> Event:
        """The barrier for a handler's queue. ``number``: of the notice, so that none is merged with another."""
        position = max(after.position for _, after in self.points.values())
        value = msgspec.json.encode(self)
        key = f"history change {number}"
        return Event(BARRIER_TABLE, key, "", "create", None, None, None, value, position)


def is_barrier(event: Event) -> bool:
    """Whether an event is a notice of a changed history, and not of an object."""
    return event.table == BARRIER_TABLE


def of_event(event: Event) -> HistoryChange:
    """The notice that a barrier carries."""
    assert event.new_value is not None
    return msgspec.json.decode(event.new_value, type=HistoryChange)
