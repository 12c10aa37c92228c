"""Rules H1 to H3: order, at most once per version, conflation, retries, parking; examples and a state machine."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pubsub_lib.core.backoff import doubled
from pubsub_lib.core.events import Event
from pubsub_lib.core.handler_queue import HandlerPolicy, HandlerQueue, Mark, Selector, selector
from pubsub_lib.core.model import Action
from pubsub_lib.errors import UsageError

ERROR = ValueError("no")


def event(key: str, version: int, old: bytes | None, new: bytes | None, topic: str = "a") -> Event:
    action: Action = "delete" if new is None else "create" if old is None else "set"
    return Event("port", key, topic, action, version, version - 1 if old else None, old, new, version,
                 old_topic=topic if old else None)  # fmt: skip


def drain(queue: HandlerQueue, now: float = 0.0) -> list[tuple[str, int | None, str, bytes | None, bytes | None]]:
    out: list[tuple[str, int | None, str, bytes | None, bytes | None]] = []
    while (got := queue.next(now)) is not None:
        out.append((got.key, got.version, got.action, got.old_value, got.new_value))
        queue.done(now)
    return out


def test_events_come_once_in_the_order_of_push() -> None:
    queue = HandlerQueue(HandlerPolicy())
    pushed = [
        event("x", 1, None, b"1"), event("y", 2, None, b"1"), event("x", 3, b"1", b"2"), event("x", 4, b"2", None),
    ]  # fmt: skip
    for one in pushed:
        queue.push(one)
    assert len(queue) == 4
    assert [row[:3] for row in drain(queue)] == [
        ("x", 1, "create"), ("y", 2, "create"), ("x", 3, "set"), ("x", 4, "delete"),
    ]  # fmt: skip
    assert (queue.handled, queue.conflated, len(queue), queue.handled_up_to()) == (4, 0, 0, 4)


def test_over_the_limit_new_event_is_merged_into_the_waiting_one_of_its_key() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=2))
    queue.push(event("x", 1, b"0", b"1"))
    queue.push(event("y", 2, None, b"1"))
    queue.push(event("x", 3, b"1", b"2"))
    queue.push(event("z", 4, None, b"1"))  # a key that does not wait is added
    queue.push(event("x", 5, b"2", b"3"))
    assert (len(queue), queue.conflated) == (3, 2)
    assert drain(queue) == [
        ("x", 5, "set", b"0", b"3"), ("y", 2, "create", None, b"1"), ("z", 4, "create", None, b"1"),
    ]  # fmt: skip


def test_over_the_limit_new_event_takes_the_place_of_the_newest_waiting_one() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=4))
    for one in (event("x", 1, None, b"1"), event("y", 2, None, b"1"), event("x", 3, b"1", b"2"),
                event("z", 4, None, b"1"), event("x", 5, b"2", b"3")):  # fmt: skip
        queue.push(one)
    assert [row[:2] for row in drain(queue)] == [("x", 1), ("y", 2), ("x", 5), ("z", 4)]


def test_over_the_limit_delete_comes_after_earlier_events() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1))
    queue.push(event("switch", 3, b"1", b"2"))
    queue.push(event("port", 4, b"1", b"2"))
    queue.push(event("port", 5, b"2", None))
    queue.push(event("switch", 6, b"2", None))
    queue.push(event("switch", 7, None, b"3"))
    queue.push(event("switch", 8, b"3", None))  # merged into the delete that waits
    assert drain(queue) == [
        ("switch", 3, "set", b"1", b"2"), ("port", 4, "set", b"1", b"2"),
        ("port", 5, "delete", b"2", None), ("switch", 8, "delete", b"2", None),
    ]  # fmt: skip


def test_over_the_limit_create_and_delete_cancel_out_only_before_the_first_call() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1, backoff=1.0))
    queue.push(event("w", 1, None, b"1"))
    queue.push(event("x", 2, None, b"1"))
    queue.push(event("x", 3, b"1", None))
    assert len(queue) == 1
    assert queue.settled(3) is False
    assert drain(queue) == [("w", 1, "create", None, b"1")]
    queue.push(event("x", 4, None, b"4"))
    assert queue.next(0.0) is not None
    queue.failed(0.0, ERROR)
    queue.push(event("x", 5, b"4", b"5"))
    queue.push(event("x", 6, b"5", None))
    assert drain(queue, 1.0) == [("x", 6, "delete", b"4", None)]


def test_event_being_handled_is_not_merged_with_later_ones() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1))
    queue.push(event("x", 1, None, b"1"))
    assert queue.next(0.0) is not None
    queue.push(event("x", 2, b"1", b"2"))
    queue.push(event("x", 3, b"2", b"3"))
    queue.done()
    assert drain(queue) == [("x", 3, "set", b"1", b"3")]


def test_failing_key_backs_off_while_others_continue() -> None:
    queue = HandlerQueue(HandlerPolicy(tries=4, backoff=1.0, max_backoff=3.0))
    queue.push(event("x", 1, None, b"1"))
    queue.push(event("x", 2, b"1", b"2"))
    queue.push(event("y", 3, None, b"1"))
    assert queue.next_time() == -math.inf
    got = queue.next(0.0)
    assert (got and got.version) == 1
    assert queue.next_time() is None
    assert queue.failed(0.0, ERROR) is None
    assert drain(queue, 0.0) == [("y", 3, "create", None, b"1")]
    due = []
    for _ in range(2):
        time = queue.next_time()
        assert time is not None
        assert queue.next(time - 0.001) is None
        got = queue.next(time)
        assert got is not None
        assert (got.action, got.version, got.old_value, got.new_value) == ("create", 2, None, b"2")
        queue.failed(time, ERROR)
        due.append(time)
    assert due == [1.0, 3.0]
    assert queue.next_time() == 6.0  # 3 + 4 would be 7: max_backoff
    assert (queue.failures, queue.retried, queue.parked_count) == (3, 2, 0)


def test_key_is_parked_after_n_tries_and_its_next_event_gets_all_tries() -> None:
    queue = HandlerQueue(HandlerPolicy(tries=2, backoff=1.0))
    queue.push(event("x", 1, None, b"1"), initial=True)
    queue.next(0.0)
    assert queue.failed(0.0, ERROR) is None
    assert queue.initial_left == 1
    assert not queue.settled(1)
    queue.next(1.0)
    parked = queue.failed(1.0, ERROR, "no")
    assert parked is not None
    assert (parked.event.version, parked.error, parked.text) == (1, ERROR, "no")
    assert queue.parked() == [parked]
    assert (queue.initial_left, queue.settled(1), queue.next_time(), len(queue)) == (0, True, None, 0)
    queue.push(event("x", 2, b"1", b"2"))
    assert queue.parked() == []
    got = queue.next(1.0)
    assert got is not None
    assert (got.action, got.old_value, got.new_value) == ("create", None, b"2")  # the create was never handled
    assert queue.failed(1.0, ERROR) is None
    queue.next(2.0)
    assert queue.failed(2.0, ERROR) is not None
    queue.push(event("x", 3, b"2", None))
    assert drain(queue, 2.0) == [("x", 3, "delete", b"2", None)]


def test_event_pushed_during_the_last_try_is_tried_before_parking() -> None:
    queue = HandlerQueue(HandlerPolicy(tries=1, backoff=1.0))
    queue.push(event("x", 1, None, b"1"))
    queue.next(0.0)
    queue.push(event("x", 2, b"1", b"2"))
    assert queue.failed(0.0, ERROR) is None
    assert drain(queue, 1.0) == [("x", 2, "create", None, b"2")]


def test_event_pushed_during_the_last_try_gets_all_tries() -> None:
    queue = HandlerQueue(HandlerPolicy(tries=2, backoff=1.0))
    queue.push(event("x", 1, None, b"1"))
    queue.next(0.0)
    queue.failed(0.0, ERROR)
    queue.next(1.0)
    queue.push(event("x", 2, b"1", b"2"))
    assert queue.failed(1.0, ERROR) is None
    queue.next(2.0)
    assert queue.failed(2.0, ERROR) is None
    queue.next(3.0)
    assert queue.failed(3.0, ERROR) is not None


@given(
    backoff=st.floats(0.0, 2.0**43),
    longer=st.floats(0.0, 2.0**43),
    tries=st.integers(1, 200),
    newer=st.sets(st.integers(1, 400)),
)
def test_waits_double_up_to_the_maximum_for_any_policy(
    backoff: float, longer: float, tries: int, newer: set[int]
) -> None:
    """``newer``: the failures during which a newer event of the object was pushed."""
    queue = HandlerQueue(HandlerPolicy(tries=tries, backoff=backoff, max_backoff=backoff + longer))
    queue.push(event("x", 1, None, b"1"))
    now, count = 0.0, 0
    for number in range(1, 400):
        got = queue.next(now)
        assert got is not None
        if number in newer:
            queue.push(event("x", number + 1, b"1", b"2"), now)
        count += 1
        last = count >= tries
        assert (queue.failed(now, ERROR) is not None) == (last and number not in newer)
        if last and number not in newer:
            break
        if last:
            count = 0  # the newer event gets all tries
        due = queue.next_time()
        assert due == now + doubled(backoff, max(count - 1, 0), backoff + longer)
        now = due


@pytest.mark.parametrize("failed", [True, False])
def test_initial_event_that_is_merged_into_a_waiting_one_is_waited_for(failed: bool) -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1, backoff=1.0))
    queue.push(event("x", 1, None, b"1"))
    if failed:
        queue.next(0.0)
        queue.failed(0.0, ERROR)
    queue.push(event("x", 2, b"1", b"2"), initial=True)
    assert (queue.conflated, queue.initial_left) == (1, 1)
    queue.push(event("x", 3, b"2", b"3"), initial=True)
    assert drain(queue, 1.0) == [("x", 3, "create", None, b"3")]
    assert queue.initial_left == 0


def test_after_a_cancelled_create_later_events_merge_into_the_earlier_delete() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=3))
    queue.push(event("x", 1, b"0", None))
    queue.push(event("x", 2, None, b"2"))
    queue.push(event("y", 3, None, b"3"))
    queue.push(event("x", 4, b"2", None))  # cancels out with 2
    queue.push(event("z", 5, None, b"5"))
    queue.push(event("x", 6, None, b"6"))
    assert drain(queue) == [
        ("x", 6, "set", b"0", b"6"), ("y", 3, "create", None, b"3"), ("z", 5, "create", None, b"5"),
    ]  # fmt: skip


def test_cancelled_events_do_not_count_towards_the_limit() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=2))
    queue.push(event("x", 1, b"0", b"1"))
    queue.push(event("y", 2, None, b"2"))
    queue.push(event("y", 3, b"2", None))
    queue.push(event("x", 4, b"1", b"4"))
    assert (len(queue), queue.conflated) == (2, 1)


def test_mark_does_not_wait_for_a_failing_event_beyond_its_position() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=1.0))
    queue.push(event("late", 20, None, b"1", "b"))
    queue.push(event("x", 5, None, b"1"))
    mark = queue.mark(5)
    queue.next(0.0)
    queue.failed(0.0, ERROR)
    queue.next(0.0)
    queue.done()
    assert queue.passed(mark)
    assert not queue.passed(Mark(mark.serial, 20))


def test_parked_events_are_bounded() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=3, tries=1))
    for number in range(10):
        queue.push(event(f"k{number}", number + 1, None, b"1"))
        queue.next(0.0)
        queue.failed(0.0, ERROR)
    assert [parked.event.key for parked in queue.parked()] == ["k7", "k8", "k9"]
    assert queue.parked_count == 10


def test_cancelled_events_of_new_keys_use_no_memory_behind_a_blocked_handler() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1))
    queue.push(event("w", 1, None, b"1"))
    for number in range(10_000):
        queue.push(event(f"k{number}", 2, None, b"1"))
        queue.push(event(f"k{number}", 3, b"1", None))
    assert len(queue) == 1
    assert len(queue._order) < 200


def test_marks_and_settled_handle_positions_out_of_order() -> None:
    queue = HandlerQueue(HandlerPolicy())
    queue.push(event("late", 20, None, b"1", "b"))
    queue.push(event("x", 5, None, b"1"))
    mark, all_of_it = queue.mark(5), queue.mark()
    assert not queue.passed(mark)
    assert queue.settled(4)
    queue.next(0.0)
    queue.done()
    assert not queue.passed(mark)
    assert queue.handled_up_to() == 4
    queue.push(event("y", 30, None, b"1"))
    queue.next(0.0)
    assert not queue.passed(mark)
    queue.done()
    assert queue.passed(mark)
    assert queue.passed(all_of_it)
    assert not queue.passed(queue.mark())
    assert queue.settled(29)


@pytest.mark.parametrize(
    ("version", "old_version", "first"), [(7, None, 1), (7, 3, 4), (None, 3, 4), (7, 30, 9)]
)
def test_event_of_a_sync_is_waited_for_from_the_first_change_that_it_may_stand_for(
    version: int | None, old_version: int | None, first: int
) -> None:
    queue = HandlerQueue(HandlerPolicy())
    old, new = None if old_version is None else b"0", None if version is None else b"1"
    queue.push(Event("port", "x", "a", "set", version, old_version, old, new, 9), by_sync=True)
    assert [queue.passed(queue.mark(position)) for position in (first - 1, first)] == [True, False]
    assert (queue.settled(first - 1), queue.settled(first), queue.handled_up_to()) == (True, False, first - 1)


def test_change_of_a_link_is_waited_for_by_its_version() -> None:
    queue = HandlerQueue(HandlerPolicy(queue_limit=1))
    queue.push(Event("port", "x", "a", "create", 4, None, None, b"1", 6))  # the first of a link with three changes
    queue.push(Event("port", "y", "a", "delete", None, 2, b"1", None, 6))  # it left the handler's topic
    assert [queue.passed(queue.mark(position)) for position in (2, 3, 4)] == [True, False, False]
    queue.next(0.0)
    queue.done()
    assert not queue.passed(queue.mark(3))
    queue.push(Event("port", "y", "a", "create", 1, None, None, b"2", 6), by_sync=True)  # merged into the waiting one
    assert not queue.passed(queue.mark(1))


def test_lag_is_the_age_of_the_oldest_event() -> None:
    queue = HandlerQueue(HandlerPolicy(backoff=100.0))
    assert queue.lag(7.0) == 0.0
    queue.push(event("x", 1, None, b"1"), 10.0)
    queue.push(event("y", 2, None, b"1"), 12.0)
    assert queue.lag(15.0) == 5.0
    queue.next(15.0)
    queue.failed(15.0, ERROR)
    assert queue.lag(16.0) == 6.0


def test_next_and_answers_in_wrong_order_are_refused() -> None:
    queue = HandlerQueue(HandlerPolicy())
    with pytest.raises(UsageError, match="next"):
        queue.done()
    with pytest.raises(UsageError, match="next"):
        queue.failed(0.0, ERROR)
    queue.push(event("x", 1, None, b"1"))
    queue.next(0.0)
    with pytest.raises(UsageError, match="neither done nor failed"):
        queue.next(0.0)
    queue.clear()
    queue.failed(0.0, ERROR)
    assert queue.initial_left == 0


def test_selector_of_a_topic_turns_moves_into_creates_and_deletes() -> None:
    moved = Event("port", "k", "b", "set", 9, 4, b"1", b"2", 9, old_topic="a")
    assert Selector().select(moved) is moved
    out, into = Selector(topic="a").select(moved), Selector(topic="b").select(moved)
    assert out is not None
    assert into is not None
    assert (out.action, out.topic, out.version, out.old_value, out.new_value) == ("delete", "a", None, b"1", None)
    assert (into.action, into.topic, into.version, into.old_value, into.new_value) == ("create", "b", 9, None, b"2")
    assert not Selector(topic="c").matches(moved)
    assert not Selector(tables=frozenset({"other"})).matches(moved)
    assert not Selector(key="other").matches(moved)
    assert Selector(frozenset({"port"}), "b", "k").matches(moved)
    deleted = Event("port", "k", "b", "delete", 9, 4, b"1", None, 9, old_topic="b")
    assert Selector(topic="b").select(deleted) is deleted
    assert not Selector(topic="a").matches(deleted)


@pytest.mark.parametrize(
    ("tables", "order", "message"),
    [
        ([], (), "no table was named"),
        (["a", "b"], ("a", "c"), r"order names \['c'\]"),
        ("a", ("b",), r"order names \['b'\]"),
        (None, ("a", "a"), "names a table twice"),
        (["a"], "a", r"write \['a'\]"),
    ],
)
def test_invalid_order_is_refused(tables: list[str] | str | None, order: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        selector(tables, None, None, order)


def test_selector_accepts_one_several_or_all_tables() -> None:
    port = event("k", 1, None, b"1")
    assert selector("port", None, None).matches(port)
    assert selector(["switch", "port"], None, None, ["switch"]).matches(port)
    assert not selector(["switch"], None, None).matches(port)
    assert selector(None, None, None, ["switch", "port"]) == Selector(order=("switch", "port"))


KEYS = ("x", "y", "z")
LIMIT = 3
TRIES = 3


class Queues(RuleBasedStateMachine):
    """Events of a few objects, a handler with random failures, and its expected final state."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = HandlerQueue(HandlerPolicy(queue_limit=LIMIT, tries=TRIES, backoff=1.0, max_backoff=3.0))
        self.now = 0.0
        self.version = 0
        self.shown: dict[str, tuple[int, bytes]] = {}
        """The replica's view."""
        self.latest: dict[str, int] = {}
        """The version last pushed."""
        self.knows: dict[str, tuple[int, bytes]] = {}
        """The values that the handler has handled."""
        self.handled: dict[str, int] = {}
        self.tried: dict[str, Event] = {}
        """The event tried last and not handled."""
        self.parked: dict[str, int] = {}
        """The version parked last."""
        self.cancelled: dict[str, int] = {}
        """The version of the last delete that took its create out of the queue."""
        self.initial: dict[str, int] = {}
        """The version of the initial event pushed last."""
        self.tries: dict[str, int] = {}
        self.due: dict[str, float] = {}
        """When the next try of an object that failed is due."""
        self.running: Event | None = None
        self.marks: list[tuple[Mark, dict[str, int]]] = []
        self.passed: list[Mark] = []

    @rule(key=st.sampled_from(KEYS), value=st.sampled_from([None, b"1", b"2", b"3"]), initial=st.booleans())
    def push(self, key: str, value: bytes | None, initial: bool) -> None:
        old = self.shown.get(key)
        if old is None and value is None:
            return
        self.version += 1
        action: Action = "delete" if value is None else "create" if old is None else "set"
        old_version, old_value = old or (None, None)
        waited = len(self.queue)
        self.queue.push(
            Event("t", key, "a", action, self.version, old_version, old_value, value, self.version),
            self.now, initial=initial,
        )  # fmt: skip
        if len(self.queue) < waited:
            assert value is None
            self.cancelled[key] = self.version
        self.latest[key] = self.version
        if initial:
            self.initial[key] = self.version
        if value is None:
            del self.shown[key]
        else:
            self.shown[key] = (self.version, value)

    @precondition(lambda self: self.running is None)
    @rule(wait=st.sampled_from([0.0, 0.5, 4.0]))
    def take(self, wait: float) -> None:
        self.now += wait
        due = self.queue.next_time()
        event = self.queue.next(self.now)
        assert (event is None) == (due is None or due > self.now)
        if event is None:
            assert all(at > self.now for at in self.due.values()), "a try that is due is not made"
            return
        self.running = event
        assert self.due.pop(event.key, self.now) <= self.now, "a newer event must not shorten the wait"
        known, tried = self.knows.get(event.key), self.tried.get(event.key)
        assert event.version is not None
        assert event.version > self.handled.get(event.key, 0), "a repeated event, or one out of order"
        assert tried is None or tried.version is None or event.version >= tried.version
        if known is None and event.new_value is None:
            assert tried is not None, "the delete of an object for which the handler was never called"
            assert event.action == "delete"
            assert event.old_value == (tried.old_value if tried.new_value is None else tried.new_value)
        else:
            assert (event.old_version, event.old_value) == (known or (None, None))
            assert event.action == ("delete" if event.new_value is None else "set" if known else "create")

    @precondition(lambda self: self.running is not None)
    @rule()
    def done(self) -> None:
        event, self.running = self.running, None
        assert event is not None
        assert event.version is not None
        self.queue.done(self.now)
        self.handled[event.key] = event.version
        self.tries.pop(event.key, None)
        self.tried.pop(event.key, None)
        if event.new_value is None:
            self.knows.pop(event.key, None)
        else:
            self.knows[event.key] = (event.version, event.new_value)

    @precondition(lambda self: self.running is not None)
    @rule()
    def fail(self) -> None:
        event, self.running = self.running, None
        assert event is not None
        parked = self.queue.failed(self.now, ERROR)
        self.tried[event.key] = event
        tries = self.tries.get(event.key, 0) + 1
        if parked is None:
            self.tries[event.key] = tries = tries if tries < TRIES else 0
            self.due[event.key] = self.now + (1.0, 1.0, 2.0)[tries]
        else:
            assert tries == TRIES
            self.tries.pop(event.key, None)
            assert parked.event == event
            self.parked[event.key] = self.latest[event.key]
            last = (event.version, self.cancelled.get(event.key))
            assert self.latest[event.key] in last, "parked although a newer event was never tried"

    @rule(back=st.none() | st.integers(0, 5))
    def mark(self, back: int | None) -> None:
        position = None if back is None else max(self.version - back, 0)
        if position is None:
            self.marks.append((self.queue.mark(), dict(self.latest)))
        else:
            upto = {key: version for key, version in self.latest.items() if version <= position}
            self.marks.append((self.queue.mark(position), upto))

    @invariant()
    def waiting_events_are_bounded(self) -> None:
        assert len(self.queue) <= LIMIT + 2 * len(KEYS)

    @invariant()
    def passed_marks_are_correct_and_stay_passed(self) -> None:
        assert all(self.queue.passed(mark) for mark in self.passed), "a passed mark is not passed any more"
        left = self.marks
        self.marks = []
        for mark, upto in left:
            if not self.queue.passed(mark):
                self.marks.append((mark, upto))
            else:
                self.passed.append(mark)
                for key, version in upto.items():
                    ends = (self.handled, self.parked, self.cancelled)
                    assert max(end.get(key, 0) for end in ends) >= version, (mark, key, version)

    @invariant()
    def initial_events_are_waited_for(self) -> None:
        if self.queue.initial_left == 0:
            for key, version in self.initial.items():
                ends = (self.handled, self.parked, self.cancelled)
                assert max(end.get(key, 0) for end in ends) >= version, (key, version)

    @invariant()
    def state_methods_agree(self) -> None:
        upto = self.queue.handled_up_to()
        assert self.queue.settled(upto)
        assert upto >= self.version or not self.queue.settled(upto + 1)
        assert self.queue.initial_left >= 0

    def teardown(self) -> None:
        """The handler works again: at the end it has the view, except for parked objects."""
        if self.running is not None:
            self.done()
        for _ in range(1000):
            self.take(4.0)
            if self.running is None:
                break
            self.done()
        parked = {one.event.key: one.event for one in self.queue.parked()}
        for key in KEYS:
            if key in parked:
                assert self.latest[key] in (parked[key].version, self.cancelled.get(key))
            else:
                assert self.knows.get(key) == self.shown.get(key)
        assert (len(self.queue), self.queue.initial_left, self.queue.next_time()) == (0, 0, None)
        assert all(self.queue.passed(mark) for mark, _ in self.marks)
        assert self.queue.handled_up_to() == self.version


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
