"""The order of a full sync's events for a handler of several tables (docs/guarantees.md, "Order").

A full sync reads states and no history: not when an object was created, nor when it was deleted. So its events are
ordered by references between tables: referenced objects are created first and deleted last.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from pubsub_lib.core.events import Event
from pubsub_lib.core.model import Action


def in_order(events: Iterable[Event], order: Sequence[str]) -> list[Event]:
    """The events of a full sync, reordered: first creates and sets, by their tables' places in ``order``, then deletes,
    in reverse order of these places. Tables that are not named come last, and their deletes first. Within a table the
    order stays.

    A move of an object between two topics makes several events. They become one event, from the first one's old value
    to the last one's new value, or none if the object existed neither before nor after.
    """
    place = {table: number for number, table in enumerate(order)}
    folded: dict[tuple[str, str], Event] = {}
    for event in events:
        ident = event.table, event.key
        first = folded.pop(ident, None)
        folded[ident] = event if first is None else _fold(first, event)
    there, gone = [], []
    for event in folded.values():
        if event.new_value is not None:
            there.append(event)
        elif event.old_value is not None:
            gone.append(event)
    there.sort(key=lambda event: place.get(event.table, len(place)))
    gone.sort(key=lambda event: place.get(event.table, len(place)), reverse=True)
    return [*there, *gone]


def _fold(first: Event, last: Event) -> Event:
    action: Action = "delete" if last.new_value is None else "create" if first.old_value is None else "set"
    return replace(
        last, action=action, old_version=first.old_version, old_value=first.old_value, old_topic=first.old_topic
    )
