"""The suite finds faults of connections: each broken driver over a broker fails the check for its fault."""

from typing import Any

import pytest

from pubsub_lib.api import OnConnected
from pubsub_lib.core import codec
from pubsub_lib.core.model import ALL
from tests.conformance.tcp_broker import packet
from tests.conformance.tcp_driver import TcpPublisher, TcpSubscriber
from tests.conformance.test_tcp import rig_of
from tests.conformance.trial import AGAIN, ANSWERED, SUBSCRIBED, Table, fails, of_any


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


class ReportsAConnectionTooEarly(TcpSubscriber):
    hasty = True  # the check waits before its hello request is sent

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


BROKEN: Table = {
    **of_any(
        "leaks without a connection",
        "forgets registrations while disconnected",
        "ignores unregistrations while disconnected",
        "blocks while disconnected",
        "reports the first connection only",
        "publisher reports the first connection only",
        "publisher counts no error of on_connected",
        "needs the server at its start",
        "closes with its connection",
    ),
    "never connects again": (NeverConnectsAgain, AGAIN),
    "publisher never connects again": (PublisherNeverConnectsAgain, AGAIN),
    "forgets its subscriptions": (ForgetsItsSubscriptions, SUBSCRIBED),
    "forgets its subscription to everything": (
        ForgetsItsSubscriptions,
        "test_everything_must_be_subscribed_to_again",
    ),
    "reports a connection too early": (ReportsAConnectionTooEarly, ANSWERED),
    "ends at an on_connected error": (
        EndsAtAnOnConnectedError,
        "test_what_on_connected_raises_must_be_counted_and_not_end_the_thread",
    ),
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_driver_over_a_broker_fails(fault: str) -> None:
    with rig_of() as rig:
        fails(BROKEN, fault, rig)
