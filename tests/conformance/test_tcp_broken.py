"""The suite finds faults of connections: each broken driver over a broker fails the check for its fault."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from pubsub_lib.api import OnConnected
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import TransportError
from pubsub_lib.testing.conformance import DriverConformance
from tests.conformance.tcp_broker import packet
from tests.conformance.tcp_driver import TcpDriver, TcpPublisher, TcpSubscriber
from tests.conformance.test_tcp import rig_of


def only_once(half: TcpPublisher | TcpSubscriber) -> None:
    """Make the half stop when its connection is lost."""
    half.wire.pause = half.wire.stopped.set  # type: ignore[method-assign]


class NeverConnectsAgain(TcpSubscriber):
    def notify(self) -> None:
        only_once(self)
        super().notify()


class PublisherNeverConnectsAgain(TcpPublisher):
    def notify(self, on_connected: OnConnected) -> None:
        only_once(self)
        super().notify(on_connected)


class ForgetsItsSubscriptions(TcpSubscriber):
    connections = 0

    def greeting(self) -> bytes:
        self.connections += 1
        hellos = packet(b"S", codec.topic_frame(ALL)) + packet(b"Y")
        return super().greeting() if self.connections == 1 else hellos


class ForgetsRegistrationsWhileDisconnected(TcpSubscriber):
    def register_topic(self, topic: str) -> None:
        super().register_topic(topic)
        try:
            self.wire.write(b"")
        except OSError:
            self._subscriptions.discard(topic)


class IgnoresUnregistrationsWhileDisconnected(TcpSubscriber):
    def unregister_topic(self, topic: str) -> None:
        super().unregister_topic(topic)
        try:
            self.wire.write(b"")
        except OSError:
            self._subscriptions.add(topic)


class LeaksAForeignException(TcpPublisher):
    def send_event(self, envelope: Envelope) -> None:
        try:
            super().send_event(envelope)
        except TransportError as error:
            if error.__cause__ is not None:
                raise error.__cause__ from None
            raise


class BlocksWhileDisconnected(TcpPublisher):
    def send_event(self, envelope: Envelope) -> None:
        until = time.monotonic() + 3
        while True:
            try:
                super().send_event(envelope)
            except TransportError:
                if time.monotonic() > until or self._life.closed:
                    raise
                self.wire.pause()
            else:
                return


class ReportsTheFirstConnectionOnly(TcpSubscriber):
    connections = 0

    def notify(self) -> None:
        self.connections += 1
        if self.connections == 1:
            super().notify()


class PublisherReportsTheFirstConnectionOnly(TcpPublisher):
    connections = 0

    def notify(self, on_connected: OnConnected) -> None:
        self.connections += 1
        if self.connections == 1:
            super().notify(on_connected)


class ReportsAConnectionTooEarly(TcpSubscriber):
    def greeting(self) -> bytes:
        wire, self.wire = self.wire, None  # type: ignore[assignment]
        try:
            self.life.connected()
        finally:
            self.wire = wire
        return super().greeting()

    def notify(self) -> None:
        pass

    def request_hello(self, nonce: str, topics: Any) -> None:
        if self.wire is not None:  # otherwise the hello request is lost
            super().request_hello(nonce, topics)


class EndsAtAnOnConnectedError(TcpSubscriber):
    def notify(self) -> None:
        before = self.life.counts["callback_errors"]
        super().notify()
        if self.life.counts["callback_errors"] > before:
            self.wire.stop()
            raise ConnectionAbortedError(
                "ended"
            )  # at once: otherwise packets received already would still be delivered


class CountsNoErrorOfOnConnected(TcpPublisher):
    def counters(self) -> Mapping[str, int]:
        return {**super().counters(), "callback_errors": 0}


class NeedsTheBrokerAtItsStart(TcpSubscriber):
    def daemonize(self) -> None:
        with self.wire._connected(lambda: b""):
            super().daemonize()


class WaitsForTheBrokerInClose(TcpPublisher):
    def close(self) -> None:
        until = time.monotonic() + 5
        while not self._life.closed and time.monotonic() < until:
            try:
                self.wire.write(b"")
            except OSError:
                self.wire.pause()
            else:
                break
        super().close()


BROKEN: dict[str, tuple[type[Any], str]] = {
    # Four faults that an earlier suite did not find.
    "never connects again": (NeverConnectsAgain, "test_both_halves_must_connect_again_by_themselves"),
    "forgets its subscriptions": (ForgetsItsSubscriptions, "test_every_topic_must_be_subscribed_to_again"),
    "publisher never connects again": (
        PublisherNeverConnectsAgain,
        "test_both_halves_must_connect_again_by_themselves",
    ),
    "leaks a foreign exception": (
        LeaksAForeignException,
        "test_send_event_must_raise_transport_errors_alone_and_not_block_while_cut_off",
    ),
    # Other faults of the same kind.
    "forgets registrations while disconnected": (
        ForgetsRegistrationsWhileDisconnected,
        "test_every_topic_must_be_subscribed_to_again",
    ),
    "forgets its subscription to everything": (
        ForgetsItsSubscriptions,
        "test_everything_must_be_subscribed_to_again",
    ),
    "ignores unregistrations while disconnected": (
        IgnoresUnregistrationsWhileDisconnected,
        "test_a_topic_unregistered_while_cut_off_must_not_come_back",
    ),
    "blocks while disconnected": (
        BlocksWhileDisconnected,
        "test_send_event_must_raise_transport_errors_alone_and_not_block_while_cut_off",
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
    "ends at an on_connected error": (
        EndsAtAnOnConnectedError,
        "test_what_on_connected_raises_must_be_counted_and_not_end_the_thread",
    ),
    "counts no error of on_connected": (
        CountsNoErrorOfOnConnected,
        "test_what_on_connected_raises_must_be_counted_and_not_end_the_thread",
    ),
    "needs the broker at its start": (NeedsTheBrokerAtItsStart, "test_daemonize_must_not_need_a_connection"),
    "waits for the broker in close": (WaitsForTheBrokerInClose, "test_close_must_be_quick_while_cut_off"),
}


def driver_of(half: type[Any]) -> type[TcpDriver]:
    class Broken(TcpDriver):
        publisher_kind = half if issubclass(half, TcpPublisher) else TcpPublisher
        subscriber_kind = half if issubclass(half, TcpSubscriber) else TcpSubscriber

    return Broken


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_driver_over_a_broker_fails(fault: str) -> None:
    half, check = BROKEN[fault]
    failed = pytest.raises((AssertionError, OSError, pytest.fail.Exception))
    with rig_of(driver_of(half), patience=1.5) as rig, failed:
        getattr(DriverConformance(), check)(rig)
