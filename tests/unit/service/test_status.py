"""A status from the parts of a service: ages, rates, and a bounded number of rows."""

import time
from typing import Any

import msgspec
import pytest

from pubsub_lib.api import Client
from pubsub_lib.core.model import Head, Heads, Point
from pubsub_lib.core.sequencer import NEVER_YET, Progress
from pubsub_lib.service.status import LOCK_TIMEOUT, MAX_ROWS, About, Entry, Sources, StatusReader, Topic
from pubsub_lib.store.directory import Service
from pubsub_lib.threads.periodic_thread import PeriodicThread

HEADS = Heads(Point(9, 9), {"a": Head(Point(7, 7), 3, 0), "b": Head(Point(9, 9), 1, 0)})


def reader(started: float = 0.0, **changes: Any) -> StatusReader:
    now = time.monotonic()
    given: dict[str, Any] = {
        "about": About("api-1", "u1", "0.1.0", "driver", "tcp://x:1"),
        "problems": list,
        "directory": lambda: ([Service("api-2", "u2", "y", 4.0), Service("api-1", "u1", "x", 9.0)], now - 1.0),
        "clients": lambda: None,
        "counters": lambda: {"links": {"handed": 1}},
        "gauges": lambda: {"leases": {"orphans": 1.0}},
        "excluded": lambda: [("api-1", "u3")],
        "loops": {"leases": PeriodicThread("leases", lambda now: now)},
        "progress": lambda _timeout: Progress({"a": 20, "c": 5}, HEADS, now - 2.0),
        "agents": lambda: None,
    }
    return StatusReader(Sources(**{**given, **changes}), now - started)


def test_status_has_ages_of_readings() -> None:
    now = reader(started=100.0, problems=lambda: ["a problem"])()
    assert (now.service, now.uuid, now.version, now.driver, now.address) == (
        "api-1", "u1", "0.1.0", "driver", "tcp://x:1",
    )  # fmt: skip
    assert 100.0 <= now.running < 160.0
    assert abs(now.made_at - time.time()) < 60.0
    assert now.problems == ["a problem"]
    assert [each.service for each in now.entries] == ["api-1", "api-2"]
    assert now.entries[1].seconds_left == pytest.approx(4.0 - (now.entries_age or 0.0))
    assert now.entries_age is not None
    assert now.entries_age >= 1.0
    assert now.topics.read_age is not None
    assert now.topics.read_age >= 2.0
    assert now.topics.store_position == 9
    assert (now.counters, now.gauges) == ({"links": {"handed": 1}}, {"leases": {"orphans": 1.0}})
    assert [(each.name, each.succeeded, each.failures) for each in now.threads] == [("leases", None, 0)]


def test_status_without_a_database_has_no_entries() -> None:
    now = reader(directory=None)()
    assert (now.database, now.entries, now.entries_total, now.entries_age) == (False, [], 0, None)
    assert reader()().database


def test_topics_are_those_sent_and_those_in_the_database() -> None:
    topics = reader(started=10.0)().topics
    assert topics.window >= 10.0
    assert [msgspec.structs.replace(each, rate=0.0) for each in topics.rows] == [
        Topic("a", 20, 0.0, 7, 3),
        Topic("c", 5, 0.0, None, None),
        Topic("b", 0, 0.0, 9, 1),
    ]
    assert [round(each.rate * topics.window, 6) for each in topics.rows] == [20, 5, 0]


def test_status_before_the_first_readings() -> None:
    now = reader(directory=lambda: ((), NEVER_YET), progress=lambda _timeout: Progress({}, None, NEVER_YET))()
    assert (now.entries, now.entries_age) == ([], None)
    assert (list(now.topics.rows), now.topics.read_age, now.topics.store_position) == ([], None, None)
    assert now.topics.sent_age == 0.0


def test_busy_publisher_leaves_the_last_sequences_with_their_age(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Progress | None] = [None, Progress({"a": 1}, None, NEVER_YET), None]
    timeouts: list[float] = []

    def progress(timeout: float) -> Progress | None:
        timeouts.append(timeout)
        return answers.pop(0)

    clock = [50.0]
    monkeypatch.setattr("pubsub_lib.service.status.time.monotonic", lambda: clock[0])
    read = reader(progress=progress)
    assert read().topics.sent_age is None
    clock[0] = 60.0
    assert read().topics.sent_age == 0.0
    clock[0] = 64.0
    later = read().topics
    assert (later.sent_age, [each.sequence for each in later.rows], later.window) == (4.0, [1], 10.0)
    assert timeouts == [LOCK_TIMEOUT] * 3


def test_rows_are_bounded_and_this_service_is_among_them() -> None:
    services = [Service(f"a{each:04}", f"u{each}", "y", 4.0) for each in range(2, 500)]
    clients = frozenset(Client(f"c{each:04}", "") for each in range(500))
    sequences = {f"t{each}": each for each in range(500)}
    now = reader(
        directory=lambda: ([*services, Service("z", "u1", "x", 9.0)], time.monotonic()),
        clients=lambda: clients,
        progress=lambda _timeout: Progress(sequences, None, NEVER_YET),
    )()
    assert (len(now.entries), now.entries_total) == (MAX_ROWS, 499)
    assert now.entries[-1].uuid == "u1"
    assert isinstance(now.entries[0], Entry)
    assert now.clients is not None
    assert ([each.name for each in now.clients], now.clients_total) == ([f"c{each:04}" for each in range(100)], 500)
    assert [each.name for each in now.topics.rows] == [f"t{each}" for each in range(499, 399, -1)]
    assert now.topics.total == 500
