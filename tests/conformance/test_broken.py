"""The suite finds faults (rules D2 to D4): each broken driver fails the check for its fault."""

import os
import threading
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from pubsub_lib.api import OnConnected, OnHelloRequest
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import FrameError
from pubsub_lib.testing.checks import ROOM, SEND_SECONDS
from pubsub_lib.testing.conformance import DROPS
from pubsub_memory.publisher import MemoryPublisher
from pubsub_memory.subscriber import MemorySubscriber
from tests.conformance.broken import OVERDUE
from tests.conformance.test_memory import rig_of_memory
from tests.conformance.trial import (
    AGAIN,
    ALONE,
    BAD_INPUT,
    BROADCAST,
    CONNECTED,
    EXACT,
    IDEMPOTENT,
    Table,
    checks,
    fails,
    of_any,
    passes,
)

Frames = tuple[bytes, ...]


class DeliversNeighbours(MemorySubscriber):
    def matches(self, head: bytes) -> bool:
        return any(head.startswith(one.rstrip(b"\0")) for one in self._subscriptions.prefixes())


class DeliversUnregisteredTopics(MemorySubscriber):
    def matches(self, head: bytes) -> bool:
        return head.startswith(codec.EVERYTHING) or super().matches(head)


class DropsBadFramesUncounted(MemorySubscriber):
    def counters(self) -> Mapping[str, int]:
        return {**super().counters(), **dict.fromkeys(DROPS, 0)}


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
            self._changed.wait_for(lambda: len(self._queue) < 100 or self._life.closed, SEND_SECONDS + ROOM + OVERDUE)

    def _next(self) -> Frames | None:
        frames = super()._next()
        with self._changed:
            self._changed.notify_all()
        return frames


class SendsAfterClose(MemoryPublisher):
    def close(self) -> None:
        super().close()
        self._life.closed = False


class DeliversTwice(MemorySubscriber):
    def deliver(self, frames: Frames) -> None:
        super().deliver(frames)
        if len(self._subscriptions.prefixes()) > 1:
            super().deliver(frames)


class CallsBackOnTheSendersThread(MemorySubscriber):
    def deliver(self, frames: Frames) -> None:
        self._life.deliver(codec.decode(frames))


class EndsAtARequestError(MemoryPublisher):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        def once(ask: Any) -> None:
            try:
                on_hello_request(ask)
            except ValueError:
                self._asks.close()

        super().initialize(once, on_connected)


class EndsAtSystemExitOfARequest(MemoryPublisher):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        def once(ask: Any) -> None:
            try:
                on_hello_request(ask)
            except SystemExit:
                self._asks.close()
                raise

        super().initialize(once, on_connected)


class EndsAtABadRequest(MemoryPublisher):
    def ask(self, frame: bytes) -> None:
        try:
            codec.read_hello_request(frame, self._limits)
        except FrameError:
            self._asks.close()
        super().ask(frame)


class EndsAtAWrongNumberOfFrames(MemorySubscriber):
    def deliver(self, frames: Frames) -> None:
        self._life.closed = self._life.closed or len(frames) != 2
        super().deliver(frames)


class ReceivesBroadcastsOfItsTopics(MemorySubscriber):
    hasty = True

    def matches(self, head: bytes) -> bool:
        return head != codec.topic_frame(ALL) and super().matches(head)


class BlocksInRequestHello(MemorySubscriber):
    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        super().request_hello(nonce, topics)
        threading.Event().wait((SEND_SECONDS + ROOM + OVERDUE) / 50)


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


BROKEN: Table = {
    **of_any(
        "drops silently",
        "reorders undeclared",
        "leaks a foreign exception",
        "leaks a foreign exception when sending",
        "ends on a bad frame",
        "ends at SystemExit of a callback",
        "sends in a child",
        "never unregisters",
        "hangs in close",
        "is never done with sending",
        "has a key always",
        "never registers again",
        "never unregisters everything",
        "unregisters the topics with everything",
        "unregisters everything with a topic",
        "receives no broadcasts",
        "receives broadcasts twice",
        "asks for one topic",
        "asks for registered topics",
        "counts nothing received",
    ),
    "receives broadcasts of its topics": (ReceivesBroadcastsOfItsTopics, BROADCAST),
    "ends at SystemExit of a request": (
        EndsAtSystemExitOfARequest,
        "test_on_hello_request_may_send_and_its_errors_must_be_caught",
    ),
    "ends at a bad request": (EndsAtABadRequest, "test_bad_hello_requests_must_not_end_the_answers"),
    "ends at a wrong number of frames": (
        EndsAtAWrongNumberOfFrames,
        "test_a_wrong_number_of_frames_must_be_counted_and_never_end_the_thread",
    ),
    "delivers a neighbouring topic": (DeliversNeighbours, EXACT),
    "delivers unregistered topics": (DeliversUnregisteredTopics, EXACT),
    "drops bad frames uncounted": (DropsBadFramesUncounted, BAD_INPUT),
    "calls back after close": (CallsBackAfterClose, "test_on_envelope_must_not_be_called_after_close_returned"),
    "delivers hello replies to all": (DeliversHelloRepliesToAll, ALONE),
    "ignores oversized": (IgnoresOversized, "test_send_event_must_refuse_what_is_oversized"),
    "blocks on a slow subscriber": (BlocksOnASlowSubscriber, "test_send_event_must_not_block"),
    "sends after close": (SendsAfterClose, "test_send_event_must_be_refused_before_initialize_and_after_close"),
    "delivers twice": (DeliversTwice, IDEMPOTENT),
    "calls back on the sender's thread": (
        CallsBackOnTheSendersThread,
        "test_on_envelope_must_be_called_on_one_thread_one_call_at_a_time",
    ),
    "ends at a request error": (EndsAtARequestError, "test_on_hello_request_may_send_and_its_errors_must_be_caught"),
    "blocks in request_hello": (
        BlocksInRequestHello,
        "test_request_hello_must_not_block_and_must_not_need_a_reply",
    ),
    "never connects again": (NeverConnectsAgain, AGAIN),
    "publisher ignores reconnections": (PublisherIgnoresReconnections, CONNECTED),
    "starts in a child": (
        StartsInAChild,
        "test_daemonize_must_be_refused_in_a_forked_child_and_not_disturb_the_parent",
    ),
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_driver_fails(fault: str) -> None:
    fails(BROKEN, fault, rig_of_memory())


@pytest.mark.parametrize("check", checks(BROKEN))
def test_the_same_checks_pass_for_the_driver_unbroken(check: str) -> None:
    passes(rig_of_memory(), check)
