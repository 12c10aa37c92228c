"""The sending half: senders queue, and one thread packs and sends on a connection, and receives hello requests."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.driver_state import PublisherState
from pubsub_lib.errors import FrameError, TransportError
from pubsub_lib.hello_requests import MAX_WAITING, HelloRequests, request_limits
from pubsub_lib.logs import logger
from pubsub_lib.send_queue import QueuedMessage, SendQueue, frames, number_lost
from pubsub_lib.threads.start import ReadyThread
from pubsub_redis.connection import Command, Link
from pubsub_redis.frames import Channels, encode_pair, nonce_of, read_request
from pubsub_redis.options import GROUP, RedisOptions, Server

_log = logger(__name__)

_MAX_INBOXES: Final = 2 * MAX_WAITING
"""Maximum number of hello requests whose inboxes are remembered: more than wait for their replies."""
_STOP, _CUT = 1.2, 0.6
"""Seconds that ``close`` waits for the thread: until it has sent, and again after the connection was cut."""


class RedisPublisher(Publisher):
    """Encodes in the sender's thread. Nothing is sent while there is no connection."""

    def __init__(self, options: RedisOptions, server: Server, limits: Limits) -> None:
        self._options = options
        self._server = server
        self._limits = limits
        self._channels = Channels(options.prefix)
        self._life = PublisherState()
        self._lock = threading.Lock()
        self._settled = threading.Event()
        """Set at the first connection, at an error that no retry repairs, and by ``close``."""
        self._reason = f"start the Redis server {server.url}, or correct url in [{GROUP}]: the server did not answer"
        """Why there is no connection."""
        self._connected = False
        self._lost = 0
        self._losing = threading.Lock()
        """Held to change the two above, and to drop the queued envelopes."""
        self._link: Link | None = None
        self._queue = SendQueue(options.send_queue, self._wake, GROUP)
        self._asks = HelloRequests(request_limits(limits), options.questions_per_second)
        self._inboxes: dict[bytes, bytes] = {}
        """The inbox of each hello request by its nonce, in the order of the requests. Changed by the connection's
        thread only."""
        # Changed by the connection's thread only.
        self._counts = {"messages": 0, "unrequested": 0, "overflow": 0}
        self._threads: tuple[threading.Thread, ...] = ()

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Connect. See :meth:`pubsub_lib.api.Publisher.initialize`. After a failure the publisher is closed."""
        with self._lock, ExitStack() as undo:
            self._life.check_new()
            sending = ReadyThread("pubsub-redis-send")
            undo.callback(sending.drop)
            answering = ReadyThread("pubsub-redis-asks")
            undo.callback(answering.drop)
            self._link = link = Link(self._options, self._server, _log)
            undo.pop_all()
            self._life.begin()
            self._threads = (sending.thread, answering.thread)
            answering.run(partial(self._asks.answer, on_hello_request, on_connected))
            sending.run(partial(link.run, self))
        self._settled.wait(self._options.connect_timeout)
        self._life.check_open()
        if not self._connected:
            reason = self._reason
            self.close()
            raise TransportError(reason)

    def send_event(self, envelope: Envelope) -> None:
        """Encode and queue. See :meth:`pubsub_lib.api.Publisher.send_event`. Waits at most ``send_wait`` seconds, and
        only when the queue is full."""
        self._life.check_open()
        head, body = codec.encode(envelope, self._limits)
        self._check_connected()
        self._queue.put(QueuedMessage(envelope, head, body), self._options.send_wait)
        if not self._connected:  # lost meanwhile
            self._drop()

    def counters(self) -> Mapping[str, int]:
        """The counters that the API requires, and: ``messages`` (fewer than ``sent`` when envelopes shared them),
        ``lost`` (queued envelopes, without hellos, that a lost connection dropped), ``unrequested`` (hello replies that
        no subscriber requested), ``asks`` (hello requests) with their errors, and those of :class:`.connection.Link`.
        """
        link = self._link.counts if self._link is not None else {}
        return {"sent": self._queue.accepted, "lost": self._lost, **self._counts, **self._asks.counters(), **link}

    def sending_for(self, now: float) -> float:
        """See :meth:`pubsub_lib.api.Publisher.sending_for`."""
        link = self._link
        return 0.0 if self._life.closed or link is None else max(0.0, now - link.busy_since)

    def close(self) -> None:
        """Send the queued envelopes and release everything. See :meth:`pubsub_lib.api.Publisher.close`."""
        if self._life.inherited:
            return
        with self._lock:
            self._life.closed = True
            self._queue.close()
            link, threads = self._link, self._threads
        self._asks.close()
        self._settled.set()
        if link is None:
            return
        link.stop()
        if not self._connected:  # nothing is left to send
            link.cut()
        for wait in (_STOP, _CUT):
            if threads[0] is not threading.current_thread():
                threads[0].join(wait)
            if threads[0].is_alive():
                link.cut()

    def _check_connected(self) -> None:
        if not self._connected:
            raise TransportError(f"{self._reason}; connecting is retried")

    def _drop(self) -> None:
        """Drop and count the queued envelopes, unless there is a connection again, which sends them."""
        with self._losing:
            if not self._connected:
                self._lost += number_lost(self._queue.take())

    def _wake(self) -> None:
        if self._link is not None:
            self._link.wake()

    # -- the connection's thread --------------------------------------------------------------------------------------

    def own(self) -> Command:
        """Subscribe to hello requests."""
        return ("SUBSCRIBE", self._channels.requests)

    def greeting(self) -> list[Command]:
        """Nothing more."""
        return []

    def orders(self) -> list[Command]:
        """Publish the queued envelopes."""
        found: list[Command] = []
        for head, body in frames(self._queue.take(), self._limits):
            channel = self._channels.of_frame(head, self._inboxes)
            if channel:
                found.append(("PUBLISH", channel, encode_pair(head, body)))
            else:
                self._counts["unrequested"] += 1
        self._counts["messages"] += len(found)
        return found

    def connected(self) -> None:
        """Accept envelopes, and let the caller send a hello."""
        with self._losing:
            self._connected = True
        self._settled.set()
        self._asks.connected()

    def disconnected(self, reason: str, final: bool) -> None:
        """Refuse envelopes, and drop the queued ones."""
        self._reason = reason
        with self._losing:
            self._connected = False
        self._drop()
        if final:
            self._settled.set()

    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        """Queue a hello request."""
        if kind != b"message":
            return
        try:
            inbox, request = read_request(rest[1], request_limits(self._limits))
        except FrameError as error:
            self._asks.refuse(error)
            return
        nonce = nonce_of(request)
        self._inboxes.pop(nonce, None)
        self._inboxes[nonce] = inbox
        if len(self._inboxes) > _MAX_INBOXES:
            del self._inboxes[next(iter(self._inboxes))]
        self._counts["overflow"] += self._asks.put([request])

    def refused(self, reason: str) -> None:
        """Messages are not published; replicas will find the loss."""
        _log.warning("messages are lost: %s", reason)
