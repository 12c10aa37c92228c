"""The suite finds faults of the hop: each broken variant of the multi-process driver fails the check for its fault."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub_lib.api import OnConnected, OnHelloRequest
from pubsub_lib.core.envelope import Envelope
from pubsub_zmq.multiproc.publisher import IpcPublisher
from pubsub_zmq.multiproc.subscriber import IpcSubscriber
from tests.conformance.test_ipc import TestIpc as IpcConformance
from tests.conformance.test_ipc import rig_in
from tests.conformance.trial import AGAIN, BAD_INPUT, SILENT, Table, checks, fails, of_any, passes


class DropsWhenFull(IpcPublisher):
    def send_event(self, envelope: Envelope) -> None:
        if self._counts["sent"] % 20 != 19:
            super().send_event(envelope)
        else:
            self._counts["sent"] += 1


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


class DeliversNeighbours(IpcSubscriber):
    def _wanted(self, envelope: Envelope) -> bool:
        return any(envelope.topic.startswith(topic) for topic in self._topics)


class ClosesTheParentsSocketInAChild(IpcSubscriber):
    hasty = True  # nothing but a fork comes before

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


BROKEN: Table = {
    **of_any(
        "sends in a child",
        "leaks a foreign exception when sending",
        "ends at a callback's error",
        "hangs in close",
    ),
    "loses silently": (DropsWhenFull, SILENT),
    "never connects again": (NeverConnectsAgain, AGAIN),
    "reports a connection": (
        CallsOnConnected,
        "test_on_connected_must_not_be_called_without_declared_connections",
    ),
    "ends on a bad frame": (EndsOnABadFrame, BAD_INPUT),
    "delivers a neighbouring topic": (DeliversNeighbours, "test_register_topic_must_be_exact_with_one_subscriber"),
    "a child closes the parent's socket": (
        ClosesTheParentsSocketInAChild,
        "test_a_forked_child_must_not_disturb_the_parent",
    ),
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_hop_fails(fault: str, tmp_path: Path, hop_inject: Callable[..., object]) -> None:
    with rig_in(tmp_path, hop_inject) as rig:
        fails(BROKEN, fault, rig, IpcConformance)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("check", checks(BROKEN))
def test_the_same_checks_pass_for_the_hop_unbroken(
    check: str, tmp_path: Path, hop_inject: Callable[..., object]
) -> None:
    with rig_in(tmp_path, hop_inject) as rig:
        passes(rig, check, IpcConformance)
