"""The suite finds faults of the NATS driver: each broken variant of it fails the check for its fault."""

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from _broker import NatsServer

from pubsub_lib.api import DriverSettings, OnConnected, OnEnvelope, OnHelloRequest, Publisher, Subscriber
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_nats.client import NatsClient, access
from pubsub_nats.connection import Connection
from pubsub_nats.driver import NatsDriver
from pubsub_nats.options import checked
from pubsub_nats.publisher import NatsPublisher
from pubsub_nats.subscriber import NatsSubscriber
from tests.conformance.nats_wire import server
from tests.conformance.test_nats import CONFIGURATION, rig_of


def only_once(connection: Connection) -> None:
    """Make the half end when its connection is lost."""
    real = connection._one_of

    async def one_of(servers: list[str]) -> bool:
        made = await real(servers)
        if made:
            connection._stop()
        return made

    connection._one_of = one_of  # type: ignore[method-assign]


class NeverConnectsAgain(NatsSubscriber):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        only_once(self._connection)


class PublisherNeverConnectsAgain(NatsPublisher):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        only_once(self._connection)


class ForgetsItsSubscriptions(NatsSubscriber):
    async def _open(self, client: NatsClient) -> None:
        if self._connection.counts["connected"]:
            self._topics.clear()
        await super()._open(client)


class ForgetsRegistrationsWhileDisconnected(NatsSubscriber):
    def register_topic(self, topic: str) -> None:
        if self._connection.is_connected or not self._connection.counts["connected"]:
            super().register_topic(topic)


class ReportsTheFirstConnectionOnly(NatsSubscriber):
    def _mark(self) -> None:
        if self._connection.counts["connected"] == 1:
            super()._mark()


class PublisherReportsTheFirstConnectionOnly(NatsPublisher):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        def first() -> None:
            if self._connection.counts["connected"] == 1:
                on_connected()

        super().initialize(on_hello_request, first)


class ReportsAConnectionTooEarly(NatsSubscriber):
    async def _open(self, client: NatsClient) -> None:
        NatsSubscriber._mark(self)
        await asyncio.sleep(0.2)
        await super()._open(client)

    def _mark(self) -> None:
        pass


class DeliversEveryTopic(NatsSubscriber):
    async def _subscribe(self, client: NatsClient) -> None:
        if not self._subscribed:
            self._subscribed[ALL] = await client.subscribe(self._subjects.pattern(ALL), cb=self._take)


class SubscribesToOneTopicTwice(NatsSubscriber):
    async def _subscribe(self, client: NatsClient) -> None:
        for topic in self._topics - self._subscribed.keys():
            self._subscribed[topic] = await client.subscribe(self._subjects.pattern(topic), cb=self._take)


class ReceivesAllHelloReplies(NatsSubscriber):
    async def _open(self, client: NatsClient) -> None:
        await super()._open(client)
        await client.subscribe(self._subjects.inbox(">"), cb=self._take)


class DropsSilently(NatsSubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        def some(envelope: Envelope) -> None:
            kept = [each for each in envelope.messages if each.link.point.position % 5]
            if kept or envelope.hello is not None:
                on_envelope(msgspec.structs.replace(envelope, messages=kept))

        super().initialize(some, on_connected)


class EndsOnABadFrame(NatsSubscriber):
    def _receive(self) -> None:
        def drop(error: Exception) -> None:
            self._life.closed = True

        self._life.drop = drop  # type: ignore[method-assign]
        super()._receive()


class LeaksAForeignException(NatsSubscriber):
    def register_topic(self, topic: str) -> None:
        topic.encode()  # raises UnicodeEncodeError
        super().register_topic(topic)


class Reorders(NatsPublisher):
    held: tuple[tuple[bytes, bytes], ...] = ()

    async def _publish(self, client: NatsClient, packed: list[tuple[bytes, bytes]]) -> None:
        self.held += tuple(packed)
        while len(self.held) > 1:  # each frame waits for the next one
            first, second, *rest = self.held
            await super()._publish(client, [second, first])
            self.held = tuple(rest)


class SendsInAChild(NatsPublisher):
    def send_event(self, envelope: Envelope) -> None:
        self._life.process = os.getpid()
        super().send_event(envelope)


class LeaksWithoutAConnection(NatsPublisher):
    def send_event(self, envelope: Envelope) -> None:
        if not self._connection.is_connected:
            raise BrokenPipeError("no connection")
        super().send_event(envelope)


class BlocksWhileDisconnected(NatsPublisher):
    def send_event(self, envelope: Envelope) -> None:
        until = time.monotonic() + 3
        while not self._connection.is_connected and time.monotonic() < until and not self._life.closed:
            time.sleep(0.01)
        super().send_event(envelope)


class ClosesWithItsConnection(NatsPublisher):
    def close(self) -> None:
        until = time.monotonic() + 5
        while not self._life.closed and not self._connection.is_connected and time.monotonic() < until:
            time.sleep(0.01)
        super().close()


class IgnoresHelloRequests(NatsPublisher):
    async def _take(self, request: Any) -> None:
        pass


BROKEN: dict[str, tuple[type[Any], str]] = {
    "never connects again": (NeverConnectsAgain, "test_both_halves_must_connect_again_by_themselves"),
    "publisher never connects again": (
        PublisherNeverConnectsAgain,
        "test_both_halves_must_connect_again_by_themselves",
    ),
    "forgets its subscriptions": (ForgetsItsSubscriptions, "test_every_topic_must_be_subscribed_to_again"),
    "forgets registrations while disconnected": (
        ForgetsRegistrationsWhileDisconnected,
        "test_every_topic_must_be_subscribed_to_again",
    ),
    "reports the first connection only": (
        ReportsTheFirstConnectionOnly,
        "test_on_connected_must_be_called_at_each_connection",
    ),
    "publisher reports the first connection only": (
        PublisherReportsTheFirstConnectionOnly,
        "test_on_connected_must_be_called_at_each_connection",
    ),
    "reports a connection too early": (
        ReportsAConnectionTooEarly,
        "test_on_connected_must_come_when_a_hello_request_is_answered",
    ),
    "delivers every topic": (DeliversEveryTopic, "test_register_topic_must_be_exact"),
    "subscribes to one topic twice": (SubscribesToOneTopicTwice, "test_register_topic_must_be_idempotent"),
    "receives all hello replies": (ReceivesAllHelloReplies, "test_request_hello_must_be_answered_to_the_asker_alone"),
    "drops silently": (DropsSilently, "test_send_event_must_not_lose_an_envelope_silently"),
    "ends on a bad frame": (EndsOnABadFrame, "test_bad_input_must_be_counted_by_reason_and_never_end_the_thread"),
    "leaks a foreign exception": (LeaksAForeignException, "test_register_topic_must_raise_no_foreign_exception"),
    "reorders undeclared": (Reorders, "test_send_event_must_keep_the_order_of_a_topic"),
    "sends in a child": (SendsInAChild, "test_send_event_must_be_refused_in_a_forked_child"),
    "leaks without a connection": (
        LeaksWithoutAConnection,
        "test_send_event_must_raise_transport_errors_alone_and_not_block_while_cut_off",
    ),
    "blocks while disconnected": (
        BlocksWhileDisconnected,
        "test_send_event_must_raise_transport_errors_alone_and_not_block_while_cut_off",
    ),
    "closes with its connection": (ClosesWithItsConnection, "test_close_must_be_quick_while_cut_off"),
    "ignores hello requests": (IgnoresHelloRequests, "test_on_hello_request_may_send_and_its_errors_must_be_caught"),
}


def driver_of(broken: type[Any]) -> type[NatsDriver]:
    class Broken(NatsDriver):
        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            kind = broken if issubclass(broken, NatsPublisher) else NatsPublisher
            return kind(access(checked(settings.options)), settings.limits)

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            kind = broken if issubclass(broken, NatsSubscriber) else NatsSubscriber
            return kind(access(checked(settings.options)), settings.limits)

    return Broken


@pytest.fixture(scope="module")
def nats_server() -> Iterator[NatsServer]:
    with server(CONFIGURATION) as made:
        yield made


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_nats_driver_fails(fault: str, nats_server: NatsServer) -> None:
    broken, check = BROKEN[fault]
    failed = pytest.raises((AssertionError, pytest.fail.Exception, BrokenPipeError))
    with rig_of(nats_server, driver_of(broken), patience=2.0) as rig, failed:
        getattr(DriverConformance(), check)(rig)


@pytest.mark.parametrize("check", sorted({check for _, check in BROKEN.values()}))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str, nats_server: NatsServer) -> None:
    with rig_of(nats_server, driver_of(NatsPublisher)) as rig:
        getattr(DriverConformance(), check)(rig)
