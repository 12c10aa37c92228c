"""Reassembly of runs from the workers' messages, in any order and with losses; no state grows without bound."""

import random

from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ZERO, Change, Link, Point
from pubsub_lib.service.reassembly import BUDGET, MAX_RUNS, Reassembly

SMALL = Limits(max_frame_bytes=2000, max_value_bytes=1000)
UUID = "0" * 32


def large(position: int) -> Link:
    changes = [Change("t", f"k{n}", "set", position - 9 + n, b'"' + b"x" * 700 + b'"') for n in range(10)]
    return Link("topic", ZERO, Point(position, position), changes, 10, 0, ZERO, 1)


def envelopes(messages: list[Message], first: int = 1, uuid: str = UUID) -> list[Envelope]:
    return [Envelope("api-1", uuid, "topic", first + n, [message]) for n, message in enumerate(messages)]


def test_link_in_one_message_is_returned_at_once() -> None:
    link = Link("topic", ZERO, Point(1, 1), [], 0, 0, ZERO, 1)
    assert Reassembly().feed(Envelope("api-1", UUID, "topic", 1, [Message(link), Message(link)])) == [link, link]


@given(st.randoms(use_true_random=False))
def test_runs_of_several_workers_are_returned_with_their_last_part(rng: random.Random) -> None:
    assembly = Reassembly()
    first, second = large(10), large(20)
    ways = [
        envelopes(codec.split(first, SMALL)),
        envelopes(codec.split(second, SMALL), uuid="1" * 32),
    ]
    assert min(len(way) for way in ways) > 2
    got = []
    while any(ways):
        got += assembly.feed(rng.choice([way for way in ways if way]).pop(0))
    assert sorted(got, key=lambda link: link.point.position) == [first, second]
    assert (assembly.lost, assembly.given_up) == (0, 0)


def test_lost_part_is_counted_and_its_run_dropped() -> None:
    assembly = Reassembly()
    sequence = 1
    for number in range(MAX_RUNS + 2):
        parts = envelopes(codec.split(large(10 + 10 * number), SMALL), sequence)
        sequence += len(parts)
        del parts[1]
        for part in parts:
            assert assembly.feed(part) == []
    assert assembly.lost == MAX_RUNS + 2
    assert assembly.given_up == 2


def part(number: int, parts: int, size: int, position: int = 9) -> Message:
    change = Change("t", f"k{number}", "set", position, b"x" * size)
    return Message(Link("topic", ZERO, Point(position, 7), [change], 1, 0, ZERO, 1), number, parts)


def test_endless_run_is_dropped_at_its_budget_of_bytes() -> None:
    """1,500 parts of a run that never ends, 1 MB each, as an attacker of the workers' socket would send."""
    limits = Limits(max_transaction_bytes=16_000_000, max_transaction_changes=100)
    assembly = Reassembly(limits)
    budget = BUDGET * (16_000_000 + 200 * 100)
    most = 0
    for number in range(1, 1501):
        assert assembly.feed(Envelope("api-1", UUID, "topic", number, [part(number, 2**20, 1_000_000)])) == []
        most = max(most, sum(run.size for run in assembly._runs.values()))
        assert assembly._size == sum(run.size for run in assembly._runs.values())
    assert budget - 2_000_000 < most <= budget
    assert assembly.given_up == 1500 // 64
    link = large(20)  # others are served meanwhile
    run = codec.split(link, SMALL)
    assert [got for each in envelopes(run, uuid="1" * 32) for got in assembly.feed(each)] == [link]


def test_small_parts_have_a_size_too() -> None:
    assembly = Reassembly(Limits(max_transaction_bytes=1000, max_transaction_changes=5))
    empty = Link("topic", ZERO, Point(9, 7), [], 1, 0, ZERO, 1)
    for number in range(1, 1000):
        assembly.feed(Envelope("api-1", UUID, "topic", number, [Message(empty, number, 2**20)]))
        assert sum(len(run.parts) for run in assembly._runs.values()) <= 40
    assert assembly.given_up > 20


def test_repeated_part_is_not_counted_twice() -> None:
    assembly = Reassembly(Limits(max_transaction_bytes=1000, max_transaction_changes=5))
    for number in range(1, 1000):
        assembly.feed(Envelope("api-1", UUID, "topic", number, [part(1, 2, 500)]))
    assert assembly.given_up == 0


def test_largest_transaction_fits_in_the_budget() -> None:
    limits = Limits(max_transaction_bytes=20_000, max_frame_bytes=2000, max_value_bytes=1000)
    link = large(10)
    assembly = Reassembly(limits)
    assert [got for each in envelopes(codec.split(link, limits)) for got in assembly.feed(each)] == [link]


def test_sequences_are_tracked_per_worker_and_topic() -> None:
    assembly = Reassembly()
    link = Link("topic", ZERO, Point(1, 1), [], 0, 0, ZERO, 1)
    for uuid in ("0" * 32, "1" * 32):
        assembly.feed(Envelope("api-1", uuid, "topic", 7, [Message(link)] * 3))
    assert assembly.lost == 0  # messages before the first received one are unknown
    assembly.feed(Envelope("api-1", UUID, "topic", 12, [Message(link)]))
    assert assembly.lost == 2


def test_hello_contains_no_links() -> None:
    assert Reassembly().feed(Envelope("api-1", UUID, "", 0, [], Hello({}, {}, None, 0.0))) == []
