"""The receiving half: callers queue orders, and one thread subscribes and receives on a connection."""

import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.driver_state import SubscriberState, check_topic
from pubsub_lib.errors import FrameError
from pubsub_lib.hello_requests import request_limits
from pubsub_lib.logs import logger
from pubsub_redis.connection import Command, Link
from pubsub_redis.frames import Channels, encode_pair, read_pair
from pubsub_redis.options import RedisOptions, Server

_log = logger(__name__)

_STOP: Final = 1.8  # seconds
_MAX_ORDERS: Final = 10_000
"""Number of orders that wait for the thread, above which hello requests are dropped: replicas ask again."""


class RedisSubscriber(Subscriber):
    """Topics stay subscribed beside the pattern of all topics, whose messages then come twice: once for the channel,
    once for the pattern. The thread drops the first, from the moment at which the server confirmed the pattern."""

    def __init__(self, options: RedisOptions, server: Server, limits: Limits) -> None:
        self._options = options
        self._server = server
        self._limits = limits
        self._channels = Channels(options.prefix)
        self._inbox = uuid.uuid4().hex.encode()
        self._own = (self._channels.of_inbox(self._inbox), self._channels.of_topic(ALL))
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        self._orders: list[Command] = []
        self._attached = False
        """Whether orders are carried out: otherwise the next connection subscribes to the topics."""
        self._everything = False
        """Whether the server has confirmed the pattern of all topics on this connection."""
        self._link: Link | None = None
        self._life = SubscriberState(self._lock, _log, ("unsent_requests",))

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`. Nothing is connected before ``daemonize``."""
        self._life.initialize(on_envelope, on_connected)

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`. Takes effect when the server has received it."""
        self._change(check_topic(topic), True)

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`."""
        self._change(check_topic(topic), False)

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.request_hello`. Without a connection nothing is sent: the
        replica asks again after the next one."""
        self._life.check_open()
        request = encode_pair(self._inbox, codec.hello_request_frame(nonce, topics, request_limits(self._limits)))
        with self._lock:
            if self._attached and len(self._orders) < _MAX_ORDERS:
                self._order([("PUBLISH", self._channels.requests, request)])
            else:
                self._life.counts["unsent_requests"] += 1

    def daemonize(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.daemonize`."""
        self._life.start("pubsub-redis", self._prepare)

    def counters(self) -> Mapping[str, int]:
        """The counters that the API requires, ``unsent_requests`` (hello requests while there was no connection), and
        those of :class:`.connection.Link`."""
        self._life.check_process()
        return {**self._life.counts, **(self._link.counts if self._link is not None else {})}

    def close(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.close`."""
        self._life.close(self._end, _STOP)

    def _prepare(self) -> partial[None]:
        self._link = link = Link(self._options, self._server, _log)
        return partial(link.run, self)

    def _end(self) -> None:
        if self._link is not None:
            self._link.stop()
            self._link.cut()

    def _change(self, topic: str, wanted: bool) -> None:
        self._life.check_open()
        with self._lock:
            if (topic in self._topics) == wanted:
                return
            (self._topics.add if wanted else self._topics.discard)(topic)
            if self._attached:
                self._order([self._subscribing(topic, wanted)])

    def _subscribing(self, topic: str, wanted: bool = True) -> Command:
        command = "SUBSCRIBE" if wanted else "UNSUBSCRIBE"
        return (command, self._channels.of_topic(topic)) if topic else (f"P{command}", self._channels.everything)

    def _order(self, commands: list[Command]) -> None:
        self._orders += commands
        assert self._link is not None  # it attached this half
        self._link.wake()

    # -- the connection's thread --------------------------------------------------------------------------------------

    def own(self) -> Command:
        """Subscribe to the inbox, and to hellos to every subscriber."""
        return ("SUBSCRIBE", *self._own)

    def greeting(self) -> list[Command]:
        """Subscribe to everything that is registered."""
        with self._lock:
            self._attached = True
            self._orders.clear()
            self._everything = False
            return [self._subscribing(topic) for topic in self._topics]

    def orders(self) -> list[Command]:
        """What callers ordered."""
        with self._lock:
            taken, self._orders = self._orders, []
        return taken

    def connected(self) -> None:
        """All registered topics are subscribed to, except those that the server refused."""
        self._life.connected()

    def disconnected(self, reason: str, final: bool) -> None:
        """Wait for the next connection."""
        with self._lock:
            self._attached = False
            self._orders.clear()

    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        """Deliver an envelope, or note the confirmation of the pattern."""
        if kind == b"pmessage":
            self._deliver(*rest[1:])
        elif kind == b"message":
            if not (self._everything and self._channels.is_data(rest[0])):
                self._deliver(*rest)
        elif kind in (b"psubscribe", b"punsubscribe"):
            self._everything = kind == b"psubscribe"

    def refused(self, reason: str) -> None:
        """Topics are not received, or hello requests are not sent."""
        _log.warning("%s", reason)

    def _deliver(self, channel: bytes, data: bytes) -> None:
        if self._life.closed:
            return
        try:
            pair = read_pair(data, self._limits)
            if not self._channels.fits(channel, pair[0]):
                raise FrameError(f"the frame {pair[0][:40]!r} came on the channel {channel!r}", "foreign")
        except FrameError as error:
            self._life.drop(error)
            return
        self._life.receive(pair, self._limits)
