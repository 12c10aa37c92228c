"""The order in which a handler of several tables is told what a full sync found (docs/guarantees.md, "Order").

A full sync knows states and no history: neither when each object came to be, nor when it went. So what it tells is
ordered by what refers to what: first what others refer to, and the other way round for what is gone.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from pubsub_lib.core.events import Event
from pubsub_lib.core.model import Action


def in_order(events: Iterable[Event], order: Sequence[str]) -> list[Event]:
    """What a full sync told, reordered: first creates and sets, by their tables' places in ``order``, then deletes, by
    the same places backward. Tables that are not named come last, and their deletes first. Within a table the order
    stays.

    Several events of one object, which its move between two topics makes, become one: from the first one's old value
    to the last one's new one, or none at all.
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
