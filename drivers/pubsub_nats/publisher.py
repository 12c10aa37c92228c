"""The sending half of the NATS driver."""

import asyncio
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Final

from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.sequencer import MAX_REQUESTS
from pubsub_lib.driver_state import PublisherState
from pubsub_lib.errors import FrameError, TransportError
from pubsub_lib.hello_requests import HelloRequests, request_limits
from pubsub_lib.send_queue import QueuedMessage, SendQueue, counted_frames, number_lost
from pubsub_lib.threads.start import ReadyThread
from pubsub_nats.client import Access, NatsClient
from pubsub_nats.connection import Calls, Connection
from pubsub_nats.subjects import Subjects

_LINGER: Final = 0.5
"""Maximum seconds in which a closing publisher sends the queued envelopes, its goodbye among them."""
_PAUSE: Final = 0.0005
"""Seconds between two batches: without it the two threads would take turns for each envelope of a burst."""
_STOP: Final = 0.9
"""Maximum seconds to wait for each of the two threads."""


class NatsPublisher(Publisher):
    """Senders encode and queue; the connection's thread packs and sends. A third thread answers hello requests."""

    def __init__(self, access: Access, limits: Limits) -> None:
        self._options = access.options
        self._limits = limits
        self._subjects = Subjects(access.options.prefix)
        self._life = PublisherState()
        self._request_limits = request_limits(limits)
        self._asks = HelloRequests(self._request_limits, access.options.questions_per_second)
        calls = Calls(self._subscribe, self._take, self._asks.connected, self._send)
        self._connection = Connection(access, "pubsub-nats-publisher", calls, limits.max_frame_bytes)
        self._queue = SendQueue(self._options.send_queue, self._connection.wake, "pubsub_nats")
        self._inboxes: OrderedDict[str, str] = OrderedDict()
        """Reply subjects of the last requests, by nonce. Only of the connection's thread, as the counters."""
        self._counts = dict.fromkeys(("lost", "overflow", "unrequested"), 0)
        self._sending_since = math.inf
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Connect. See :meth:`pubsub_lib.api.Publisher.initialize`."""
        with self._lock:
            self._life.check_new()
            ready = ReadyThread("pubsub-nats-asks")
            self._life.begin()
            self._thread = ready.thread
            ready.run(partial(self._asks.answer, on_hello_request, on_connected))
        try:
            self._connection.start()
            self._connection.settled.wait(self._options.connect_timeout)
            self._life.check_open()
            if not self._connection.is_connected:
                raise TransportError(self._connection.reason)
        except BaseException:
            self.close()
            raise

    def send_event(self, envelope: Envelope) -> None:
        """Queue one envelope. See :meth:`pubsub_lib.api.Publisher.send_event`."""
        self._life.check_open()
        head, body = codec.encode(envelope, self._limits)
        if not self._connection.is_connected:
            raise TransportError(f"{self._connection.reason}; connecting is retried")
        self._queue.put(QueuedMessage(envelope, head, body), self._options.send_wait)

    def counters(self) -> Mapping[str, int]:
        """See :meth:`pubsub_lib.api.Publisher.counters`. ``lost``: envelopes, without hellos, that were accepted,
        and not sent when the connection or the publisher ended. ``unrequested``: hello replies that no subscriber
        requested."""
        return {"sent": self._queue.accepted, **self._counts, **self._connection.counts, **self._asks.counters()}

    def sending_for(self, now: float) -> float:
        """See :meth:`pubsub_lib.api.Publisher.sending_for`."""
        return max(0.0, now - self._sending_since)

    def close(self) -> None:
        """Send the queued envelopes, and end. See :meth:`pubsub_lib.api.Publisher.close`."""
        if self._life.inherited:
            return
        with self._lock:
            self._queue.close()  # first: the thread ends when a closed publisher's queue is empty
            self._life.closed = True
            thread = self._thread
        self._asks.close()
        self._connection.stop(_LINGER)
        self._connection.join(_STOP)
        self._lose(number_lost(self._queue.take()))
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP)

    # -- the connection's thread ---------------------------------------------------------------------------------

    async def _subscribe(self, client: NatsClient) -> None:
        await client.subscribe(self._subjects.ask)

    def _take(self, subject: str, reply: str, data: bytes) -> None:
        try:
            nonce = self._subjects.nonce(reply)
            if len(data) > self._request_limits.max_frame_bytes:
                raise FrameError(f"a hello request of {len(data)} bytes exceeds the maximum", "oversized")
        except FrameError as error:
            self._asks.refuse(error)
            return
        self._inboxes[nonce] = reply
        if len(self._inboxes) > MAX_REQUESTS:
            self._inboxes.popitem(last=False)
        self._counts["overflow"] += self._asks.put((data,))

    async def _send(self, client: NatsClient) -> None:
        """Send the queued envelopes until the publisher is closed."""
        while True:
            closed = self._life.closed
            batch = self._queue.take()
            if batch:
                await self._publish(client, list(counted_frames(batch, self._limits)))
                await asyncio.sleep(_PAUSE)
            elif closed:
                return
            else:
                await self._connection.woken()

    async def _publish(self, client: NatsClient, packed: list[tuple[bytes, bytes, int]]) -> None:
        left = sum(number for _, _, number in packed)
        try:
            for head, body, number in packed:
                self._sending_since = time.monotonic()
                if subject := self._subjects.subject(head, self._inboxes):
                    await client.publish(subject, body)
                else:
                    self._counts["unrequested"] += 1
                left -= number
        finally:
            self._sending_since = math.inf
            self._lose(left)

    def _lose(self, number: int) -> None:
        """On any thread."""
        with self._lock:
            self._counts["lost"] += number
