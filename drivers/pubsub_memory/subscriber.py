"""The receiving half of the ``memory`` driver."""

import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.driver_state import SubscriberState
from pubsub_lib.logs import logger
from pubsub_lib.subscriptions import Subscriptions
from pubsub_memory.bus import Frames, MemoryBus

_log = logger(__name__)

_STOP: Final = 2.0  # seconds
_MET: Final[Frames] = (b"met",)
"""A marker instead of a message, compared by identity: a publisher was connected."""


class MemorySubscriber(Subscriber):
    """A bounded queue that the bus fills, through a lossy link, and one thread that empties it."""

    def __init__(self, bus: MemoryBus, limits: Limits, queue_limit: int) -> None:
        self._bus = bus
        self._limits = limits
        self._queue_limit = queue_limit
        self._link = bus.new_link()
        self._changed = threading.Condition()
        self._queue: deque[Frames] = deque()
        self._subscriptions = Subscriptions()
        self._met = False
        self._life = SubscriberState(self._changed, _log)

    # -- the caller's side -----------------------------------------------------------------------------------

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`."""
        self._life.initialize(on_envelope, on_connected)

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`. Takes effect at once."""
        self._life.check_open()
        with self._changed:
            self._subscriptions.add(topic)

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`. Messages already queued still arrive."""
        self._life.check_open()
        with self._changed:
            self._subscriptions.discard(topic)

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.request_hello`."""
        self._life.check_open()
        frame = codec.hello_request_frame(nonce, topics)
        with self._changed:
            self._subscriptions.add_replies(nonce)
        self._bus.ask(frame)

    def daemonize(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.daemonize`."""
        self._life.start("pubsub-memory", lambda: self._receive)
        self._bus.attach_inbox(self)
        if self._life.closed:
            self._bus.detach_inbox(self)

    def counters(self) -> Mapping[str, int]:
        """The counters that the API requires, and ``lost``: messages that the link dropped on purpose."""
        self._life.check_process()
        with self._changed:
            return {**self._life.counts, "lost": self._link.counts["drop"]}

    def close(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.close`."""
        if self._life.inherited:
            return  # the bus's lock is the parent's, too
        self._life.close(self._wake, _STOP)
        self._bus.detach_inbox(self)  # after ``closed``, which daemonize() reads after it has joined

    def _wake(self) -> None:
        self._queue.clear()
        self._changed.notify_all()

    # -- the bus's side --------------------------------------------------------------------------------------

    def matches(self, head: bytes) -> bool:
        """Whether this is the topic frame of a registered topic, of a reply to this subscriber's hello request, or of a
        hello to all. Any thread, without a lock.
        """
        return self._subscriptions.matches(head)

    def deliver(self, frames: Frames) -> None:
        """Queue the messages that the link delivers."""
        with self._changed:
            self._enqueue(self._link.push(frames, time.monotonic()))
            self._changed.notify_all()

    def meet(self) -> None:
        """A publisher joined the bus. The receiving thread calls ``on_connected``."""
        with self._changed:
            self._met = True
            self._changed.notify_all()

    def _enqueue(self, several: list[Frames]) -> None:
        if self._life.closed:
            return
        for frames in several:
            if len(self._queue) >= self._queue_limit:
                self._life.counts["overflow"] += 1
            else:
                self._queue.append(frames)

    # -- the receiving thread --------------------------------------------------------------------------------

    def _receive(self) -> None:
        while (frames := self._next()) is not None:
            if frames is _MET:
                self._life.connected()
                continue
            self._life.receive(frames, self._limits)

    def _next(self) -> Frames | None:
        """Wait for the next message and return it; ``_MET`` when a publisher was connected, None when closed."""
        with self._changed:
            while not self._life.closed:
                self._enqueue(self._link.due(time.monotonic()))
                if self._met:
                    self._met = False
                    return _MET
                if self._queue:
                    return self._queue.popleft()
                until = self._link.next_time()
                self._changed.wait(None if until is None else max(0.0, until - time.monotonic()))
            return None
