"""Announcements: payloads, channels, and the maximum number of reads that they cause."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pubsub_lib.core.model import ZERO, Point
from pubsub_pgnotify import announcement
from pubsub_pgnotify.announcement import ReadGate

FASTEST, SLOWEST = 0.5, 4.0
points = st.builds(Point, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))


@given(points)
def test_payload_holds_the_point(point: Point) -> None:
    assert announcement.announced(announcement.payload(point).encode()) == point


@pytest.mark.parametrize(
    "payload",
    [b"", b"1", b"1 ", b" 1 2", b"1 2 3", b"-1 2", b"1 2\n", b"1.0 2", b"+1 2", b"1 0x2", b"1" * 20 + b" 1", b"1 \xff",
     "١ ٢".encode(), b"9" * 7999],
)  # fmt: skip
def test_another_payload_is_no_announcement(payload: bytes) -> None:
    assert announcement.announced(payload) is None


@given(st.binary(max_size=60))
def test_no_payload_raises(payload: bytes) -> None:
    announcement.announced(payload)


def test_each_store_has_a_channel_of_its_own() -> None:
    assert announcement.channel(bytes(15) + b"\x0a") == "pubsub_" + "0" * 31 + "a"
    assert announcement.channel(bytes(16)) != announcement.channel(bytes(15) + b"\1")


def gate_at(position: int, polled: float = 100.0) -> ReadGate:
    gate = ReadGate(FASTEST, SLOWEST)
    gate.polled(Point(position, 7), polled)
    return gate


def test_gate_reads_a_later_position_at_once() -> None:
    assert gate_at(5).due(Point(6, 1), 100.1) == 100.1


def test_gate_reads_before_anything_is_known() -> None:
    assert ReadGate(FASTEST, SLOWEST).due(ZERO, 0.1) == 0.1


def test_gate_reads_nothing_for_the_point_that_was_read() -> None:
    assert gate_at(5).due(Point(5, 7), 100.1) == math.inf


@pytest.mark.parametrize("point", [Point(4, 1), Point(5, 8)])
def test_gate_reads_an_earlier_position_after_slowest(point: Point) -> None:
    gate = gate_at(5)
    assert gate.due(point, 100.1) == 100.0 + SLOWEST
    gate.polled(Point(5, 7), 104.0)
    assert gate.due(Point(6, 1), 104.1) == 104.1, "a late announcement does not delay the next one"


def test_gate_waits_after_a_read_without_a_change() -> None:
    gate = gate_at(5)
    gate.due(Point(6, 1), 100.1)
    gate.polled(Point(5, 7), 100.2)
    assert gate.due(Point(6, 1), 100.3) == 100.2 + FASTEST
    gate.polled(Point(6, 1), 100.7)
    assert gate.due(Point(7, 1), 100.8) == 100.8, "the last read found a change"


def test_gate_does_not_wait_after_a_regular_read_without_a_change() -> None:
    gate = gate_at(5)
    gate.polled(Point(5, 7), 101.0)
    assert gate.due(Point(6, 1), 101.1) == 101.1


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 20), st.booleans()), max_size=200))
@example([(0.001, 6, False)] * 50)  # forged
@example([(0.001, 4, False)] * 50)  # late
def test_gate_bounds_the_reads_of_any_announcements(events: list[tuple[float, int, bool]]) -> None:
    """Each event: seconds since the last one, the announced position, and whether a change was committed before."""
    gate, now, reads, head, found = gate_at(5, 0.0), 0.0, 0, 5, 0
    at, due = Point(5, 7), math.inf

    def read_until(time: float) -> None:
        nonlocal at, due, reads, found
        while due <= time:
            moment = due
            reads += 1
            found += head != at.position
            at, due = Point(head, 7), math.inf
            gate.polled(at, moment)

    for after, position, commits in events:
        now += after
        read_until(now)
        head += commits
        due = min(due, max(now, gate.due(Point(position, 7), now)))
    read_until(now)
    assert reads <= 1 + 2 * found + now / FASTEST + now / SLOWEST
