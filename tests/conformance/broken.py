"""Faults that any driver may have: wrappers around its halves. What breaks only one driver is in that driver's test."""

import os
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from pubsub_lib.api import Client, OnConnected, OnEnvelope, OnHelloRequest, Publisher
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL
from pubsub_lib.driver_state import SubscriberState
from pubsub_lib.errors import FrameError, TransportError
from pubsub_lib.testing.checks import CLOSE_SECONDS, ROOM, SEND_SECONDS
from pubsub_lib.testing.forwarding import ForwardingSubscriber

OVERDUE = 1.0
"""Seconds by which a fault exceeds a limit of the contract. On a busy machine a check looks later than at the limit."""


class PublisherFault(Publisher):
    """Forwards every method to the wrapped publisher. ``cut``: set while the rig has cut all connections.

    ``hasty``: nothing that the check does shows when the fault acts, so that the patience is short from the start.
    ``shown_by``: what the check then raises. Both are also read of the classes that break one driver.
    """

    hasty = False
    shown_by: type[BaseException] = AssertionError

    def __init__(self, inner: Any, cut: threading.Event) -> None:
        self._inner = inner
        self._cut = cut
        self._closed = False

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        self._inner.initialize(on_hello_request, on_connected)

    def send_event(self, envelope: Envelope) -> None:
        self._inner.send_event(envelope)

    def counters(self) -> Mapping[str, int]:
        counts: Mapping[str, int] = self._inner.counters()
        return counts

    def sending_for(self, now: float) -> float:
        return float(self._inner.sending_for(now))

    def bound_address(self) -> str:
        return str(self._inner.bound_address())

    def public_key(self) -> str:
        return str(self._inner.public_key())

    def admit(self, clients: Collection[Client]) -> None:
        self._inner.admit(clients)

    def close(self) -> None:
        self._closed = True
        self._inner.close()

    def _wait_while_cut(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._cut.is_set() and time.monotonic() < until and not self._closed:
            time.sleep(0.01)


class SubscriberFault(ForwardingSubscriber):
    """The same for a subscriber."""

    hasty = False
    shown_by: type[BaseException] = AssertionError

    def __init__(self, inner: Any, cut: threading.Event) -> None:
        super().__init__(inner)
        self._cut = cut

    @property
    def _state(self) -> Any:
        return self._inner._life  # type: ignore[attr-defined]


# -- publishers --------------------------------------------------------------------------------------------------------


class LeaksAForeignExceptionWhenSending(PublisherFault):
    def send_event(self, envelope: Envelope) -> None:
        bytes.fromhex(envelope.uuid)
        super().send_event(envelope)


class LeaksWithoutAConnection(PublisherFault):
    def send_event(self, envelope: Envelope) -> None:
        if self._cut.is_set():
            raise BrokenPipeError("no connection")
        super().send_event(envelope)


class BlocksWhileDisconnected(PublisherFault):
    def send_event(self, envelope: Envelope) -> None:
        self._wait_while_cut(SEND_SECONDS + ROOM + OVERDUE)
        super().send_event(envelope)


class ClosesWithItsConnection(PublisherFault):
    def close(self) -> None:
        self._wait_while_cut(CLOSE_SECONDS + ROOM + OVERDUE)
        super().close()


class Reorders(PublisherFault):
    """One envelope waits for the next one: not the first ones, which a check sends until one arrives."""

    seen = 0
    held: Envelope | None = None

    def send_event(self, envelope: Envelope) -> None:
        self.seen += 1
        if self.seen == 50:
            self.held = envelope
            return
        super().send_event(envelope)
        if self.held is not None:
            before, self.held = self.held, None
            super().send_event(before)


class SendsInAChild(PublisherFault):
    hasty = True  # the child of some drivers hangs

    def send_event(self, envelope: Envelope) -> None:
        self._inner._life.process = os.getpid()
        super().send_event(envelope)


class IgnoresHelloRequests(PublisherFault):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        super().initialize(lambda request: None, on_connected)


class PublisherReportsNoConnection(PublisherFault):
    hasty = True

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        super().initialize(on_hello_request, lambda: None)


class PublisherReportsTheFirstConnectionOnly(PublisherFault):
    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        super().initialize(on_hello_request, first_only(on_connected))


class PublisherCountsNoCallbackError(PublisherFault):
    def counters(self) -> Mapping[str, int]:
        return {**super().counters(), "callback_errors": 0}


class IsNeverDoneWithSending(PublisherFault):
    hasty = True

    def sending_for(self, now: float) -> float:
        return now


class HasAKeyAlways(PublisherFault):
    def public_key(self) -> str:
        return "k" * 40


class NamesAnotherAddress(PublisherFault):
    hasty = True

    def bound_address(self) -> str:
        return "tcp://127.0.0.1:1"


# -- subscribers -------------------------------------------------------------------------------------------------------


class LeaksAForeignException(SubscriberFault):
    def register_topic(self, topic: str) -> None:
        topic.encode()  # raises UnicodeEncodeError
        super().register_topic(topic)


class ForgetsRegistrationsWhileDisconnected(SubscriberFault):
    def register_topic(self, topic: str) -> None:
        if not self._cut.is_set():
            super().register_topic(topic)


class IgnoresUnregistrationsWhileDisconnected(SubscriberFault):
    def unregister_topic(self, topic: str) -> None:
        if not self._cut.is_set():
            super().unregister_topic(topic)


class NeverUnregisters(SubscriberFault):
    hasty = True

    def unregister_topic(self, topic: str) -> None:
        pass


class NeverRegistersAgain(SubscriberFault):
    """Each topic that was unregistered stays so."""

    hasty = True

    def __init__(self, inner: Any, cut: threading.Event) -> None:
        super().__init__(inner, cut)
        self._ended: set[str] = set()

    def register_topic(self, topic: str) -> None:
        if topic not in self._ended:
            super().register_topic(topic)

    def unregister_topic(self, topic: str) -> None:
        self._ended.add(topic)
        super().unregister_topic(topic)


class NeverUnregistersEverything(SubscriberFault):
    hasty = True

    def unregister_topic(self, topic: str) -> None:
        if topic != ALL:
            super().unregister_topic(topic)


class WithTopics(SubscriberFault):
    """A fault that knows the registered topics."""

    def __init__(self, inner: Any, cut: threading.Event) -> None:
        super().__init__(inner, cut)
        self._topics: set[str] = set()

    def register_topic(self, topic: str) -> None:
        self._topics.add(topic)
        super().register_topic(topic)


class UnregistersAllTopicsWithOne(WithTopics):
    """``ends``: the topic whose end ends all."""

    hasty = True
    ends = ALL

    def unregister_topic(self, topic: str) -> None:
        for each in self._topics if topic == self.ends else {topic}:
            super().unregister_topic(each)


class UnregistersEverythingWithATopic(UnregistersAllTopicsWithOne):
    ends = "tenant-1"


class IgnoresAddresses(SubscriberFault):
    hasty = True

    def register_listen_address(self, address: str) -> None:
        pass


class KeepsAddresses(SubscriberFault):
    def unregister_listen_address(self, address: str) -> None:
        pass


class ReceivesNoBroadcasts(SubscriberFault):
    hasty = True

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        def some(envelope: Envelope) -> None:
            if envelope.hello is None or envelope.hello.nonce:
                on_envelope(envelope)

        super().initialize(some, on_connected)


class ReceivesBroadcastsTwice(SubscriberFault):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        def twice(envelope: Envelope) -> None:
            on_envelope(envelope)
            if envelope.hello is not None and not envelope.hello.nonce:
                on_envelope(envelope)

        super().initialize(twice, on_connected)


class AsksForOneTopic(SubscriberFault):
    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        super().request_hello(nonce, sorted(topics)[:1])


class AsksForRegisteredTopics(WithTopics):
    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        super().request_hello(nonce, self._topics | set(topics))


class CountsNothingReceived(SubscriberFault):
    def counters(self) -> Mapping[str, int]:
        return {**super().counters(), "received": 0}


class DropsHelloRequests(SubscriberFault):
    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        pass


class ReportsNoConnection(SubscriberFault):
    hasty = True

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        super().initialize(on_envelope, lambda: None)


class ReportsTheFirstConnectionOnly(SubscriberFault):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        super().initialize(on_envelope, first_only(on_connected))


class NeedsTheServerAtItsStart(SubscriberFault):
    shown_by = TransportError

    def daemonize(self) -> None:
        if self._cut.is_set():
            raise TransportError("the server is unavailable")
        super().daemonize()


class DropsSilently(SubscriberFault):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        def some(envelope: Envelope) -> None:
            kept = [each for each in envelope.messages if each.link.point.position % 5]
            if kept or envelope.hello is not None:
                on_envelope(msgspec.structs.replace(envelope, messages=kept))

        super().initialize(some, on_connected)


class EndsOnABadFrame(SubscriberFault):
    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        state = self._state

        def drop(error: FrameError) -> None:
            state.closed = True

        state.drop = drop
        super().initialize(on_envelope, on_connected)


class EndsAtACallbackError(SubscriberFault):
    error: type[BaseException] = BaseException

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        super().initialize(ending_at(self.error, self._state, on_envelope), on_connected)


class EndsAtSystemExit(EndsAtACallbackError):
    error = SystemExit


class HangsInClose(SubscriberFault):
    """All calls that come before the end of the first one take as long as that one."""

    until = 0.0

    def close(self) -> None:
        self.until = self.until or time.monotonic() + CLOSE_SECONDS + ROOM + OVERDUE
        time.sleep(max(0.0, self.until - time.monotonic()))
        super().close()


def first_only(on_connected: OnConnected) -> OnConnected:
    """A callback that passes on only its first call."""
    called = False

    def first() -> None:
        nonlocal called
        if not called:
            called = True
            on_connected()

    return first


def ending_at(error: type[BaseException], life: SubscriberState, on_envelope: OnEnvelope) -> OnEnvelope:
    """A callback whose first error of this kind ends the receiving thread."""

    def once(envelope: Envelope) -> None:
        try:
            on_envelope(envelope)
        except error:
            life.closed = True
            raise

    return once
