"""The suite finds faults of the hop: each broken variant of the multi-process driver fails the check for its fault."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub_lib.api import DriverSettings, OnConnected, OnEnvelope, OnHelloRequest, Publisher, Subscriber
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.errors import TransportError
from pubsub_lib.socket_path import path_of
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_zmq.multiproc.driver import IpcDriver
from pubsub_zmq.multiproc.publisher import IpcPublisher
from pubsub_zmq.multiproc.subscriber import IpcSubscriber
from tests.conformance.broken import ending_at
from tests.conformance.test_ipc import TestIpc as IpcConformance
from tests.conformance.test_ipc import rig_in

Socket = zmq.Socket[bytes]


class SendsInAChild(IpcPublisher):
    def send_event(self, envelope: Envelope) -> None:
        self._life.process = os.getpid()
        super().send_event(envelope)


class DropsWhenFull(IpcPublisher):
    def send_event(self, envelope: Envelope) -> None:
        if self._counts["sent"] % 20 != 19:
            super().send_event(envelope)
        else:
            self._counts["sent"] += 1


class LeaksForeignException(IpcPublisher):
    def send_event(self, envelope: Envelope) -> None:
        bytes.fromhex(envelope.uuid)
        super().send_event(envelope)


class NeverConnectsAgain(IpcPublisher):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr("pubsub_zmq.multiproc.publisher._RECONNECT_MS", -1)
            super().initialize(on_hello_request, on_connected)


class CallsOnConnected(IpcPublisher):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        super().initialize(on_hello_request, on_connected)
        on_connected()


class EndsOnABadFrame(IpcSubscriber):
    def _decode(self, frames: list[bytes]) -> Envelope | None:
        envelope = super()._decode(frames)
        self._life.closed = self._life.closed or envelope is None
        return envelope


class EndsAtACallbackError(IpcSubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        super().initialize(ending_at(BaseException, self._life, on_envelope), on_connected)


class DeliversNeighbours(IpcSubscriber):
    def _wanted(self, envelope: Envelope) -> bool:
        return any(envelope.topic.startswith(topic) for topic in self._topics)


class HangsInClose(IpcSubscriber):
    def close(self) -> None:
        time.sleep(3)
        super().close()


class ClosesTheParentsSocketInAChild(IpcSubscriber):
    def close(self) -> None:
        if self._stop >= 0:
            self._life.closed = True
            os.eventfd_write(self._stop, 1)  # the parent shares it
        super().close()

    def _run(self, *given: Any) -> None:
        try:
            poller = zmq.Poller()
            poller.register(self._stop, zmq.POLLIN)
            poller.register(given[1], zmq.POLLIN)
            while not self._life.closed and self._stop not in dict(poller.poll()):
                self._take(given[1])
        finally:
            given[1].close()
            given[0].term()
            given[2].release()


BROKEN: dict[str, tuple[type[Any], str]] = {
    "sends in a child": (SendsInAChild, "test_send_event_must_be_refused_in_a_forked_child"),
    "loses silently": (DropsWhenFull, "test_send_event_must_not_lose_an_envelope_silently"),
    "leaks a foreign exception": (LeaksForeignException, "test_send_event_must_raise_no_foreign_exception"),
    "never connects again": (NeverConnectsAgain, "test_both_halves_must_connect_again_by_themselves"),
    "reports a connection": (
        CallsOnConnected,
        "test_on_connected_must_not_be_called_without_declared_connections",
    ),
    "ends on a bad frame": (EndsOnABadFrame, "test_bad_input_must_be_counted_by_reason_and_never_end_the_thread"),
    "ends at a callback error": (
        EndsAtACallbackError,
        "test_what_on_envelope_raises_must_be_counted_and_not_end_the_thread",
    ),
    "delivers a neighbouring topic": (DeliversNeighbours, "test_register_topic_must_be_exact_with_one_subscriber"),
    "hangs in close": (HangsInClose, "test_close_must_be_idempotent_quick_and_safe_from_any_thread"),
    "a child closes the parent's socket": (
        ClosesTheParentsSocketInAChild,
        "test_a_forked_child_must_not_disturb_the_parent",
    ),
}


def driver_of(half: type[Any]) -> type[IpcDriver]:
    class Broken(IpcDriver):
        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            kind = half if issubclass(half, IpcPublisher) else IpcPublisher
            return kind(path_of(settings.bind_address), settings.limits, 1000, 0.5, 0.1)

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            kind = half if issubclass(half, IpcSubscriber) else IpcSubscriber
            return kind(path_of(settings.bind_address), settings.limits, 10_000)

    return Broken


@pytest.fixture
def raw_socket(tmp_path: Path) -> Iterator[Socket]:
    context: zmq.Context[Socket] = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.linger = 0
    socket.connect(f"ipc://{tmp_path}/hop/socket")
    yield socket
    socket.close()
    context.term()


def injecting(raw_socket: Socket) -> Callable[..., object]:
    return lambda *frames: raw_socket.send_multipart(frames)


def suite() -> DriverConformance:
    return IpcConformance()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_hop_fails(fault: str, tmp_path: Path, raw_socket: Socket) -> None:
    half, check = BROKEN[fault]
    failed = pytest.raises((AssertionError, TransportError, pytest.fail.Exception))
    with rig_in(tmp_path, injecting(raw_socket), driver_of(half), patience=1.0) as rig, failed:
        getattr(suite(), check)(rig)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("check", sorted({check for _, check in BROKEN.values()}))
def test_the_same_checks_pass_for_the_hop_unbroken(check: str, tmp_path: Path, raw_socket: Socket) -> None:
    with rig_in(tmp_path, injecting(raw_socket), driver_of(IpcPublisher)) as rig:
        getattr(suite(), check)(rig)
