"""Events of topics that were read together, combined into at most one for each object (rule H2).

Topics are replaced one after the other. Between two of them the merged view may show an object of a history that is
undone, from a topic that is replaced next: no handler may be called with it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from pubsub_lib.core.events import Event


def combined(events: Sequence[Event]) -> Sequence[Event]:
    """Of each object one event, from its first old value to its last new one, at the place of its last event. An object
    that is as before has none.
    """
    first: dict[tuple[str, str], Event] = {}
    last: dict[tuple[str, str], Event] = {}
    for event in events:
        ident = event.table, event.key
        first.setdefault(ident, event)
        last[ident] = event
    if len(first) == len(events):
        return events
    found = []
    for event in events:
        ident = event.table, event.key
        if last[ident] is event:
            whole = _from(first[ident], event)
            if whole is not None:
                found.append(whole)
    return found


def _from(first: Event, last: Event) -> Event | None:
    if first is last:
        return last
    old_version, old_value, old_topic = first.old_version, first.old_value, first.old_topic
    if (old_version, old_value, old_topic) == (last.version, last.new_value, last.topic):
        return None
    if last.new_value is None:
        if old_topic is None:
            return None
        last = replace(last, topic=old_topic)
    return last.since(old_version, old_value, old_topic)
