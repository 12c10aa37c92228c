"""The threads of the ``memory`` driver: joins, sends, hello requests and closes at the same time."""

from typing import Any

from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import TransportError
from pubsub_memory.bus import MemoryBus
from pubsub_memory.publisher import MemoryPublisher
from pubsub_memory.subscriber import MemorySubscriber
from tests.scheduler.explore import World, explore
from tests.unit.core.builders import History, envelope, hello

SOON = 0.01
"""Virtual seconds for an effect that needs no wait."""


class Bus:
    """One publisher and one subscriber of a bus, and the calls of their callbacks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = History()
        bus = MemoryBus()
        self.publisher = MemoryPublisher(bus, Limits())
        self.subscriber = MemorySubscriber(bus, Limits(), 100)
        self.received: list[Envelope] = []
        self.asked: list[HelloRequest] = []
        self.met = {"publisher": 0, "subscriber": 0}
        self.may_be_called = True

    def join_publisher(self) -> None:
        self.publisher.initialize(self._ask, lambda: self._meet("publisher"))

    def join_subscriber(self) -> None:
        self.subscriber.initialize(self._receive, lambda: self._meet("subscriber"))
        self.subscriber.register_topic("t")
        self.subscriber.daemonize()

    def joined(self) -> "Bus":
        with self.world.calm():
            self.join_publisher()
            self.join_subscriber()
            self.world.sleep(SOON)
        return self

    def _ask(self, ask: HelloRequest) -> None:
        """Answer at once: the subscriber must receive it."""
        self.asked.append(ask)
        try:
            self.publisher.send_event(hello(self.history.reading(), nonce=ask.nonce))
        except TransportError:
            pass  # closed meanwhile

    def _meet(self, which: str) -> None:
        self.world.check(self.may_be_called, "on_connected is called after close()")
        self.met[which] += 1

    def _receive(self, made: Envelope) -> None:
        self.world.check(self.may_be_called, "a message is delivered after close()")
        self.received.append(made)


def test_both_halves_report_the_connection_in_any_order_of_joining() -> None:
    def scenario(world: World) -> None:
        bus = Bus(world)
        world.together(bus.join_publisher, bus.join_subscriber)
        world.until(lambda: bus.met["publisher"] and bus.met["subscriber"], "both on_connected", SOON)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_messages_of_one_sender_arrive_at_once_and_in_order() -> None:
    def scenario(world: World) -> None:
        bus = Bus(world).joined()
        links = bus.history.some(2)

        def send() -> None:
            for sequence, link in enumerate(links, 1):
                bus.publisher.send_event(envelope(link, sequence=sequence))

        world.together(send, lambda: bus.publisher.send_event(hello(bus.history.reading())))
        world.until(lambda: len(bus.received) == 3, "every message", SOON)
        sequences = [each.sequence for each in bus.received if each.messages]
        world.check(sequences == [1, 2], f"received {sequences}")

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_hello_request_is_answered_at_once_and_the_reply_is_received() -> None:
    def scenario(world: World) -> None:
        bus = Bus(world).joined()
        world.together(
            lambda: bus.subscriber.request_hello("n1", [ALL]), lambda: bus.subscriber.request_hello("n2", ["t"])
        )

        def answered() -> bool:
            return {each.hello.nonce for each in bus.received if each.hello is not None} == {"n1", "n2"}

        world.until(answered, "the answers", SOON)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_closed_halves_end_at_once_and_make_no_calls() -> None:
    def scenario(world: World) -> None:
        bus = Bus(world).joined()
        began = world.now

        def close() -> None:
            bus.subscriber.close()
            bus.publisher.close()
            bus.may_be_called = False

        def work() -> None:
            try:
                bus.subscriber.request_hello("n1", [ALL])
                bus.publisher.send_event(envelope(bus.history.one()))
            except TransportError:
                pass

        world.together(close, work)
        world.check(world.now - began <= SOON, f"close() took {world.now - began:g} s")
        for thread in (bus.publisher._thread, bus.subscriber._life._thread):
            running: Any = thread
            world.check(not running.is_alive(), f"{running.name} runs after close()")

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(100))
