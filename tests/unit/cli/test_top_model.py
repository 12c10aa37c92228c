"""Rates, lags and holes, by a clock of the test's own."""

import random

from pubsub_lib.cli.message_rows import ReceivedMessage
from pubsub_lib.cli.top_model import WINDOW, Rate, TopModel
from pubsub_lib.core.model import Head, Heads, Point
from pubsub_lib.store import Service


def heads(store: int, **topics: int) -> Heads:
    return Heads(Point(store, 1), {name: Head(Point(position, 1), 5, 1) for name, position in topics.items()})


def link(topic: str, position: int, *, changes: int = 1, holes: int = 0, service: str = "api") -> ReceivedMessage:
    return ReceivedMessage(0.0, "link", topic, service, "u", position, position, changes, 0.25, holes, "", "")


def test_a_rate_is_what_came_in_the_window(rng: random.Random) -> None:
    came: list[tuple[float, int]] = []
    rate, now = Rate(0.0), 0.0
    for _ in range(300):
        now += rng.random()
        count = rng.randint(1, 9)
        came.append((now, count))
        rate.add(now, count)
        span = max(1.0, min(WINDOW, now))
        least = sum(count for at, count in came if at > now - WINDOW) / span
        maximum = sum(count for at, count in came if at > now - WINDOW - 2) / span  # whole seconds are kept
        assert least <= rate.per_second(now) + 1e-9
        assert rate.per_second(now) <= maximum + 1e-9
    assert rate.per_second(now + WINDOW + 2) == 0.0


def test_written_is_what_the_head_did_and_not_where_it_stood_at_first() -> None:
    board = TopModel(0.0)
    board.stored(heads(1000), [], 0.0)
    assert board.view(0.0).written == 0.0
    board.stored(heads(1030), [], 3.0)
    assert board.view(3.0).written == 10.0
    board.stored(heads(500), [], 4.0)  # restored
    assert (board.view(4.0).head, board.view(3.0).written) == (500, 10.0)


def test_a_topic_lags_while_its_newest_change_was_not_heard() -> None:
    board = TopModel(0.0)
    board.stored(heads(7, a=7), [], 0.0)
    assert board.view(9.0).topics[0].lag == 0.0  # what was before could not be heard
    board.stored(heads(9, a=9), [], 10.0)
    assert board.view(12.5).topics[0].lag == 2.5
    board.received([link("a", 8)], 13.0)
    assert board.view(13.0).topics[0].lag == 3.0
    board.received([link("a", 9)], 14.0)
    assert board.view(20.0).topics[0].lag == 0.0
    board.received([link("a", 11)], 21.0)  # heard before it was read
    board.stored(heads(11, a=11), [], 22.0)
    assert board.view(30.0).topics[0].lag == 0.0


def test_those_that_lag_come_first_then_the_busiest() -> None:
    board = TopModel(0.0)
    board.stored(heads(1, a=1, b=1, c=1, d=1), [], 0.0)
    board.received([link("b", 2, changes=5), link("c", 3, changes=9)], 1.0)
    board.stored(heads(4, a=1, b=2, c=3, d=4), [], 1.0)
    assert [row.topic for row in board.view(3.0).topics] == ["d", "c", "b", "a"]


def test_holes_are_counted_by_topic_by_service_and_in_all() -> None:
    board = TopModel(0.0)
    board.received([link("a", 1, holes=2), link("b", 1, holes=1, service="other")], 1.0)
    told = ReceivedMessage(0.0, "hello", "a", "api", "u", 9, 7, 0, None, 3, "7-9", "")
    board.received([told], 1.0)
    view = board.view(1.0)
    assert view.holes == 6
    assert {row.topic: row.holes for row in view.topics} == {"a": 5, "b": 1}
    assert {row.service: (row.holes, row.messages, row.latency) for row in view.services} == {
        "api": (5, 1.0, 0.25),
        "other": (1, 1.0, 0.25),
    }


def test_only_the_topics_that_were_asked_for() -> None:
    board = TopModel(0.0, ["a"])
    board.stored(heads(4, a=2, b=4), [], 0.0)
    board.received([link("b", 5, holes=9)], 0.0)
    view = board.view(1.0)
    assert ([row.topic for row in view.topics], view.holes, view.head) == (["a"], 0, 4)


def test_a_lease_runs_down_between_readings_and_of_two_starts_the_younger_counts() -> None:
    board = TopModel(0.0)
    entries = [Service("api", "u2", "tcp://new", 8.0), Service("api", "u1", "tcp://old", 1.0)]
    board.stored(heads(0), entries, 10.0)
    (row,) = board.view(13.0).services
    assert (row.address, row.lease_left) == ("tcp://new", 5.0)
    board.stored(heads(0), [], 14.0)
    assert board.view(14.0).services[0].lease_left is None


def test_a_services_lag_is_measured_from_the_head_that_was_known_when_it_was_asked() -> None:
    board = TopModel(0.0)
    board.stored(heads(10), [], 0.0)
    board.asked(["n1"])
    board.stored(heads(50), [], 1.0)
    board.answered("api", "n1", 12, 1.0)
    assert board.view(1.0).services[0].lag == 0
    board.asked(["n2"])
    board.answered("api", "n2", 12, 1.0)
    assert board.view(1.0).services[0].lag == 38
    board.answered("api", "never asked", 0, 1.0)
    assert board.view(1.0).services[0].lag == 38


def test_an_error_shows_until_the_store_is_read_again() -> None:
    board = TopModel(0.0)
    board.failed("gone")
    assert board.view(0.0).error == "gone"
    board.stored(heads(0), [], 1.0)
    assert board.view(1.0).error == ""
