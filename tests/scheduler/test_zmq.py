"""The threads of the ZeroMQ driver: callers queue orders and messages, and the thread that owns the socket reads them.

The sockets are doubles (:mod:`tests.scheduler.sockets`); everything else of the driver is real.
"""

from collections.abc import Callable
from typing import Any

import pytest
import zmq

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest, Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, ZERO, Heads
from pubsub_lib.errors import TransportError
from pubsub_zmq.buckets import bucketed, is_bucketed, plain, prefix_of, reply_prefix
from pubsub_zmq.options import ZmqOptions
from tests.scheduler.explore import DEEP, World, explore
from tests.scheduler.sockets import ControlledPublisher, ControlledSubscriber, doubled
from tests.unit.core.builders import UUID, History, envelope, hello

SOON = 0.01
"""Virtual seconds for an effect that needs no wait."""
ADDRESS = "tcp://127.0.0.1:8866"


class Receiving:
    """A running subscriber, and the calls of its callbacks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.subscriber = ControlledSubscriber(world, doubled(world))
        self.sub = self.subscriber.sub
        self.received: list[Envelope] = []
        self.connections = 0
        self.may_be_called = True

    def started(self, *topics: str) -> "Receiving":
        with self.world.calm():
            self.subscriber.initialize(self._receive, self._connect)
            for topic in topics:
                self.subscriber.register_topic(topic)
            self.subscriber.daemonize()
            self.world.sleep(SOON)
        return self

    def deliver(self, made: Envelope) -> None:
        head, body = codec.encode(made, Limits())
        self.sub.deliver(bucketed(head), body)

    def up(self) -> None:
        """The connection is made."""
        self.world.scheduler.point("is connected")
        self.subscriber.monitor.add(int(zmq.EVENT_HANDSHAKE_SUCCEEDED), ADDRESS)

    def _receive(self, made: Envelope) -> None:
        self.world.check(self.may_be_called, "a message is delivered after close()")
        self.received.append(made)

    def _connect(self) -> None:
        self.world.check(self.may_be_called, "on_connected is called after close()")
        self.connections += 1


def test_receiver_executes_orders_at_once() -> None:
    def scenario(world: World) -> None:
        bench = Receiving(world).started()
        topic, address = prefix_of("t"), prefix_of("u")
        world.together(
            lambda: bench.subscriber.register_topic("t"),
            lambda: bench.subscriber.register_topic("u"),
            lambda: bench.subscriber.register_listen_address(ADDRESS),
        )
        world.until(lambda: {topic, address} <= set(bench.sub.subscribed), "the subscriptions", SOON)
        world.until(lambda: bench.sub.connected == [ADDRESS], "the connection", SOON)
        world.together(
            lambda: bench.subscriber.unregister_topic("t"),
            lambda: bench.subscriber.unregister_listen_address(ADDRESS),
        )
        world.until(lambda: topic not in bench.sub.subscribed and not bench.sub.connected, "their ends", SOON)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(150))


def test_receiver_sends_hello_requests_at_once_after_subscribing_to_the_reply() -> None:
    def scenario(world: World) -> None:
        bench = Receiving(world).started("t")
        asks: list[Callable[[], None]] = [
            lambda: bench.subscriber.request_hello("n1", ["t"]),
            lambda: bench.subscriber.request_hello("n2", ["t"]),
        ]
        world.together(*asks, lambda: bench.deliver(envelope(History().one())))
        for nonce in ("n1", "n2"):
            private, request = reply_prefix(nonce), codec.hello_request_frame(nonce, ["t"])
            world.until(lambda asked=request: asked in bench.sub.sent, f"the hello request {nonce}", SOON)  # type: ignore[misc]
            order = bench.sub.sent.index
            world.check(order(b"\1" + private) < order(request), "the reply may come before its subscription")
        world.until(lambda: len(bench.received) == 1, "the message", SOON)
        world.sleep(ZmqOptions().answer_time + SOON)
        left = [codec.topic_frame(ALL), prefix_of("t")]
        world.check(bench.sub.subscribed == left, "the prefix of replies stays although their time is over")
        bench.sub.deliver(*codec.encode(Envelope("api-1", UUID, ALL, 0, [], Hello({}, {}, ZERO, 0.0, "n1"))))
        bench.sub.deliver(*codec.encode(envelope(History().one("u"))))
        bench.deliver(envelope(History().one(), sequence=2))
        world.until(lambda: len(bench.received) > 1, "the next message", SOON)
        topics = [each.topic for each in bench.received]
        world.check(topics == ["t", "t"], f"a late reply or another topic's message is passed on: {topics}")

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(150))


def test_receiver_reports_a_connection_and_delivers_in_order() -> None:
    def scenario(world: World) -> None:
        bench = Receiving(world).started("t")
        history = History()

        def send() -> None:
            for sequence, link in enumerate(history.some(3), 1):
                bench.deliver(envelope(link, sequence=sequence))

        bench.subscriber.register_listen_address(ADDRESS)
        world.sleep(SOON)
        world.together(send, bench.up, lambda: bench.subscriber.register_topic("u"))
        world.until(lambda: len(bench.received) == 3 and bench.connections == 1, "messages and connection", SOON)
        sequences = [each.sequence for each in bench.received]
        world.check(sequences == [1, 2, 3], f"received {sequences}")

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_receiver_looks_once_whether_more_waits_after_a_single_message() -> None:
    """The attempt that finds nothing is the last use before the poll; a look at the events would be another."""

    def scenario(world: World) -> None:
        bench, history = Receiving(world).started("t"), History()
        world.sleep(SOON)
        failed, looks = bench.sub.failed, bench.sub.looks
        for number in range(1, 4):
            bench.deliver(envelope(history.one(), sequence=number))
            world.until(lambda: len(bench.received) == number, "the message", SOON)  # noqa: B023 - it is called at once
            world.sleep(SOON)
            world.check(bench.sub.failed == failed + number, "the receiver did not look once")
        world.check(bench.sub.looks == looks, "the receiver looked at the events, too")
        for number in range(4, 9):
            bench.deliver(envelope(history.one(), sequence=number))
        world.until(lambda: len(bench.received) == 8, "the other messages", SOON)
        world.check([each.sequence for each in bench.received] == [*range(1, 9)], "the order")

    explore(scenario, seeds=range(30))


def test_closed_receiver_ends_at_once_and_delivers_no_more() -> None:
    def scenario(world: World) -> None:
        bench = Receiving(world).started("t")
        began = world.now

        def close() -> None:
            bench.subscriber.close()
            world.check(world.now - began <= SOON, f"close() took {world.now - began:g} s")
            bench.may_be_called = False

        def order() -> None:
            try:
                bench.subscriber.register_topic("u")
            except TransportError:
                pass

        world.together(close, lambda: bench.deliver(envelope(History().one())), order)
        thread: Any = bench.subscriber._life._thread
        world.check(not thread.is_alive(), "the receiving thread runs after close()")
        world.check(bench.sub.closed, "the socket is open")

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(150))


class Sending:
    """An initialized publisher, with its sent messages and received hello requests."""

    def __init__(self, world: World, options: ZmqOptions | None = None) -> None:
        self.world = world
        self.publisher = ControlledPublisher(world, doubled(world), options or ZmqOptions())
        self.xpub = self.publisher.xpub
        self.asked: list[HelloRequest] = []
        self.arrivals = 0
        self._history = History()
        self._numbers: dict[str, int] = {}

    def started(self) -> "Sending":
        with self.world.calm():
            self.publisher.initialize(self.asked.append, self._arrive)
            self.world.sleep(SOON)
        return self

    def send(self, topic: str, messages: int) -> None:
        """One thread's messages on its own topic."""
        for link in self._history.some(messages, topic):
            self._numbers[topic] = sequence = self._numbers.get(topic, 0) + 1
            self.publisher.send_event(Envelope("api-1", UUID, topic, sequence, [Message(link, 1, 1)]))

    def subscribe(self, nonce: str) -> None:
        self.xpub.arrive(codec.hello_request_frame(nonce, ["t"]))

    def sent(self, topic: str) -> list[int]:
        """The sent sequences of a topic, in order."""
        envelopes = [
            codec.decode((plain(head) if is_bucketed(head) else head, body), Limits()) for head, body in self.xpub.sent
        ]
        return [
            each.sequence + number for each in envelopes if each.topic == topic for number in range(len(each.messages))
        ]

    def check_all_left(self, **topics: int) -> None:
        def all_left() -> bool:
            return all(len(self.sent(topic)) >= number for topic, number in topics.items())

        self.world.until(all_left, "every message that was accepted", SOON)
        for topic, number in topics.items():
            sequences = self.sent(topic)
            self.world.check(sequences == list(range(1, number + 1)), f"of {topic!r} left {sequences}")

    def _arrive(self) -> None:
        self.arrivals += 1


def test_publisher_sends_accepted_messages_at_once_and_in_order() -> None:
    def scenario(world: World) -> None:
        bench = Sending(world).started()
        world.together(lambda: bench.send("t", 2), lambda: bench.send("u", 2), lambda: bench.subscribe("n1"))
        bench.check_all_left(t=2, u=2)
        world.until(lambda: [ask.nonce for ask in bench.asked] == ["n1"], "the hello request", SOON)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_publisher_reads_hello_requests_received_during_a_send() -> None:
    def scenario(world: World) -> None:
        bench = Sending(world).started()

        def send() -> None:
            for _ in range(2):
                bench.send("t", 1)
                world.sleep(0.001)  # so that the queue is empty again, and the caller sends the next message itself

        world.together(send, lambda: bench.subscribe("n1"), lambda: bench.subscribe("n2"))
        world.until(lambda: {ask.nonce for ask in bench.asked} == {"n1", "n2"}, "the hello requests", SOON)
        bench.check_all_left(t=2)

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(150))


def test_publisher_reads_all_of_many_hello_requests() -> None:
    def scenario(world: World) -> None:
        bench = Sending(world).started()
        world.replace("pubsub_zmq.publisher", "_SUBSCRIPTIONS", 1)
        world.together(lambda: bench.subscribe("n1"), lambda: bench.subscribe("n2"), lambda: bench.subscribe("n3"))
        world.until(lambda: {ask.nonce for ask in bench.asked} == {"n1", "n2", "n3"}, "the hello requests", SOON)

    explore(scenario, deviations=DEEP)


def test_publisher_reports_connections_at_once() -> None:
    def scenario(world: World) -> None:
        bench = Sending(world).started()

        def arrive() -> None:
            world.scheduler.point("a subscriber is connected")
            bench.publisher.monitor.add(int(zmq.EVENT_HANDSHAKE_SUCCEEDED), ADDRESS)

        world.together(arrive, lambda: bench.send("t", 1))
        world.until(lambda: bench.arrivals, "on_connected", SOON)

    explore(scenario, deviations=2)


def test_senders_continue_when_a_full_queue_has_room() -> None:
    def scenario(world: World) -> None:
        bench = Sending(world, ZmqOptions(send_queue=1)).started()
        began = world.now
        world.together(lambda: bench.send("t", 2), lambda: bench.send("u", 2), lambda: bench.send("v", 1))
        world.check(world.now - began <= SOON, f"senders waited {world.now - began:g} s")
        bench.check_all_left(t=2, u=2, v=1)

    explore(scenario, seeds=range(100))


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("hellos", [False, True])
def test_closed_publisher_sends_accepted_messages_and_ends(hellos: bool) -> None:
    def scenario(world: World) -> None:
        bench = Sending(world).started()
        accepted = 0

        def send() -> None:
            nonlocal accepted
            try:
                if hellos:
                    bench.publisher.send_event(hello(Heads(bench._history.point, {})))
                else:
                    bench.send("t", 1)
            except TransportError:
                return
            accepted += 1

        def close() -> None:
            began = world.now
            bench.publisher.close()
            world.check(world.now - began <= SOON, f"close() took {world.now - began:g} s")

        world.together(send, close, lambda: bench.subscribe("n1"))
        world.check(len(bench.xpub.sent) == accepted, f"{accepted} were accepted, {len(bench.xpub.sent)} left")
        for thread in bench.publisher._threads:
            world.check(not thread.is_alive(), f"{thread.name} runs after close()")
        world.check(bench.xpub.closed, "the socket is open")

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(100))
