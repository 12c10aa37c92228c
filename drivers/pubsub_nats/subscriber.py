"""The receiving half of the NATS driver."""

import threading
import uuid
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final

from nats.aio.subscription import Subscription

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.driver_state import SubscriberState, check_topic
from pubsub_lib.errors import FrameError
from pubsub_lib.hello_requests import request_limits
from pubsub_lib.logs import logger
from pubsub_lib.receive_queue import ReceiveQueue
from pubsub_nats.client import Access, NatsClient
from pubsub_nats.connection import Calls, Connection
from pubsub_nats.subjects import Subjects, token

_log = logger(__name__)

_STOP: Final = 0.9
"""Maximum seconds to wait for each of the two threads."""
_MAX_ASKS: Final = 1000
"""Maximum number of hello requests that wait to be sent; the library asks again."""
_CONNECTED: Final = ("", b"")
"""A marker instead of a message, compared by identity: a connection was made."""


class NatsSubscriber(Subscriber):
    """The connection's thread puts messages into a bounded queue; the receiving thread decodes and delivers them."""

    def __init__(self, access: Access, limits: Limits) -> None:
        self._limits = limits
        self._subjects = Subjects(access.options.prefix)
        self._inbox = self._subjects.inbox(uuid.uuid4().hex)
        self._queue = ReceiveQueue[tuple[str, bytes]](access.options.pending_messages, access.options.pending_bytes)
        """Subject and body of each message."""
        calls = Calls(self._open, self._take, self._mark, self._follow)
        self._connection = Connection(access, "pubsub-nats-subscriber", calls)
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        self._changed: set[str] = set()
        """Topics that were registered or unregistered since the connection's thread looked."""
        self._asks: deque[tuple[str, bytes]] = deque(maxlen=_MAX_ASKS)
        self._life = SubscriberState(self._lock, _log, ("lost",))
        """Its counter ``lost`` is only of the connection's thread."""
        self._subscribed: dict[str, Subscription] = {}
        """By topic, of this connection. Only of the connection's thread."""

    # -- the caller's side -----------------------------------------------------------------------------------------

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`."""
        self._life.initialize(on_envelope, on_connected)

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`."""
        self._change(check_topic(topic), self._topics.add)

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`."""
        self._change(check_topic(topic), self._topics.discard)

    def _change(self, topic: str, change: Any) -> None:
        self._life.check_open()
        with self._lock:
            change(topic)
            self._changed.add(topic)
        self._connection.wake()

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.request_hello`. Without a connection the request is dropped: the
        library asks again when there is one."""
        self._life.check_open()
        frame = codec.hello_request_frame(nonce, topics, request_limits(self._limits))
        if self._connection.is_connected:
            self._asks.append((f"{self._inbox}.{token(nonce)}", frame))
            self._connection.wake()

    def daemonize(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.daemonize`."""

        def prepare() -> Any:
            self._connection.start()
            return self._receive

        self._life.start("pubsub-nats", prepare)

    def counters(self) -> Mapping[str, int]:
        """The counters that the API requires; ``lost``: messages that found no room in the queue."""
        self._life.check_process()
        return {**self._life.counts, **self._connection.counts}

    def close(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.close`."""
        self._life.close(self._wake, _STOP)
        if not self._life.inherited:
            self._connection.join(_STOP)

    def _wake(self) -> None:
        self._queue.close()
        self._connection.stop()

    # -- the connection's thread ---------------------------------------------------------------------------------

    async def _open(self, client: NatsClient) -> None:
        self._subscribed = {}
        self._asks.clear()
        with self._lock:
            self._changed = set(self._topics)
        for subject in (self._subjects.hello, f"{self._inbox}.>"):
            await client.subscribe(subject)
        await self._subscribe(client)

    def _mark(self) -> None:
        self._queue.mark(_CONNECTED)

    async def _follow(self, client: NatsClient) -> None:
        """Subscribe as topics are registered, and send hello requests."""
        while True:
            await self._subscribe(client)
            while self._asks:
                reply, frame = self._asks.popleft()
                await client.publish(self._subjects.ask, frame, reply)
            await self._connection.woken()

    async def _subscribe(self, client: NatsClient) -> None:
        """Subscribe to ``ALL`` alone when it is registered: a server sends a message once for each subscription."""
        with self._lock:
            changed, self._changed = self._changed, set()
            if ALL in changed:
                changed = self._subscribed.keys() | self._topics
            wanted = {ALL} if ALL in self._topics else changed & self._topics
        for topic in wanted - self._subscribed.keys():
            self._subscribed[topic] = await client.subscribe(self._subjects.pattern(topic))
        for topic in (changed & self._subscribed.keys()) - wanted:
            await self._subscribed.pop(topic).unsubscribe()

    def _take(self, subject: str, reply: str, data: bytes) -> None:
        if not self._queue.put((subject, data), len(data)) and not self._life.closed:
            self._life.counts["lost"] += 1

    # -- the receiving thread --------------------------------------------------------------------------------------

    def _receive(self) -> None:
        while items := self._queue.wait():
            for item in items:
                if self._life.closed:
                    return
                if item is _CONNECTED:
                    self._life.connected()
                    continue
                subject, body = item
                try:
                    head = self._subjects.head(subject)
                except FrameError as error:
                    self._life.drop(error)
                else:
                    self._life.receive((head, body), self._limits)
