"""The events of a full sync, in an order of tables."""

from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.events import Event
from pubsub_lib.core.full_sync_order import in_order
from pubsub_lib.core.model import Action

TABLES = ("switch", "port", "flow")
ORDER = ("switch", "port")


def event(table: str, key: str, old: bytes | None, new: bytes | None, topic: str = "a", version: int = 1) -> Event:
    action: Action = "delete" if new is None else "create" if old is None else "set"
    return Event(table, key, topic, action, version, 0 if old else None, old, new, 9, old_topic=topic if old else None)


def brief(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(each.action, each.table, each.key) for each in events]


def test_creates_follow_the_order_and_deletes_reverse_it() -> None:
    events = [
        event("switch", "s1", b"1", None), event("port", "p1", b"1", None), event("flow", "f1", b"1", None),
        event("flow", "f2", None, b"2"), event("port", "p3", b"1", b"3"), event("port", "p2", None, b"2"),
        event("switch", "s2", None, b"2"),
    ]  # fmt: skip
    assert brief(in_order(events, ORDER)) == [
        ("create", "switch", "s2"), ("set", "port", "p3"), ("create", "port", "p2"), ("create", "flow", "f2"),
        ("delete", "flow", "f1"), ("delete", "port", "p1"), ("delete", "switch", "s1"),
    ]  # fmt: skip


def test_move_between_two_topics_is_one_event() -> None:
    moved = [event("port", "p", b"1", None, "a"), event("port", "p", None, b"2", "b", version=7)]
    (one,) = in_order(moved, ORDER)
    assert (one.action, one.topic, one.old_topic, one.version) == ("set", "b", "a", 7)
    assert (one.old_value, one.new_value) == (b"1", b"2")
    assert in_order([event("port", "p", None, b"1"), event("port", "p", b"1", None)], ORDER) == []


STEPS = st.lists(
    st.tuples(st.sampled_from(TABLES), st.sampled_from("xy"), st.sampled_from([None, b"1", b"2"])), max_size=12
)


@given(st.dictionaries(st.tuples(st.sampled_from(TABLES), st.sampled_from("xy")), st.just(b"0")), STEPS)
def test_reordered_events_give_the_same_objects_and_no_dangling_reference(
    known: dict[tuple[str, str], bytes], steps: list[tuple[str, str, bytes | None]]
) -> None:
    there = dict(known)
    events = []
    for table, key, value in steps:
        old = there.get((table, key))
        if old == value:
            continue
        events.append(event(table, key, old, value))
        if value is None:
            del there[table, key]
        else:
            there[table, key] = value
    handler = dict(known)
    reordered = in_order(events, ORDER)
    for each in reordered:
        ident = (each.table, each.key)
        assert handler.get(ident) == each.old_value
        if each.new_value is None:
            del handler[ident]
        else:
            handler[ident] = each.new_value
    assert handler == there
    places = [(1, -TABLES.index(each.table)) if each.action == "delete" else (0, TABLES.index(each.table))
              for each in reordered]  # fmt: skip
    assert places == sorted(places)
