"""The receiving half of the ``memory`` driver."""

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import Final

from pubsub_lib.api import OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits, check_name
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import FrameError, TransportError
from pubsub_memory.bus import Frames, MemoryBus

_log = logging.getLogger(__name__)

_QUESTIONS: Final = 64
"""Own questions whose answers are still taken; an older one's publishers had their time."""
_STOP: Final = 2.0  # seconds


class MemorySubscriber(Subscriber):
    """A bounded queue that the bus fills, through a lossy link, and one thread that empties it."""

    def __init__(self, bus: MemoryBus, limits: Limits, queue_limit: int) -> None:
        self._bus = bus
        self._limits = limits
        self._queue_limit = queue_limit
        self._link = bus.new_link()
        self._pid = os.getpid()
        self._on_envelope: OnEnvelope | None = None
        self._changed = threading.Condition()
        self._queue: deque[Frames] = deque()
        self._subscriptions: set[bytes] = set()
        self._questions: deque[bytes] = deque()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._counts: Counter[str] = Counter(
            dict.fromkeys(
                ("received", "callback_errors", "truncated", "oversized", "version", "foreign", "overflow"), 0
            )
        )

    # -- the caller's side -----------------------------------------------------------------------------------

    def initialize(self, on_envelope: OnEnvelope) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`."""
        self._own()
        with self._changed:
            if self._on_envelope is not None:
                raise TransportError("this subscriber was initialized before; make a new one")
            self._on_envelope = on_envelope

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`. Takes effect at once."""
        self._own()
        if topic != ALL:
            check_name("topic", topic)
        with self._changed:
            self._subscriptions.add(codec.subscription(topic))

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`. What is queued already still arrives."""
        self._own()
        if topic != ALL:
            check_name("topic", topic)
        with self._changed:
            self._subscriptions.discard(codec.subscription(topic))

    def register_listen_address(self, address: str) -> None:
        """Nothing to do: everybody on a bus hears everybody."""
        self._own()

    def unregister_listen_address(self, address: str) -> None:
        """Nothing to do: everybody on a bus hears everybody."""
        self._own()

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.request_hello`."""
        self._own()
        frame = codec.ask_frame(nonce, topics)
        private = codec.private_frame(nonce)
        with self._changed:
            if private not in self._subscriptions:
                self._subscriptions.add(private)
                self._questions.append(private)
                if len(self._questions) > _QUESTIONS:
                    self._subscriptions.discard(self._questions.popleft())
        self._bus.ask(frame)

    def daemonize(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.daemonize`."""
        self._own()
        with self._changed:
            if self._on_envelope is None:
                raise TransportError("this subscriber is not initialized; call initialize() first")
            if self._thread is not None:
                raise TransportError("this subscriber runs already; daemonize() it once")
            self._thread = threading.Thread(
                target=self._receive, args=(self._on_envelope,), name="pubsub-memory", daemon=True
            )
            # Under the lock: a close() that comes now finds a thread that it can join.
            self._thread.start()
        self._bus.attach_inbox(self)
        if self._closed:
            self._bus.detach_inbox(self)

    def counters(self) -> Mapping[str, int]:
        """What the API asks for, and ``lost``: messages that the link was told to lose."""
        self._own(closed_too=True)
        with self._changed:
            return {**self._counts, "lost": self._link.counts["drop"]}

    def close(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.close`."""
        if self._pid != os.getpid():
            return  # a fork's copy: the lock and the thread are the parent's
        self._bus.detach_inbox(self)
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP)

    def _own(self, closed_too: bool = False) -> None:
        if self._pid != os.getpid():
            raise TransportError("this subscriber belongs to the process that made it; make one after the fork")
        if self._closed and not closed_too:
            raise TransportError("this subscriber is closed; make a new one")

    # -- the bus's side --------------------------------------------------------------------------------------

    def matches(self, head: bytes) -> bool:
        """Whether a registered topic or an own question has this topic frame. Any thread, without a lock."""
        if head[:1] == codec.EVERYTHING:
            return head in self._subscriptions or codec.EVERYTHING in self._subscriptions
        return head[: head.find(0) + 1] in self._subscriptions

    def deliver(self, frames: Frames) -> None:
        """Queue what the link lets through."""
        with self._changed:
            self._enqueue(self._link.push(frames, time.monotonic()))
            self._changed.notify_all()

    def _enqueue(self, several: list[Frames]) -> None:
        if self._closed:
            return
        for frames in several:
            if len(self._queue) >= self._queue_limit:
                self._counts["overflow"] += 1
            else:
                self._queue.append(frames)

    # -- the receiving thread --------------------------------------------------------------------------------

    def _receive(self, on_envelope: OnEnvelope) -> None:
        while (frames := self._next()) is not None:
            try:
                envelope = codec.decode(frames, self._limits)
            except FrameError as error:
                self._count(error.reason)
                _log.debug("dropped a message: %s", error)
                continue
            self._count("received")
            self._call(on_envelope, envelope)

    def _next(self) -> Frames | None:
        """The next message; waits for it. None when closed."""
        with self._changed:
            while not self._closed:
                self._enqueue(self._link.due(time.monotonic()))
                if self._queue:
                    return self._queue.popleft()
                until = self._link.next_time()
                self._changed.wait(None if until is None else max(0.0, until - time.monotonic()))
            return None

    def _call(self, on_envelope: OnEnvelope, envelope: Envelope) -> None:
        try:
            on_envelope(envelope)
        except BaseException:  # noqa: BLE001 - whatever a controller raises, SystemExit too, must not end receiving
            self._count("callback_errors")
            _log.exception("the callback failed for an envelope of %s on topic %r", envelope.service, envelope.topic)

    def _count(self, name: str) -> None:
        with self._changed:
            self._counts[name] += 1
