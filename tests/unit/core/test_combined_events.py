"""Events of one reading: at most one for each object."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pubsub_lib.core.combined_events import combined
from pubsub_lib.core.events import Event
from pubsub_lib.core.model import Action

State = tuple[str, int, bytes] | None
"""Topic, version and value of an object; None: it does not exist."""
STATES = st.none() | st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3), st.sampled_from([b"1", b"2"]))


def event(key: str, before: State, after: State) -> Event:
    old_topic, old_version, old_value = before or (None, None, None)
    if after is None:
        return Event("t", key, old_topic or "", "delete", None, old_version, old_value, None, 9, 0.0, old_topic)
    topic, version, value = after
    action: Action = "create" if before is None else "set"
    return Event("t", key, topic, action, version, old_version, old_value, value, 9, 0.0, old_topic)


def events_of(changes: list[tuple[str, State]]) -> tuple[list[Event], dict[str, State], dict[str, State]]:
    """Events of changes in order; the objects before and after."""
    before: dict[str, State] = {}
    after: dict[str, State] = {}
    events = []
    for number, (key, state) in enumerate(changes):
        if key not in before:
            before[key] = after[key] = ("a", 100 + number, b"0") if number % 2 else None
        if after[key] != state:
            events.append(event(key, after[key], state))
            after[key] = state
    return events, before, after


@given(st.lists(st.tuples(st.sampled_from("xyz"), STATES), max_size=12))
def test_each_object_has_one_event_from_its_first_state_to_its_last(changes: list[tuple[str, State]]) -> None:
    events, before, after = events_of(changes)
    expected = {key: event(key, before[key], after[key]) for key in after if before[key] != after[key]}
    found = combined(events)
    assert {each.key: each for each in found} == expected
    assert len(found) == len(expected)
    last = {each.key: number for number, each in enumerate(events)}
    assert [each.key for each in found] == sorted(expected, key=last.__getitem__), "at the place of its last event"


def test_events_of_different_objects_stay_as_they_are() -> None:
    events = [event("x", None, ("a", 1, b"1")), event("y", ("a", 1, b"1"), None)]
    assert combined(events) is events


def test_the_trace_and_the_position_are_those_of_the_last_event() -> None:
    first = event("x", None, ("a", 1, b"1"))
    last = replace(event("x", ("a", 1, b"1"), ("b", 2, b"2")), position=12)
    (found,) = combined([first, last])
    assert (found.action, found.position, found.topic) == ("create", 12, "b")
