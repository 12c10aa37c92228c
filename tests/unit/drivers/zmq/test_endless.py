"""A connection that sends a message without an end is found by counts of bytes, and no honest one."""

from collections import Counter
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_zmq.endless import WATCHED, Brought, Endless

FRAME = 1024 * 1024
HELD = 3
HONEST, ROGUE = 7, 8
LARGEST = 2 * FRAME + 300
"""Bytes of the largest message: ZeroMQ accepts frames of twice the maximum."""


class Rig:
    """A model of ZeroMQ and of the thread that reads its socket: one message of each connection in turn."""

    def __init__(self, sizes: list[int]) -> None:
        self.endless = Endless(FRAME, HELD)
        self.maximum = self.endless.maximum
        self._sizes = {HONEST: cycle(sizes), ROGUE: cycle(sizes)}
        self._missing = {each: next(sizes) for each, sizes in self._sizes.items()}
        """Bytes until the end of the message in progress."""
        self.taken = {HONEST: 0, ROGUE: 0}
        self.waiting = Counter[int]()
        """Number of whole messages that wait, by connection."""
        self._last = HONEST
        self.is_endless = False
        self.since = 0
        """The byte at which the message without an end began."""

    def begin_endless(self) -> None:
        """From now on the rogue's message has no end."""
        if not self.is_endless:
            self.is_endless = True
            self.since = self.taken[ROGUE]

    def bring(self, connection: int, size: int) -> None:
        """ZeroMQ takes this number of bytes from a connection, or less when as many messages wait as it holds."""
        while size and self.waiting[connection] < HELD:
            if connection == ROGUE and self.is_endless:
                self.taken[ROGUE] += size
                return
            step = min(size, self._missing[connection])
            size -= step
            self.taken[connection] += step
            self._missing[connection] -= step
            if not self._missing[connection]:
                self._missing[connection] = next(self._sizes[connection])
                self.waiting[connection] += 1

    def read(self, number: int) -> None:
        """The thread reads as many messages, or all that wait."""
        for _ in range(min(number, self.waiting.total())):
            other = HONEST + ROGUE - self._last
            descriptor = self._last = other if self.waiting[other] else self._last
            self.waiting[descriptor] -= 1
            if self.endless.watched:
                self.endless.read(descriptor)

    def look(self) -> dict[int, int]:
        brought = {each: Brought(size, size) for each, size in self.taken.items()}
        found = self.endless.look(brought, 2, empty=not self.waiting.total())
        assert HONEST not in found, "an honest connection is ended"
        assert self.is_endless or not found
        if found:
            assert found[ROGUE] <= self.taken[ROGUE] - self.since, "the log would have a wrong number"
        return found


SIZES = st.lists(st.integers(1, LARGEST), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("honest"), st.integers(1, 8 * FRAME)),
        st.tuples(st.just("rogue"), st.integers(1, 8 * FRAME)),
        st.tuples(st.just("read"), st.integers(1, 30)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("endless"), st.just(0)),
    ),
    max_size=60,
)


def after(sizes: list[int], steps: list[tuple[str, int]]) -> Rig:
    rig = Rig(sizes)
    for what, number in steps:
        if what in ("honest", "rogue"):
            rig.bring(HONEST if what == "honest" else ROGUE, number)
        elif what == "read":
            rig.read(number)
        elif what == "look":
            rig.look()
        else:
            rig.begin_endless()
    return rig


@given(SIZES, STEPS)
def test_endless_message_is_found_and_no_honest_connection_after_any_steps(
    sizes: list[int], steps: list[tuple[str, int]]
) -> None:
    rig = after(sizes, steps)
    rig.begin_endless()
    rig.read(2 * HELD)
    rig.look()
    before = rig.taken[ROGUE]
    while not rig.look():
        assert rig.taken[ROGUE] - before <= WATCHED + rig.maximum + 2 * FRAME
        rig.bring(ROGUE, FRAME)
        rig.bring(HONEST, FRAME)
        rig.read(2 * HELD)


@given(SIZES, STEPS)
def test_endless_message_is_found_while_messages_always_wait(sizes: list[int], steps: list[tuple[str, int]]) -> None:
    """Another connection brings more than the thread reads, so that it never finds the socket empty."""
    rig = after(sizes, steps)
    rig.begin_endless()
    rig.bring(HONEST, 100 * LARGEST)
    before = rig.taken[ROGUE]
    while not rig.look():
        assert rig.taken[ROGUE] - before <= WATCHED + rig.maximum + 5 * FRAME
        rig.bring(ROGUE, FRAME)
        for _ in range(4 * (HELD + 1)):
            rig.bring(HONEST, 100 * LARGEST)
            rig.read(1)
        assert rig.waiting.total()


def one(size: int) -> dict[int, Brought]:
    return {ROGUE: Brought(size, size)}


def test_bytes_without_a_message_are_counted_from_when_the_connection_is_watched() -> None:
    made = Endless(FRAME, HELD)
    assert made.look(one(WATCHED), 1, empty=True) == {}
    assert not made.watched
    assert made.look(one(100 * FRAME), 1, empty=True) == {}, "messages that were read were not counted"
    assert made.watched == {ROGUE}
    assert made.look(one(100 * FRAME + made.maximum), 1, empty=True) == {}
    assert made.look(one(100 * FRAME + made.maximum + 1), 1, empty=True) == {ROGUE: made.maximum + 1}


def test_maximum_holds_a_frame_of_twice_the_maximum_and_has_a_least_value() -> None:
    assert Endless(FRAME, HELD).maximum > LARGEST + 8192
    assert Endless(1000, HELD).maximum == WATCHED


def test_message_that_was_held_before_proves_nothing_and_one_after_it_does() -> None:
    made = Endless(FRAME, HELD)
    made.look(one(0), 3, empty=False)
    made.look(one(2 * WATCHED), 3, empty=False)
    for _ in range(2 * (HELD + 1) * 3):
        made.read(ROGUE)
        assert made.watched, "it may have waited when the bytes were counted"
    made.read(ROGUE)
    assert not made.watched
    made.look(one(3 * WATCHED), 1, empty=True)
    assert not made.watched, "the bytes before are proved"
    made.look(one(3 * WATCHED + 1), 1, empty=True)
    assert made.watched == {ROGUE}


def test_bytes_of_messages_that_still_wait_do_not_count() -> None:
    made = Endless(FRAME, HELD)
    made.look(one(2 * WATCHED), 1, empty=True)
    for _ in range(3):
        assert made.look(one(2 * WATCHED + made.maximum + 1), 1, empty=False) == {}
    assert made.look(one(2 * WATCHED + made.maximum + 1), 1, empty=True)


def test_message_of_another_connection_proves_nothing() -> None:
    made = Endless(FRAME, HELD)
    made.look(one(2 * WATCHED) | {HONEST: Brought(0, 0)}, 2, empty=True)
    for other in (HONEST, 99, None):
        made.read(other)
        assert made.watched == {ROGUE}


@pytest.mark.parametrize("least", [0, 1])
def test_bytes_that_may_have_been_taken_before_do_not_count(least: int) -> None:
    """The counters are no picture of one instant: the least at the end, and the most at the begin."""
    made = Endless(FRAME, HELD)
    made.look({ROGUE: Brought(2 * WATCHED, 3 * WATCHED)}, 1, empty=True)
    found = made.look({ROGUE: Brought(3 * WATCHED + made.maximum + least, 99 * WATCHED)}, 1, empty=True)
    assert bool(found) == bool(least)


def test_new_connection_with_the_descriptor_of_an_ended_one_counts_from_zero() -> None:
    made = Endless(FRAME, HELD)
    made.look(one(100 * WATCHED), 1, empty=True)
    made.forget(ROGUE)
    assert not made.watched
    made.look(one(WATCHED), 1, empty=True)
    assert not made.watched
    made.look(one(WATCHED + 1), 1, empty=True)
    assert made.watched == {ROGUE}


def test_burst_after_which_nothing_comes_ends_no_connection() -> None:
    """Its next message comes with the next hello."""
    made = Endless(FRAME, HELD)
    for _ in range(1000):
        assert made.look(one(50 * FRAME), 1, empty=True) == {}
    made.read(ROGUE)
    assert not made.watched
