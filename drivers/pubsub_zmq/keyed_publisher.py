"""The sending half with keys: only known clients can connect, and each receives only topics that it was granted."""

import time
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
import zmq

from pubsub_lib.api import Client
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.curve_keys import KeyPair
from pubsub_lib.errors import TransportError
from pubsub_lib.logs import logger
from pubsub_lib.send_queue import SendQueue
from pubsub_zmq import addresses
from pubsub_zmq.access import Access
from pubsub_zmq.buckets import Heads
from pubsub_zmq.keyed_budget import KeyedBudget
from pubsub_zmq.options import ZmqOptions
from pubsub_zmq.publisher import ZmqPublisher
from pubsub_zmq.sockets import LISTENER_EVENTS, Bound, Monitor, Waker, in_use, make_keyed_xpub, translated
from pubsub_zmq.subscription_budget import descriptor_of
from pubsub_zmq.zap import ZapHandler

_log = logger(__name__)

_NOW: Final = int(zmq.NOBLOCK)
_SUBSCRIPTIONS: Final = 100
"""Maximum number of subscriptions read before the thread sends again."""
_PAUSE: Final = 0.01
"""Seconds between two attempts to bind the address again, which is free as soon as ZeroMQ's thread has closed it."""
_LONG: Final = 1.0
"""Seconds of failed attempts after which an error is logged."""


class KeyedPublisher(ZmqPublisher):
    """ZeroMQ cannot end one client's connection. When a client loses its key or a topic, the socket is therefore made
    again: the others connect again by themselves, find the gap, and read the changes since.

    Broadcast hellos name no topics, because every client receives them. Replicas get their topics' heads and sequences
    by their hello requests.
    """

    def __init__(self, bind_address: str, limits: Limits, options: ZmqOptions, keys: KeyPair) -> None:
        super().__init__(bind_address, limits, options)
        self._keys = keys
        self._budget = self._subscriptions = KeyedBudget(bind_address, options.max_subscription_bytes)
        self._heads = Heads(exact=True)  # a bucket has topics that its subscriber was not granted
        self._access = Access(limits)
        self._zap: ZapHandler | None = None
        self._renewals = self._attempts = 0
        self._applied: dict[bytes, list[tuple[str, int | None]]] = {}
        """Subscriptions applied since all that had arrived were read, each with its clients' keys and connections."""
        self._early: list[tuple[str, int | None]] = []
        """Those of which one has left before its subscription was read."""

    def public_key(self) -> str:
        """See :meth:`pubsub_lib.api.Publisher.public_key`."""
        return self._keys.public

    def admit(self, clients: Collection[Client]) -> None:
        """See :meth:`pubsub_lib.api.Publisher.admit`."""
        if self._access.replace(clients):
            self._stop = True  # the sending thread makes the socket again
            waker = self._waker
            if waker is not None:
                waker.wake()

    def send_event(self, envelope: Envelope) -> None:
        """See :meth:`pubsub_lib.api.Publisher.send_event`."""
        hello = envelope.hello
        if hello is not None and not hello.nonce and hello.sequences:
            bare = msgspec.structs.replace(hello, sequences={}, heads={})
            envelope = msgspec.structs.replace(envelope, hello=bare)
        super().send_event(envelope)

    def counters(self) -> Mapping[str, int]:
        """Those of a publisher without keys, and: ``refused`` connections, ``denied`` subscriptions, and how often the
        socket was ``renewed``, because grants changed or a client misused its connection.
        """
        return {**super().counters(), **self._access.counts, "renewed": self._renewals}

    # -- context and socket ------------------------------------------------------------------------------------------

    def _new_context(self) -> "zmq.Context[zmq.Socket[bytes]]":
        context = super()._new_context()
        try:
            self._zap = ZapHandler(context, self._access.accepts)
        except TransportError:
            context.term()
            raise
        return context

    def _make_socket(self, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
        return make_keyed_xpub(context, self._options, self._keys)

    def _end_context(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        if self._zap is not None:
            self._zap.close()
        super()._end_context(context)

    # -- the sending thread ------------------------------------------------------------------------------------------

    def _run(self, bound: Bound, waker: Waker, outbox: SendQueue) -> None:
        try:
            while not bound[1].closed:  # closed: this publisher was closed while it could not listen again
                _, xpub, monitor = bound
                self._serve(xpub, monitor, waker, outbox)
                if self._life.closed:
                    with self._socket_lock:
                        self._send(xpub, outbox)
                    break
                bound = self._renewed(bound)
        finally:
            self._release(bound, waker)

    def _renewed(self, bound: Bound) -> Bound:
        """End every connection, and listen again at the same address."""
        self._stop = False  # before ``closed`` is read, which close() sets first
        if self._life.closed:
            self._stop = True
        self._renewals += 1
        context, xpub, monitor = bound
        self._watch(monitor)  # the events until now
        self._blame()
        with self._socket_lock:
            self._used = None
            monitor.close()
            xpub.close(0)
        self._sending["disconnected"] += self._connections.renewed()  # before the address is bound again
        self._budget.renewed()
        self._access.renewed()  # while no connection can be made
        begun = time.monotonic()
        logged = False
        while not self._life.closed:
            try:
                xpub, monitor = self._bound_again(context)
            except zmq.ZMQError as error:
                if not logged and time.monotonic() - begun > _LONG:
                    logged = True
                    _log.error("%s", translated(error, f"cannot bind {self.endpoint!r} again", "free the address"))
                time.sleep(_PAUSE)
                continue
            assert self._waker is not None  # initialize() made it
            with self._socket_lock:
                self._used = in_use(xpub, self._waker)
            _log.info("every client of %s connects again, because grants or subscriptions need it", self.endpoint)
            break
        return context, xpub, monitor

    def _bound_again(self, context: "zmq.Context[zmq.Socket[bytes]]") -> "tuple[zmq.Socket[bytes], Monitor]":
        made = self._make_socket(context)
        self._attempts += 1
        monitor: Monitor | None = None
        try:
            monitor = Monitor(made, LISTENER_EVENTS, where=f"inproc://monitor-{self._attempts}")
            made.setsockopt(zmq.IPV6, addresses.is_ipv6(self._address))
            made.bind(self.endpoint)
        except zmq.ZMQError:
            if monitor is not None:
                monitor.close()
            made.close(0)
            raise
        return made, monitor

    def _receive(self, xpub: "zmq.Socket[bytes]") -> bool:
        """As the base class, and apply what is granted. ZeroMQ applies a subscription to the peer of the last received
        one, and keeps these peers in a list beside that of the messages. Two cases in which the lists do not fit end
        all connections: a message that is no subscription, and a peer that left before its subscription was read.
        """
        arrived = False
        more = True
        for _ in range(_SUBSCRIPTIONS):
            try:
                frame = xpub.recv(_NOW, copy=False)
            except zmq.Again:
                more = False
                self._subscriptions.progress.found_empty()
                self._applied.clear()
                self._subscriptions.gone.clear()
                break
            data, user = frame.bytes, _user(frame)
            kind, prefix = data[:1], data[1:]
            if kind not in (b"\0", b"\1"):
                self._access.ban(user)
                return self._distrust()
            self._subscriptions.report(frame, prefix, subscribed=kind == b"\1")
            if kind == b"\0":
                if not user and prefix in self._applied and self._access.is_restricted(prefix):
                    self._early.extend(self._applied[prefix])
                    return self._distrust()
                xpub.setsockopt(zmq.UNSUBSCRIBE, prefix)
                continue
            decision = self._access.decide(user, prefix)
            if decision.subscribe:
                xpub.setsockopt(zmq.SUBSCRIBE, prefix)  # no other call on the socket may come between
                self._applied.setdefault(prefix, []).append((user, descriptor_of(frame)))
                arrived = arrived or prefix[:1] == codec.EVERYTHING
            elif decision.request:
                self._sending["overflow"] += self._asks.put((decision.request,), descriptor_of(frame))
        if not more and self._subscriptions.is_wrong(time.monotonic()):
            return self._distrust()
        if arrived:
            self._asks.connected()
        return more

    def _blame(self) -> None:
        """Note the clients whose early ends have caused this renewal, so that none can cause one after the other."""
        for user in {user for user, descriptor in self._early if descriptor in self._subscriptions.gone}:
            self._access.ended_early(user)
        self._early.clear()
        self._subscriptions.gone.clear()

    def _distrust(self) -> bool:
        """A subscription may have been applied to another peer: end all connections."""
        self._applied.clear()
        self._stop = True
        return False


def _user(frame: zmq.Frame) -> str:
    """The key of the peer that sent this subscription; "" for the ones that ZeroMQ makes when a peer leaves."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""
