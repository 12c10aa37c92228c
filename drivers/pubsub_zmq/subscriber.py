"""The receiving half: an XSUB socket that one thread owns and reads."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

import zmq

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core.limits import Limits
from pubsub_lib.curve_keys import KeyPair, check_key
from pubsub_lib.driver_state import SubscriberState, check_topic
from pubsub_lib.errors import TransportError
from pubsub_lib.logs import logger
from pubsub_zmq import addresses
from pubsub_zmq.contexts import make_context
from pubsub_zmq.options import ZmqOptions
from pubsub_zmq.pending_hellos import RequestPart, parts_of
from pubsub_zmq.receiver import Receiver
from pubsub_zmq.sockets import MAX_REQUEST_BYTES, Monitor, Waker, make_sub, translated

_log = logger(__name__)

_MAX_PARTS: Final = 10_000
"""Maximum number of parts of hello requests that wait for the thread. The oldest are dropped first, because no replica
waits for their replies any more."""
_STOP: Final = 1.9  # seconds


class ZmqSubscriber(Subscriber):
    """Callers queue orders, from any thread; the receiving thread (:mod:`.receiver`) executes them."""

    def __init__(
        self, listen_to: Collection[str], limits: Limits, options: ZmqOptions, keys: KeyPair | None = None
    ) -> None:
        self._listen_to = tuple(listen_to)
        self._limits = limits
        self._options = options
        self._keys = keys
        self._pins: dict[str, str] = {}
        """Address -> the publisher's public key."""
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        self._addresses: set[str] = set()
        self._orders: deque[tuple[str, str]] = deque()
        self._parts: deque[RequestPart] = deque(maxlen=_MAX_PARTS)
        self._waker: Waker | None = None
        more = () if keys is None else ("refused", "unproven")
        self._life = SubscriberState(self._lock, _log, ("revived", "receive_errors", "unwanted", "unfinished", *more))
        pins = None if keys is None else self._pins
        self._receiver = Receiver(limits, options, self._orders, self._parts, self._life, pins)

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`. Nothing is connected before ``daemonize``."""
        self._life.initialize(on_envelope, on_connected)
        for address in self._listen_to:
            self.register_listen_address(address)

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`. Takes effect when the publisher has received it."""
        self._change(self._topics, check_topic(topic), "subscribe", True)

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`."""
        self._change(self._topics, check_topic(topic), "unsubscribe", False)

    def register_listen_address(self, address: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_listen_address`. Raises ConfigError for an invalid address.

        The connection is made in the background, and retried without end. The publisher need not run yet.
        """
        self._life.check_open()
        addresses.check(address)
        self._change(self._addresses, address, "connect", True)

    def unregister_listen_address(self, address: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_listen_address`."""
        self._change(self._addresses, address, "disconnect", False)

    def pin_key(self, address: str, public_key: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.pin_key`. Raises InvalidValueError for text that is not a key."""
        self._life.check_open()
        check_key(public_key)
        with self._lock:
            if self._keys is None or self._pins.get(address) == public_key:
                return
            self._pins[address] = public_key
            if address in self._addresses:
                self._orders.extend((("disconnect", address), ("connect", address)))
                self._wake()

    def know_publishers(self, uuids: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.know_publishers`. Replies of others do not show an older version."""
        self._receiver.known = frozenset(uuids)

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.request_hello`.

        The request is a message to all publishers, which receive it on their XPUB sockets; with keys it is a
        subscription. Replies are awaited for ``answer_time`` seconds, or until every connected publisher has replied.
        A request for many topics is split into several.
        """
        self._life.check_open()
        parts = parts_of(nonce, topics, min(MAX_REQUEST_BYTES, self._limits.max_frame_bytes))
        with self._lock:
            self._parts.extend(parts)
            self._wake()

    def daemonize(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.daemonize`."""
        self._life.start("pubsub-zmq", self._prepare)

    def counters(self) -> Mapping[str, int]:
        """The counters that the API requires, and: ``connected``, ``disconnected`` and ``reconnected`` connections,
        and ``revived`` connections, which ZeroMQ had given up. A connection given up after its handshake counts as
        ``oversized``, the usual cause. ``unwanted``: messages of other topics in the same bucket, and second copies
        (:mod:`.buckets`). ``unfinished``: connections that this end closed, because they brought a message without an
        end (:mod:`.arrivals`). With keys also ``refused`` (a publisher refused this client's key) and
        ``unproven`` (the publisher at an address did not prove that it has the expected key).
        """
        self._life.check_process()
        return self._receiver.counters()

    def close(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.close`."""
        self._life.close(self._wake, _STOP)

    def _prepare(self) -> Callable[[], None]:
        """Make the socket; return the function that the thread runs."""
        waker = Waker()
        try:
            context, sub, monitor = self._open()
        except TransportError:
            waker.close()
            raise
        self._waker = waker
        return partial(self._receiver.run, context, sub, monitor, waker)

    def _open(self) -> "tuple[zmq.Context[zmq.Socket[bytes]], zmq.Socket[bytes], Monitor]":
        context = make_context()
        sub: zmq.Socket[bytes] | None = None
        try:
            sub = make_sub(context, self._options, self._limits, self._keys)
            return context, sub, Monitor(sub, keys=self._keys is not None)
        except zmq.ZMQError as error:
            if sub is not None:
                sub.close(0)
            context.term()
            raise translated(error, "cannot create a socket", "close others, or raise this process's limits") from error

    def _change(self, members: set[str], member: str, order: str, wanted: bool) -> None:
        self._life.check_open()
        with self._lock:
            if (member in members) != wanted:
                (members.add if wanted else members.discard)(member)
                self._orders.append((order, member))
                self._wake()

    def _wake(self) -> None:
        if self._waker is not None:
            self._waker.wake()
