"""The suite finds faults of connections: each broken driver over a broker fails the check for its fault."""

import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from pubsub_lib.api import OnConnected
from pubsub_lib.core import codec
from pubsub_lib.core.model import ALL
from pubsub_lib.testing.checks import CLOSE_SECONDS, ROOM, SEND_SECONDS
from pubsub_lib.testing.connection_conformance import MUCH
from tests.conformance.broken import OVERDUE
from tests.conformance.tcp_broker import packet
from tests.conformance.tcp_driver import TcpPublisher, TcpSubscriber
from tests.conformance.test_tcp import rig_of
from tests.conformance.trial import AGAIN, ANSWERED, CHANNEL, SUBSCRIBED, SUBSCRIBED_BEFORE, Table, fails, of_any

LATE = 0.3  # seconds: more than a publisher needs to connect again, and less than the patience of a check


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


class SubscribesAfterOnConnected(TcpSubscriber):
    """At each connection but the first, where the topics follow later."""

    hasty = True
    connections = 0
    late = 5.0
    """Seconds: far more than the patience of the check, whose links must not come after a pause of the machine."""
    timer: threading.Timer | None = None

    def greeting(self) -> bytes:
        self.connections += 1
        if self.connections == 1:
            return super().greeting()
        with self._lock:
            prefixes = self._subscriptions.prefixes()
        hidden = {codec.subscription(topic) for topic in ("tenant-1", "tenant-2")}
        later = b"".join(packet(b"S", each) for each in hidden)
        self.cancel()
        self.timer = timer = threading.Timer(self.late, self.write_late, (later,))
        timer.daemon = True
        timer.start()
        return b"".join(packet(b"S", each) for each in prefixes if each not in hidden) + packet(b"Y")

    def write_late(self, packets: bytes) -> None:
        with suppress(OSError):  # closed
            self.wire.write(packets)

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def close(self) -> None:
        super().close()
        self.cancel()


class OpensItsChannelLate(TcpPublisher):
    """Hello requests do not arrive yet when ``initialize`` returns."""

    def greeting(self) -> bytes:
        threading.Timer(LATE, self.write_late).start()
        return packet(b"Y")

    def write_late(self) -> None:
        with suppress(OSError):  # closed
            self.wire.write(packet(b"P"))


class WaitsForAPeer(TcpPublisher):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.wire.send_seconds = SEND_SECONDS + ROOM + OVERDUE


class FlushesAtItsClose(TcpPublisher):
    """Its close ends when the broker has read a large packet."""

    def close(self) -> None:
        until = time.monotonic() + CLOSE_SECONDS + ROOM + OVERDUE
        while not self._life.closed and time.monotonic() < until:
            try:
                self.wire.write(packet(b"U", bytes(MUCH)))
                break
            except OSError:
                time.sleep(0.01)
        super().close()


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
    "subscribes after on_connected": (SubscribesAfterOnConnected, SUBSCRIBED_BEFORE),
    "opens its channel late": (OpensItsChannelLate, CHANNEL),
    "waits for a peer": (WaitsForAPeer, "test_send_event_must_not_block_while_peers_read_nothing"),
    "flushes at its close": (FlushesAtItsClose, "test_close_must_be_quick_while_peers_read_nothing"),
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
