"""The thread of the polling driver: it polls at once on a hello request, and reports the true age of its reading."""

from typing import Any

import pytest

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import TransportError
from pubsub_sql.subscriber import PollingSubscriber
from tests.scheduler.doubles import StoreDouble, unavailable
from tests.scheduler.explore import World, explore

SOON = 0.01
HOUR = 3600.0


class Poll:
    """A polling subscriber that polls once an hour unless it is woken, and its delivered envelopes."""

    def __init__(self, world: World, latency: float = 0.2) -> None:
        self.world = world
        self.store = StoreDouble(world, latency)
        self.latency = latency
        self.subscriber = PollingSubscriber(
            lambda: self.store, Limits(), fastest=HOUR, slowest=HOUR, batch=2, max_backoff=HOUR
        )
        self.received: list[Envelope] = []
        self.may_be_called = True

    def started(self, *topics: str) -> "Poll":
        with self.world.calm():
            self.subscriber.initialize(self._receive, lambda: None)
            for topic in topics:
                self.subscriber.register_topic(topic)
            self.subscriber.daemonize()
            self.world.sleep(self.latency + SOON)
        return self

    @property
    def answered(self) -> set[str]:
        return {each.hello.nonce for each in self.received if each.hello is not None}

    def versions(self, topic: str) -> list[int]:
        found = [each for each in self.received if each.topic == topic]
        return [message.link.point.position for each in found for message in each.messages]

    def _receive(self, made: Envelope) -> None:
        self.world.check(self.may_be_called, "an envelope is delivered after close()")
        self.received.append(made)
        if made.hello is not None and made.hello.store is not None:
            behind = self.store.behind(made.hello.store.position, self.world.now)
            self.world.check(
                behind <= made.hello.age + 1e-9,
                f"a reply has the age {made.hello.age:g} s; its reading lacks a commit of {behind:g} s ago",
            )


def test_poller_answers_every_hello_request_at_once() -> None:
    def scenario(world: World) -> None:
        poll = Poll(world).started("t")

        def ask(*nonces: str) -> None:
            for nonce in nonces:
                poll.subscriber.request_hello(nonce, ["t"])
                world.sleep(world.rng.choice((0.0, 0.1, 0.15)))

        def write() -> None:
            for _ in range(3):
                poll.store.commit()
                world.sleep(0.1)

        world.together(lambda: ask("n1", "n2"), lambda: ask("n3"), write)
        maximum = 6 * poll.latency + SOON  # the poll that runs, and one more, of up to three readings
        world.until(lambda: poll.answered == {"n1", "n2", "n3"}, "the answers", maximum)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(150))


def test_poller_delivers_changes_committed_after_registration_of_a_topic() -> None:
    def scenario(world: World) -> None:
        poll = Poll(world).started("u")

        def register() -> None:
            poll.subscriber.register_topic("t")
            poll.store.commit()  # the poll that the next topic causes finds it
            poll.subscriber.register_topic("v")

        world.together(register, lambda: poll.subscriber.request_hello("n1", [ALL]))
        world.until(lambda: poll.versions("t") == [1], "the change", 4 * poll.latency + SOON)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(150))


def test_poller_that_jumps_reports_the_true_age_of_its_reading() -> None:
    def scenario(world: World) -> None:
        poll = Poll(world).started("t")
        for _ in range(3):
            poll.store.commit()
        poll.store.history.trim(2)

        def write() -> None:
            for _ in range(8):
                world.sleep(0.4 * poll.latency)
                poll.store.commit()

        world.together(lambda: poll.subscriber.request_hello("n1", ["t"]), write)
        world.until(lambda: {"", "n1"} <= poll.answered, "the hello of the jump and the answer", 4 * poll.latency)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


@pytest.mark.parametrize("latency", [0.1, 6.0])
def test_closed_poller_delivers_no_more_and_ends(latency: float) -> None:
    def scenario(world: World) -> None:
        poll = Poll(world, latency).started("t")
        poll.store.failures = [unavailable()] if latency < 1.0 else []

        def close() -> None:
            world.sleep(world.rng.choice((0.0, 0.1, 1.0)))
            began = world.now
            poll.subscriber.close()
            world.check(world.now - began <= 2.0 + SOON, f"close() took {world.now - began:g} s")
            poll.may_be_called = False

        def ask() -> None:
            try:
                poll.subscriber.request_hello("n1", ["t"])
                poll.store.commit()
                poll.subscriber.request_hello("n2", ["t"])
            except TransportError:
                pass

        world.together(close, ask)
        world.sleep(4 * poll.latency)
        thread: Any = poll.subscriber._life._thread
        world.check(not thread.is_alive(), "the polling thread runs after close()")

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(100))
