"""The suite finds faults of the ZeroMQ driver: each broken variant of it fails the check for its fault."""

import math
import os
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
import zmq
from _processes import poll

from pubsub_lib.api import DriverSettings, OnConnected, OnEnvelope, OnHelloRequest, Publisher, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.send_queue import QueuedMessage, SendQueue
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_zmq.driver import ZmqDriver
from pubsub_zmq.options import checked
from pubsub_zmq.publisher import ZmqPublisher
from pubsub_zmq.receiver import Receiver
from pubsub_zmq.sockets import Monitor, Waker
from pubsub_zmq.subscriber import ZmqSubscriber
from tests.conformance.test_zmq import rig_on, tcp_addresses

Socket = zmq.Socket[bytes]


class SubscribesWithoutNul(Receiver):
    def _carry_out(self, sub: Socket) -> None:
        for order, what in list(self._orders):
            if order == "subscribe":
                sub.subscribe(codec.subscription(what).rstrip(b"\0"))
        super()._carry_out(sub)


class ReceivesAllHelloReplies(Receiver):
    def _carry_out(self, sub: Socket) -> None:
        sub.subscribe(b"H")
        super()._carry_out(sub)


class AnswersWhenAllAreConnected(ZmqPublisher):
    """Not broken: replies only when the check's three subscribers are connected, so that all could receive it."""

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        def patient(ask: HelloRequest) -> None:
            poll(lambda: self.counters()["connected"] >= 3, 1.0)
            on_hello_request(ask)

        super().initialize(patient, on_connected)


class NeverRecovers(Receiver):
    """Does not reconnect after a frame over ``ZMQ_MAXMSGSIZE``."""

    def run(
        self,
        context: "zmq.Context[Socket]",
        sub: Socket,
        monitor: Monitor,
        waker: Waker,
    ) -> None:
        sub.setsockopt(zmq.MAXMSGSIZE, self._limits.max_frame_bytes)
        super().run(context, sub, monitor, waker)

    def _keep_up(self, sub: Socket) -> float:
        return math.inf


class EndsOnABadFrame(Receiver):
    def _drain(self, sub: Socket) -> None:
        super()._drain(sub)
        if sum(self._counts[reason] for reason in ("truncated", "oversized", "version", "foreign")):
            self._life.closed = True


class NeverConnectsAgain(Receiver):
    """Neither ZeroMQ nor the driver retries a connection."""

    def run(self, context: "zmq.Context[Socket]", sub: Socket, monitor: Monitor, waker: Waker) -> None:
        sub.setsockopt(zmq.RECONNECT_IVL, -1)
        super().run(context, sub, monitor, waker)

    def _keep_up(self, sub: Socket) -> float:
        return math.inf


class ForgetsItsSubscriptions(Receiver):
    """As a driver that must subscribe again on each connection, and does not."""

    def _receive(self, events: Iterable[tuple[int, str, int]]) -> None:
        received = list(events)
        if any(event == zmq.EVENT_DISCONNECTED for event, _, _ in received):
            self._orders.extend(("unsubscribe", topic) for topic in ("", "tenant-1", "tenant-2", "tenant-3"))
        super()._receive(received)


class ReportsTheFirstConnectionOnly(Receiver):
    reported = False

    def _receive(self, events: Iterable[tuple[int, str, int]]) -> None:
        connected, self._life.connected = self._life.connected, lambda: None  # type: ignore[method-assign]
        before = self._health.counts["connected"]
        super()._receive(events)
        self._life.connected = connected  # type: ignore[method-assign]
        if not self.reported and self._health.counts["connected"] > before:
            self.reported = True
            connected()


class PublisherReportsNoConnection(ZmqPublisher):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        super().initialize(on_hello_request, lambda: None)


class LeaksWithoutSubscribers(ZmqPublisher):
    def send_event(self, envelope: Envelope) -> None:
        counters = self.counters()
        if counters["disconnected"] and counters["disconnected"] >= counters["connected"]:
            raise BrokenPipeError("no subscriber")
        super().send_event(envelope)


class DropsSilently(ZmqSubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        def some(envelope: Envelope) -> None:
            kept = [each for each in envelope.messages if each.link.point.position % 5]
            if kept or envelope.hello is not None:
                on_envelope(msgspec.structs.replace(envelope, messages=kept))

        super().initialize(some, on_connected)


class LeaksForeignException(ZmqSubscriber):
    def register_topic(self, topic: str) -> None:
        topic.encode()  # raises UnicodeEncodeError
        super().register_topic(topic)


class Reorders(ZmqPublisher):
    held: tuple[QueuedMessage, ...] = ()

    def _send(self, xpub: Socket, outbox: SendQueue) -> None:
        self.held += tuple(outbox.take())
        while len(self.held) > 1:  # each message waits for the next one
            first, second, *rest = self.held
            for one in (second, first):
                xpub.send_multipart((one.head, one.body))
            self.held = tuple(rest)


class SendsInAChild(ZmqPublisher):
    def send_event(self, envelope: Envelope) -> None:
        self._life.process = os.getpid()
        super().send_event(envelope)


class IgnoresHelloRequests(ZmqPublisher):
    def _receive(self, xpub: Socket) -> bool:
        while xpub.poll(0):
            xpub.recv()
        return False


BROKEN: dict[str, tuple[type[Any], str]] = {
    "delivers a neighbouring topic": (SubscribesWithoutNul, "test_register_topic_must_be_exact"),
    "receives all hello replies": (ReceivesAllHelloReplies, "test_request_hello_must_be_answered_to_the_asker_alone"),
    "never recovers": (NeverRecovers, "test_bad_input_must_be_counted_by_reason_and_never_end_the_thread"),
    "never connects again": (NeverConnectsAgain, "test_both_halves_must_connect_again_by_themselves"),
    "forgets its subscriptions": (ForgetsItsSubscriptions, "test_every_topic_must_be_subscribed_to_again"),
    "reports the first connection only": (
        ReportsTheFirstConnectionOnly,
        "test_on_connected_must_be_called_at_each_connection",
    ),
    "publisher reports no connection": (
        PublisherReportsNoConnection,
        "test_on_connected_must_be_called_at_each_connection",
    ),
    "leaks without subscribers": (
        LeaksWithoutSubscribers,
        "test_send_event_must_raise_transport_errors_alone_and_not_block_while_cut_off",
    ),
    "ends on a bad frame": (EndsOnABadFrame, "test_bad_input_must_be_counted_by_reason_and_never_end_the_thread"),
    "drops silently": (DropsSilently, "test_send_event_must_not_lose_an_envelope_silently"),
    "leaks a foreign exception": (LeaksForeignException, "test_register_topic_must_raise_no_foreign_exception"),
    "reorders undeclared": (Reorders, "test_send_event_must_keep_the_order_of_a_topic"),
    "sends in a child": (SendsInAChild, "test_send_event_must_be_refused_in_a_forked_child"),
    "ignores hello requests": (IgnoresHelloRequests, "test_on_hello_request_may_send_and_its_errors_must_be_caught"),
}


def driver_of(broken: type[Any]) -> type[ZmqDriver]:
    class Broken(ZmqDriver):
        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            usual = AnswersWhenAllAreConnected if broken is ReceivesAllHelloReplies else ZmqPublisher
            kind = broken if issubclass(broken, ZmqPublisher) else usual
            return kind(settings.bind_address, settings.limits, checked(settings.options))

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            kind = broken if issubclass(broken, ZmqSubscriber) else ZmqSubscriber
            made: ZmqSubscriber = kind(settings.addresses, settings.limits, checked(settings.options))
            if issubclass(broken, Receiver):
                made._receiver = broken(
                    settings.limits, checked(settings.options), made._orders, made._parts, made._life
                )
            return made

    return Broken


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_zmq_driver_fails(fault: str) -> None:
    broken, check = BROKEN[fault]
    failed = pytest.raises((AssertionError, pytest.fail.Exception))
    with rig_on(tcp_addresses(), driver_of(broken), patience=2.0) as rig, failed:
        getattr(DriverConformance(), check)(rig)


@pytest.mark.parametrize("check", sorted({check for _, check in BROKEN.values()}))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str) -> None:
    with rig_on(tcp_addresses(), driver_of(ZmqPublisher)) as rig:
        getattr(DriverConformance(), check)(rig)
