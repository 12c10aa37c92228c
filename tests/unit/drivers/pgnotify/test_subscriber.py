"""The polling thread that listens, with a connection and a changelog that the test controls.

Polls have an interval of an hour while it listens, so that only what the test does can cause one.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Heads, Link, Point
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.testing.rig import Collector, Connections
from pubsub_pgnotify import announcement
from pubsub_pgnotify.subscriber import NotifiedSubscriber
from tests.unit.drivers.pgnotify.session_double import LONG, SessionDouble
from tests.unit.drivers.test_polling import Changelog

HOUR = 3600.0
FASTEST = 0.001
FORGED = b"999999 1"


class Ear(SessionDouble):
    """A session whose notifications and losses the test makes."""

    def __init__(self) -> None:
        super().__init__()
        self.statements: list[str] = []
        self.waits = 0
        """Times that the thread has begun to wait."""
        self.on_connect: Callable[[], object] = lambda: None
        self._payloads: list[bytes] = []

    @property
    def retry_in(self) -> float:
        return HOUR

    def notify(self, *payloads: bytes) -> None:
        with self.changed:
            self._payloads += payloads
            self.change()

    def lose(self) -> None:
        self.change(connected=False, up=False)

    def connect(self, statement: str) -> bool:
        if self.connected or not self.up:
            return False
        with self.changed:
            self.connected = True
            self.counts["connections"] += 1
            self.statements.append(statement)
            self.on_connect()
            self.changed.notify_all()
        return True

    def wait(self, seconds: float) -> list[bytes]:
        with self.changed:
            self.waits += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self._woken, seconds)
            self._woken = False
            found, self._payloads = self._payloads, []
            return found

    def disconnect(self) -> None:
        self.connected = False


class Log(Changelog):
    """A changelog that can be unavailable."""

    failing = False

    def read_heads(self, topics: Any, /) -> Heads:
        self._check()
        return super().read_heads(topics)

    def read_links(self, after: Point | None, maximum: int, /) -> tuple[list[Link], Point, bool]:
        self._check()
        return super().read_links(after, maximum)

    def _check(self) -> None:
        if self.failing:
            raise StoreUnavailable("the database is away; start it")


class World:
    """A running subscriber. ``max_backoff``: maximum seconds between two polls of a changelog that fails."""

    def __init__(self, max_backoff: float = 0.01) -> None:
        self.ear, self.log = Ear(), Log()
        self.received, self.connected = Collector(LONG), Connections()
        self.subscriber = NotifiedSubscriber(
            lambda: self.log, Limits(), self.ear,  # type: ignore[arg-type]
            listening=HOUR, fastest=FASTEST, slowest=0.01, batch=100, max_backoff=max_backoff,
        )  # fmt: skip
        self.subscriber.initialize(self.received, self.connected)
        self.subscriber.register_topic("t")

    def start(self) -> "World":
        self.subscriber.daemonize()
        self.connected.until_more_than(0, LONG, "subscriber")
        self.idle()
        return self

    def idle(self) -> None:
        """Wait until the thread waits after everything that was done before."""
        before = self.ear.waits
        self.ear.wake()
        self.ear.until(lambda: self.ear.waits > before)

    def commit(self) -> Point:
        (link,) = self.log.commit("t")
        return link.point

    def announce(self, point: Point) -> None:
        self.ear.notify(announcement.payload(point).encode())

    def until(self, point: Point) -> None:
        self.received.until(lambda: point in self.received.points("t"), f"the change {point} came")

    @property
    def polls(self) -> int:
        return self.subscriber.counters()["polls"]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.subscriber.close()


def test_announcement_is_read_at_once(world: World) -> None:
    world.start()
    for _ in range(5):
        point = world.commit()
        world.announce(point)
        world.until(point)
    assert world.subscriber.counters()["notifications"] == 5
    assert world.log.calls[-3:] == ["links"] * 3, "no heads are read before"


def test_announcement_of_what_was_read_causes_no_poll(world: World) -> None:
    world.start()
    point = world.commit()
    world.announce(point)
    world.until(point)
    world.idle()
    polls = world.polls
    for _ in range(20):
        world.announce(point)
        world.idle()
    assert world.polls == polls
    assert world.subscriber.counters()["notifications"] == 21


def test_several_announcements_cause_one_poll(world: World) -> None:
    world.start()
    polls = world.polls
    points = [world.commit() for _ in range(9)]
    world.ear.notify(*(announcement.payload(each).encode() for each in points))
    world.until(points[-1])
    world.idle()
    assert world.polls == polls + 1
    assert world.received.points("t") == points


def test_foreign_notification_is_counted_and_causes_no_poll(world: World) -> None:
    world.start()
    polls = world.polls
    world.ear.notify(b"", b"x", b"1 2 3", b"\xff" * 7999)
    world.idle()
    assert world.polls == polls
    assert world.subscriber.counters()["foreign"] == 4


def test_forged_announcements_are_read_at_a_bounded_rate(world: World) -> None:
    world.start()
    polls, begun = world.polls, time.monotonic()
    for _ in range(300):
        world.ear.notify(FORGED)
        world.idle()
    assert world.polls - polls <= 1 + (time.monotonic() - begun) / FASTEST


def test_announcement_after_forged_ones_is_read(world: World) -> None:
    world.start()
    world.ear.notify(*[FORGED] * 100)
    point = world.commit()
    world.announce(point)
    world.until(point)


def test_announcements_do_not_shorten_the_wait_after_a_failed_reading() -> None:
    world = World(max_backoff=HOUR)
    try:
        world.start()
        world.log.failing = True
        begun = time.monotonic()
        for position in range(1, 301):
            world.announce(Point(1_000_000 + position, 1))
            world.idle()
        elapsed = time.monotonic() - begun
        # The waits are 2, 4, 8 … times the first one.
        assert 0 < world.subscriber.counters()["store_errors"] <= 1 + math.log2(2 + elapsed / FASTEST)
    finally:
        world.subscriber.close()


def test_hello_request_and_topic_wake_the_thread(world: World) -> None:
    world.start()
    world.subscriber.request_hello("n", ["t"])
    world.received.until(lambda: world.received.hellos("n"), "the reply")
    polls = world.polls
    world.subscriber.register_topic("u")
    world.ear.until(lambda: world.polls > polls)


def test_change_committed_before_it_listened_is_read_before_the_connection_is_reported(world: World) -> None:
    reported: list[int] = []
    world.ear.on_connect = lambda: world.log.commit("t")  # a program's notification came too early
    world.connected.hook = lambda: reported.append(len(world.received.points("t")))
    world.start()
    assert reported == [1]


def test_subscriber_polls_while_it_cannot_listen(world: World) -> None:
    world.ear.up = False
    world.subscriber.daemonize()
    world.subscriber.request_hello("n", ["t"])
    world.received.until(lambda: world.received.hellos("n"), "the first poll")
    for _ in range(3):
        world.until(world.commit())
    assert world.connected.count == 0


def test_subscriber_polls_after_a_loss_and_listens_again(world: World) -> None:
    world.start()
    missed = world.commit()  # its notification is lost with the connection
    world.ear.lose()
    world.until(missed)
    for _ in range(3):
        world.until(world.commit())
    world.ear.up = True
    world.connected.until_more_than(1, LONG, "subscriber")
    world.idle()
    polls = world.polls
    point = world.commit()
    world.announce(point)
    world.until(point)
    assert world.polls == polls + 1


def test_subscriber_does_not_listen_while_the_changelog_cannot_be_read(world: World) -> None:
    world.log.failing = True
    world.subscriber.daemonize()
    world.ear.until(lambda: world.subscriber.counters()["store_errors"] >= 3)
    assert world.ear.statements == []
    world.log.failing = False
    world.connected.until_more_than(0, LONG, "subscriber")


def test_subscriber_listens_on_the_channel_of_a_new_store_id(world: World) -> None:
    world.start()
    world.log.store_id = b"\1" * 16
    world.subscriber.request_hello("n", ["t"])
    world.connected.until_more_than(1, LONG, "subscriber")
    wanted = [f'LISTEN "{announcement.channel(each)}"' for each in (bytes(16), b"\1" * 16)]
    assert world.ear.statements == wanted


def test_closed_subscriber_has_released_its_connection(world: World) -> None:
    world.start()
    begun = time.monotonic()
    world.subscriber.close()
    assert world.ear.closed
    assert time.monotonic() - begun < LONG
    assert "close" in world.log.calls
