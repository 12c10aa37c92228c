"""The suite finds faults of the Redis driver: each broken variant of it fails the check for its fault."""

import os
import socket
import time
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pytest
from _redis_server import PrivateRedis

from pubsub_lib.api import DriverSettings, OnEnvelope, Publisher, Subscriber
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.driver_state import SubscriberState
from pubsub_lib.errors import TransportError
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_redis import publisher, subscriber
from pubsub_redis.connection import Command, Link
from pubsub_redis.driver import RedisDriver
from pubsub_redis.options import checked
from pubsub_redis.publisher import RedisPublisher
from pubsub_redis.subscriber import RedisSubscriber
from tests.conformance.broken import ending_at
from tests.conformance.test_redis import rig_on


class ConnectsOnce(Link):
    def _lost(self, half: Any, error: Exception) -> None:
        super()._lost(half, error)
        self._stopped.set()


class SubscribesByPrefix(RedisSubscriber):
    def greeting(self) -> list[Command]:
        patterns: list[Command] = [("PSUBSCRIBE", self._channels.of_topic(topic) + b"*") for topic in self._topics]
        return [*super().greeting(), *patterns]


class DeliversTwice(RedisSubscriber):
    """Does not drop what comes for the channel when it also comes for the pattern."""

    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        self._everything = False
        super().message(kind, rest)


class ReceivesAllHelloReplies(RedisSubscriber):
    def greeting(self) -> list[Command]:
        return [*super().greeting(), ("PSUBSCRIBE", self._channels.of_inbox(b"*").replace(b"*:", b"\\*:"))]

    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        if kind != b"psubscribe":
            super().message(kind, rest)


class ForgetsItsSubscriptions(RedisSubscriber):
    connections = 0

    def greeting(self) -> list[Command]:
        self.connections += 1
        if self.connections > 1:
            self._topics.clear()
        return super().greeting()


class IgnoresUnregistrationsWhileDisconnected(RedisSubscriber):
    def unregister_topic(self, topic: str) -> None:
        if self._attached:
            super().unregister_topic(topic)


class ReportsTheFirstConnectionOnly(RedisSubscriber):
    connections = 0

    def connected(self) -> None:
        self.connections += 1
        if self.connections == 1:
            super().connected()


class PublisherReportsNoConnection(RedisPublisher):
    def connected(self) -> None:
        before, self._asks.connected = self._asks.connected, lambda: None  # type: ignore[method-assign]
        super().connected()
        self._asks.connected = before  # type: ignore[method-assign]


class ReportsAConnectionTooEarly(RedisSubscriber):
    def greeting(self) -> list[Command]:
        self._life.connected()
        return super().greeting()

    def connected(self) -> None:
        pass


class NeedsTheServerAtItsStart(RedisSubscriber):
    def daemonize(self) -> None:
        try:
            socket.create_connection((self._server.host, self._server.port), 1.0).close()
        except OSError as error:
            raise TransportError("the server is unavailable") from error
        super().daemonize()


class EndsOnABadFrame(RedisSubscriber):
    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        super().message(kind, rest)
        if sum(self._life.counts[reason] for reason in ("truncated", "oversized", "version", "foreign")):
            self._life.closed = True


class EndsAtACallbacksError(RedisSubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: Any) -> None:
        super().initialize(ending_at(SystemExit, self._life, on_envelope), on_connected)


class DropsSilently(RedisSubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: Any) -> None:
        def some(envelope: Envelope) -> None:
            kept = [each for each in envelope.messages if each.link.point.position % 5]
            if kept or envelope.hello is not None:
                on_envelope(msgspec.structs.replace(envelope, messages=kept))

        super().initialize(some, on_connected)


class CallsBackAfterItsClose(RedisSubscriber):
    """``close`` ends nothing, and so does not wait for the thread."""

    def close(self) -> None:
        if not self._life.inherited:
            before = self._life
            before.close(lambda: None, 0.0)
            self._life = SubscriberState(self._lock, subscriber._log, ("unsent_requests",))
            self._life._on_envelope = before._on_envelope


class LeaksAForeignException(RedisPublisher):
    def send_event(self, envelope: Envelope) -> None:
        self._life.check_open()
        if not self._connected:
            raise BrokenPipeError("no connection")
        super().send_event(envelope)


class BlocksWhileDisconnected(RedisPublisher):
    def send_event(self, envelope: Envelope) -> None:
        until = time.monotonic() + 3
        while True:
            try:
                super().send_event(envelope)
            except TransportError:
                if time.monotonic() > until or self._life.closed:
                    raise
                time.sleep(0.02)
            else:
                return


class Reorders(RedisPublisher):
    held: tuple[Command, ...] = ()

    def orders(self) -> Any:
        self.held += tuple(super().orders())
        if len(self.held) < 2:
            return []
        taken, self.held = self.held[::-1], ()
        return list(taken)


class SendsInAChild(RedisPublisher):
    def send_event(self, envelope: Envelope) -> None:
        self._life.process = os.getpid()
        super().send_event(envelope)


class IgnoresHelloRequests(RedisPublisher):
    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        pass


class AnswersEverybody(RedisPublisher):
    """Not to the requester alone: the reply goes to all subscribers of the topic."""

    def send_event(self, envelope: Envelope) -> None:
        if envelope.hello is not None and envelope.hello.nonce:
            self._channels.of_inbox = lambda inbox: self._channels.of_topic("tenant-1")  # type: ignore[method-assign]
        super().send_event(envelope)


class AcceptsEveryFrame(RedisSubscriber):
    """With :class:`AnswersEverybody`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._channels.fits = lambda channel, head: True  # type: ignore[method-assign]


class DropsHelloRequests(RedisSubscriber):
    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        self._life.check_open()


EXACT = "test_register_topic_must_be_exact"
ALONE = "test_request_hello_must_be_answered_to_the_asker_alone"
AGAIN = "test_both_halves_must_connect_again_by_themselves"
CUT_OFF = "test_send_event_must_raise_transport_errors_alone_and_not_block_while_cut_off"
CONNECTED = "test_on_connected_must_be_called_at_each_connection"
BROKEN: dict[str, tuple[tuple[type[Any], ...], str]] = {
    "delivers a neighbouring topic": ((SubscribesByPrefix,), EXACT),
    "delivers twice": ((DeliversTwice,), "test_register_topic_must_be_idempotent"),
    "receives all hello replies": ((ReceivesAllHelloReplies,), ALONE),
    "answers everybody": ((AnswersEverybody, AcceptsEveryFrame), ALONE),
    "drops hello requests": ((DropsHelloRequests,), ALONE),
    "ignores hello requests": ((IgnoresHelloRequests,), "test_on_hello_request_may_send_and_its_errors_must_be_caught"),
    "connects once": ((ConnectsOnce,), AGAIN),
    "forgets its subscriptions": ((ForgetsItsSubscriptions,), "test_every_topic_must_be_subscribed_to_again"),
    "forgets everything": ((ForgetsItsSubscriptions,), "test_everything_must_be_subscribed_to_again"),
    "ignores unregistrations while disconnected": (
        (IgnoresUnregistrationsWhileDisconnected,),
        "test_a_topic_unregistered_while_cut_off_must_not_come_back",
    ),
    "reports the first connection only": ((ReportsTheFirstConnectionOnly,), CONNECTED),
    "publisher reports no connection": ((PublisherReportsNoConnection,), CONNECTED),
    "reports a connection too early": (
        (ReportsAConnectionTooEarly,),
        "test_on_connected_must_come_when_a_hello_request_is_answered",
    ),
    "needs the server at its start": ((NeedsTheServerAtItsStart,), "test_daemonize_must_not_need_a_connection"),
    "ends on a bad frame": (
        (EndsOnABadFrame,),
        "test_bad_input_must_be_counted_by_reason_and_never_end_the_thread",
    ),
    "ends at a callback's error": (
        (EndsAtACallbacksError,),
        "test_what_on_envelope_raises_must_be_counted_and_not_end_the_thread",
    ),
    "drops silently": ((DropsSilently,), "test_send_event_must_not_lose_an_envelope_silently"),
    "calls back after its close": (
        (CallsBackAfterItsClose,),
        "test_on_envelope_must_not_be_called_after_close_returned",
    ),
    "leaks a foreign exception": ((LeaksAForeignException,), CUT_OFF),
    "blocks while disconnected": ((BlocksWhileDisconnected,), CUT_OFF),
    "reorders undeclared": ((Reorders,), "test_send_event_must_keep_the_order_of_a_topic"),
    "sends in a child": ((SendsInAChild,), "test_send_event_must_be_refused_in_a_forked_child"),
}


def kind_of(broken: Sequence[type[Any]], usual: type[Any]) -> Any:
    return next((each for each in broken if issubclass(each, usual)), usual)


def driver_of(broken: Sequence[type[Any]]) -> type[RedisDriver]:
    class Broken(RedisDriver):
        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            made: Publisher = kind_of(broken, RedisPublisher)(*checked(settings.options), settings.limits)
            return made

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            made: Subscriber = kind_of(broken, RedisSubscriber)(*checked(settings.options), settings.limits)
            return made

    return Broken


@pytest.fixture
def links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, _ = BROKEN[request.getfixturevalue("fault")]
    for module in (publisher, subscriber):
        monkeypatch.setattr(module, "Link", kind_of(broken, Link))


@pytest.mark.usefixtures("quiet", "links")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_redis_driver_fails(fault: str, redis_server: PrivateRedis) -> None:
    broken, check = BROKEN[fault]
    failed = pytest.raises((AssertionError, OSError, TransportError, pytest.fail.Exception))
    with rig_on(redis_server, driver_of(broken), patience=2.0) as rig, failed:
        getattr(DriverConformance(), check)(rig)
