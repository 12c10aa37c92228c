"""The suite finds faults (rules D2 to D4): each broken driver fails the check for its fault."""

import os
import threading
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import pytest

from pubsub_lib.api import (
    Capabilities,
    Driver,
    DriverSettings,
    OnConnected,
    OnEnvelope,
    OnHelloRequest,
    Publisher,
    Subscriber,
)
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.errors import FrameError
from pubsub_lib.testing.conformance import DROPS, DriverConformance, Rig
from pubsub_memory import MemoryBus, MemoryDriver
from pubsub_memory.publisher import MemoryPublisher
from pubsub_memory.subscriber import MemorySubscriber
from tests.conformance.broken import ending_at

Frames = tuple[bytes, ...]


class DropsSilently(MemorySubscriber):
    seen = 0

    def deliver(self, frames: Frames) -> None:
        self.seen += 1
        if self.seen % 50:
            super().deliver(frames)


class DeliversNeighbours(MemorySubscriber):
    def matches(self, head: bytes) -> bool:
        return any(head.startswith(one.rstrip(b"\0")) for one in self._subscriptions.prefixes())


class DeliversUnregisteredTopics(MemorySubscriber):
    def matches(self, head: bytes) -> bool:
        return head.startswith(codec.EVERYTHING) or super().matches(head)


class Reorders(MemorySubscriber):
    seen = 0
    held: deque[Frames]

    def deliver(self, frames: Frames) -> None:
        self.held = getattr(self, "held", deque())
        self.seen += 1
        self.held.append(frames)
        if self.seen % 10:  # every tenth message waits for the next one
            while self.held:
                super().deliver(self.held.pop())


class LeaksForeignException(MemorySubscriber):
    def register_topic(self, topic: str) -> None:
        topic.encode()  # raises UnicodeEncodeError
        super().register_topic(topic)


class PublisherLeaksForeignException(MemoryPublisher):
    def send_event(self, envelope: Envelope) -> None:
        bytes.fromhex(envelope.uuid)
        super().send_event(envelope)


class EndsOnABadFrame(MemorySubscriber):
    def _receive(self) -> None:
        while (frames := self._next()) is not None:
            try:
                envelope = codec.decode(frames, self._limits)
            except FrameError as error:
                self._life.drop(error)
                return
            self._life.counts["received"] += 1
            self._life.deliver(envelope)


class DropsBadFramesUncounted(MemorySubscriber):
    def counters(self) -> Mapping[str, int]:
        return {**super().counters(), **dict.fromkeys(DROPS, 0)}


class EndsAtACallbackError(MemorySubscriber):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        super().initialize(ending_at(SystemExit, self._life, on_envelope), on_connected)


class CallsBackAfterClose(MemorySubscriber):
    ended = False

    def close(self) -> None:
        self.ended = True  # the bus still delivers

    def deliver(self, frames: Frames) -> None:
        if self.ended:
            self._life.receive(frames, self._limits)  # at once: on a busy machine its own thread may come too late
        else:
            super().deliver(frames)


class DeliversHelloRepliesToAll(MemorySubscriber):
    def matches(self, head: bytes) -> bool:
        return head.startswith(b"H") or super().matches(head)


class IgnoresOversized(MemoryPublisher):
    def send_event(self, envelope: Envelope) -> None:
        try:
            super().send_event(envelope)
        except FrameError:
            pass  # the error is lost


class BlocksOnASlowSubscriber(MemorySubscriber):
    def deliver(self, frames: Frames) -> None:
        super().deliver(frames)
        with self._changed:
            self._changed.wait_for(lambda: len(self._queue) < 100 or self._life.closed, 5)

    def _next(self) -> Frames | None:
        frames = super()._next()
        with self._changed:
            self._changed.notify_all()
        return frames


class SendsInAChild(MemoryPublisher):
    def send_event(self, envelope: Envelope) -> None:
        self._life.process = os.getpid()
        super().send_event(envelope)


class SendsAfterClose(MemoryPublisher):
    def close(self) -> None:
        super().close()
        self._life.closed = False


class DeliversTwice(MemorySubscriber):
    def deliver(self, frames: Frames) -> None:
        super().deliver(frames)
        if len(self._subscriptions.prefixes()) > 1:
            super().deliver(frames)


class NeverUnregisters(MemorySubscriber):
    def unregister_topic(self, topic: str) -> None:
        pass


class CallsBackOnTheSendersThread(MemorySubscriber):
    def deliver(self, frames: Frames) -> None:
        self._life.deliver(codec.decode(frames))


class HangsInClose(MemorySubscriber):
    def close(self) -> None:
        super().close()
        if self._life._thread is not None:
            threading.Event().wait(4)


class EndsAtARequestError(MemoryPublisher):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        def once(ask: Any) -> None:
            try:
                on_hello_request(ask)
            except ValueError:
                self._asks.close()

        super().initialize(once, on_connected)


class BlocksInRequestHello(MemorySubscriber):
    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        super().request_hello(nonce, topics)
        threading.Event().wait(0.05)


class StartsInAChild(MemorySubscriber):
    """Starts its thread in a forked child without an error."""

    def daemonize(self) -> None:
        self._life._pid = os.getpid()
        super().daemonize()


class NeverConnectsAgain(MemorySubscriber):
    met = False

    def meet(self) -> None:
        if self.met:
            self._bus.detach_inbox(self)
        self.met = True
        super().meet()


class PublisherIgnoresReconnections(MemoryPublisher):
    met = False

    def meet(self) -> None:
        if not self.met:
            super().meet()
        self.met = True


BROKEN: dict[str, tuple[type[Any], str]] = {
    "drops silently": (DropsSilently, "test_send_event_must_not_lose_an_envelope_silently"),
    "delivers a neighbouring topic": (DeliversNeighbours, "test_register_topic_must_be_exact"),
    "delivers unregistered topics": (DeliversUnregisteredTopics, "test_register_topic_must_be_exact"),
    "reorders undeclared": (Reorders, "test_send_event_must_keep_the_order_of_a_topic"),
    "leaks a foreign exception": (LeaksForeignException, "test_register_topic_must_raise_no_foreign_exception"),
    "leaks a foreign exception when sending": (
        PublisherLeaksForeignException,
        "test_send_event_must_raise_no_foreign_exception",
    ),
    "ends on a bad frame": (EndsOnABadFrame, "test_bad_input_must_be_counted_by_reason_and_never_end_the_thread"),
    "drops bad frames uncounted": (
        DropsBadFramesUncounted,
        "test_bad_input_must_be_counted_by_reason_and_never_end_the_thread",
    ),
    "ends at a callback error": (
        EndsAtACallbackError,
        "test_what_on_envelope_raises_must_be_counted_and_not_end_the_thread",
    ),
    "calls back after close": (CallsBackAfterClose, "test_on_envelope_must_not_be_called_after_close_returned"),
    "delivers hello replies to all": (
        DeliversHelloRepliesToAll,
        "test_request_hello_must_be_answered_to_the_asker_alone",
    ),
    "ignores oversized": (IgnoresOversized, "test_send_event_must_refuse_what_is_oversized"),
    "blocks on a slow subscriber": (BlocksOnASlowSubscriber, "test_send_event_must_not_block"),
    "sends in a child": (SendsInAChild, "test_send_event_must_be_refused_in_a_forked_child"),
    "sends after close": (SendsAfterClose, "test_send_event_must_be_refused_before_initialize_and_after_close"),
    "delivers twice": (DeliversTwice, "test_register_topic_must_be_idempotent"),
    "never unregisters": (
        NeverUnregisters,
        "test_unregister_topic_must_stop_the_topic_alone_and_be_idempotent",
    ),
    "calls back on the sender's thread": (
        CallsBackOnTheSendersThread,
        "test_on_envelope_must_be_called_on_one_thread_one_call_at_a_time",
    ),
    "hangs in close": (HangsInClose, "test_close_must_be_idempotent_quick_and_safe_from_any_thread"),
    "ends at a request error": (EndsAtARequestError, "test_on_hello_request_may_send_and_its_errors_must_be_caught"),
    "blocks in request_hello": (
        BlocksInRequestHello,
        "test_request_hello_must_not_block_and_must_not_need_a_reply",
    ),
    "never connects again": (NeverConnectsAgain, "test_both_halves_must_connect_again_by_themselves"),
    "publisher ignores reconnections": (
        PublisherIgnoresReconnections,
        "test_on_connected_must_be_called_at_each_connection",
    ),
    "starts in a child": (
        StartsInAChild,
        "test_daemonize_must_be_refused_in_a_forked_child_and_not_disturb_the_parent",
    ),
}


def driver_of(half: type[Any], bus: MemoryBus) -> type[Driver]:
    class Broken(Driver):
        name: ClassVar[str] = half.__name__
        capabilities: ClassVar[Capabilities] = MemoryDriver.capabilities

        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            kind = half if issubclass(half, MemoryPublisher) else MemoryPublisher
            return kind(bus, settings.limits)

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            kind = half if issubclass(half, MemorySubscriber) else MemorySubscriber
            return kind(bus, settings.limits, 10_000)

    return Broken


def rig_of(half: type[Any], patience: float = 30.0) -> Rig:
    bus = MemoryBus()
    driver = driver_of(half, bus)
    return Rig(driver, DriverSettings(), inject=bus.send, cut=bus.cut, restore=bus.restore, patience=patience)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_driver_fails(fault: str) -> None:
    half, check = BROKEN[fault]
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(DriverConformance(), check)(rig_of(half, patience=1.0))


@pytest.mark.parametrize("check", sorted({check for _, check in BROKEN.values()}))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str) -> None:
    getattr(DriverConformance(), check)(rig_of(MemorySubscriber))
