"""The suite finds faults of the ZeroMQ driver: each broken variant of it fails the check for its fault."""

import math
import threading
from collections.abc import Iterable

import pytest
import zmq
from _processes import poll

from pubsub_lib.api import OnConnected, OnHelloRequest
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import HelloRequest
from pubsub_zmq.publisher import ZmqPublisher
from pubsub_zmq.receiver import Receiver
from pubsub_zmq.sockets import Monitor, Waker
from tests.conformance.test_zmq import rig_on, tcp_addresses
from tests.conformance.trial import AGAIN, ALONE, BAD_INPUT, EXACT, SUBSCRIBED, Table, checks, fails, of_any, passes

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


class NeverConnectsAgain(Receiver):
    """Gives up each connection that was cut."""

    rig_cut: threading.Event

    def _receive(self, events: Iterable[tuple[int, str, int]]) -> None:
        received = list(events)
        if self.rig_cut.is_set():
            lost = {address for event, address, _ in received if event == zmq.EVENT_DISCONNECTED}
            self._orders.extend(("disconnect", address) for address in lost)
        super()._receive(received)


class ForgetsItsSubscriptions(Receiver):
    """As a driver that must subscribe again on each connection, and does not."""

    rig_cut: threading.Event

    def _receive(self, events: Iterable[tuple[int, str, int]]) -> None:
        received = list(events)
        if self.rig_cut.is_set() and any(event == zmq.EVENT_DISCONNECTED for event, _, _ in received):
            self._orders.extend(("unsubscribe", topic) for topic in ("", "tenant-1", "tenant-2", "tenant-3"))
        super()._receive(received)


BROKEN: Table = {
    **of_any(
        "reports the first connection only",
        "publisher reports no connection",
        "leaks without a connection",
        "drops silently",
        "ends on a bad frame",
        "leaks a foreign exception",
        "reorders undeclared",
        "sends in a child",
        "ignores hello requests",
        "ignores addresses",
        "keeps addresses",
        "names another address",
    ),
    "delivers a neighbouring topic": (SubscribesWithoutNul, EXACT),
    "receives all hello replies": ((ReceivesAllHelloReplies, AnswersWhenAllAreConnected), ALONE),
    "never recovers": (NeverRecovers, BAD_INPUT),
    "never connects again": (NeverConnectsAgain, AGAIN),
    "forgets its subscriptions": (ForgetsItsSubscriptions, SUBSCRIBED),
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_zmq_driver_fails(fault: str) -> None:
    with rig_on(tcp_addresses()) as rig:
        fails(BROKEN, fault, rig)


@pytest.mark.parametrize("check", checks(BROKEN))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str) -> None:
    with rig_on(tcp_addresses()) as rig:
        passes(rig, check)
