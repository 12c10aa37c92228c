"""Rates, lags and holes, with a simulated clock."""

import random

from pubsub_lib.cli.message_rows import ReceivedMessage
from pubsub_lib.cli.top_model import MAX_UNANSWERED, WINDOW, Rate, TopModel
from pubsub_lib.core.model import Head, Heads, Point
from pubsub_lib.store import Service


def heads(store: int, **topics: int) -> Heads:
    return Heads(Point(store, 1), {name: Head(Point(position, 1), 5, 1) for name, position in topics.items()})


def link(topic: str, position: int, *, changes: int = 1, holes: int = 0, service: str = "api") -> ReceivedMessage:
    return ReceivedMessage(0.0, "link", topic, service, "u", position, position, changes, 0.25, holes, "", "")


def test_rate_counts_the_window(rng: random.Random) -> None:
    counts: list[tuple[float, int]] = []
    rate, now = Rate(0.0), 0.0
    for _ in range(300):
        now += rng.random()
        count = rng.randint(1, 9)
        counts.append((now, count))
        rate.add(now, count)
        span = max(1.0, min(WINDOW, now))
        least = sum(count for at, count in counts if at > now - WINDOW) / span
        maximum = sum(count for at, count in counts if at > now - WINDOW - 2) / span  # whole seconds are kept
        assert least <= rate.per_second(now) + 1e-9
        assert rate.per_second(now) <= maximum + 1e-9
    assert rate.per_second(now + WINDOW + 2) == 0.0


def test_written_rate_counts_changes_since_the_start() -> None:
    model = TopModel(0.0)
    model.stored(heads(1000), [], 0.0)
    assert model.view(0.0).written == 0.0
    model.stored(heads(1030), [], 3.0)
    assert model.view(3.0).written == 10.0
    model.stored(heads(500), [], 4.0)  # restored
    assert (model.view(4.0).head, model.view(3.0).written) == (500, 10.0)


def test_topic_lags_until_its_newest_change_is_received() -> None:
    model = TopModel(0.0)
    model.stored(heads(7, a=7), [], 0.0)
    assert model.view(9.0).topics[0].lag == 0.0  # changes before the start are not expected
    model.stored(heads(9, a=9), [], 10.0)
    assert model.view(12.5).topics[0].lag == 2.5
    model.received([link("a", 8)], 13.0)
    assert model.view(13.0).topics[0].lag == 3.0
    model.received([link("a", 9)], 14.0)
    assert model.view(20.0).topics[0].lag == 0.0
    model.received([link("a", 11)], 21.0)  # received before the store was read
    model.stored(heads(11, a=11), [], 22.0)
    assert model.view(30.0).topics[0].lag == 0.0


def test_lagging_topics_come_first_then_the_busiest() -> None:
    model = TopModel(0.0)
    model.stored(heads(1, a=1, b=1, c=1, d=1), [], 0.0)
    model.received([link("b", 2, changes=5), link("c", 3, changes=9)], 1.0)
    model.stored(heads(4, a=1, b=2, c=3, d=4), [], 1.0)
    assert [row.topic for row in model.view(3.0).topics] == ["d", "c", "b", "a"]


def test_holes_are_counted_by_topic_by_service_and_in_total() -> None:
    model = TopModel(0.0)
    model.received([link("a", 1, holes=2), link("b", 1, holes=1, service="other")], 1.0)
    hello = ReceivedMessage(0.0, "hello", "a", "api", "u", 9, 7, 0, None, 3, "7-9", "")
    model.received([hello], 1.0)
    view = model.view(1.0)
    assert view.holes == 6
    assert {row.topic: row.holes for row in view.topics} == {"a": 5, "b": 1}
    assert {row.service: (row.holes, row.messages, row.latency) for row in view.services} == {
        "api": (5, 1.0, 0.25),
        "other": (1, 1.0, 0.25),
    }


def test_model_shows_only_the_requested_topics() -> None:
    model = TopModel(0.0, ["a"])
    model.stored(heads(4, a=2, b=4), [], 0.0)
    model.received([link("b", 5, holes=9)], 0.0)
    view = model.view(1.0)
    assert ([row.topic for row in view.topics], view.holes, view.head) == (["a"], 0, 4)


def test_lease_time_decreases_between_readings_and_the_last_start_wins() -> None:
    model = TopModel(0.0)
    entries = [Service("api", "u2", "tcp://new", 8.0), Service("api", "u1", "tcp://old", 1.0)]
    model.stored(heads(0), entries, 10.0)
    (row,) = model.view(13.0).services
    assert (row.address, row.lease_left) == ("tcp://new", 5.0)
    model.stored(heads(0), [], 14.0)
    assert model.view(14.0).services[0].lease_left is None


def test_service_lag_is_relative_to_the_head_at_the_hello_request() -> None:
    model = TopModel(0.0)
    model.stored(heads(10), [], 0.0)
    model.asked(["n1"])
    model.stored(heads(50), [], 1.0)
    model.answered("api", "n1", 12, 1.0)
    assert model.view(1.0).services[0].lag == 0
    model.asked(["n2"])
    model.answered("api", "n2", 12, 1.0)
    assert model.view(1.0).services[0].lag == 38
    model.answered("api", "never asked", 0, 1.0)
    assert model.view(1.0).services[0].lag == 38


def test_service_lag_is_unknown_after_requests_without_a_reply() -> None:
    model = TopModel(0.0)
    model.stored(heads(10), [], 0.0)
    model.asked(["n0"])
    model.answered("api", "n0", 10, 0.0)
    assert model.view(MAX_UNANSWERED).services[0].lag == 0
    assert model.view(MAX_UNANSWERED + 0.1).services[0].lag is None, "also while the store is not read"
    model.stored(heads(12), [], 6.0)
    model.asked(["n1"])
    model.stored(heads(15), [], 7.0)
    model.asked(["n2"])
    model.answered("api", "n2", 14, 7.5)
    model.answered("api", "n1", 12, 7.6)
    assert model.view(8.0).services[0].lag == 1, "a late reply to an older request is not used"


def test_service_that_always_replies_late_has_a_lag() -> None:
    model = TopModel(0.0, interval=0.1)
    model.stored(heads(10), [], 0.0)
    for number in range(60):
        model.asked([f"n{number}"])
        if number >= 10:
            model.answered("api", f"n{number - 10}", 8, number / 10)
    assert model.view(6.0).services[0].lag == 2


def test_error_is_shown_until_the_store_is_read_again() -> None:
    model = TopModel(0.0)
    model.failed("gone")
    assert model.view(0.0).error == "gone"
    model.stored(heads(0), [], 1.0)
    assert model.view(1.0).error == ""
