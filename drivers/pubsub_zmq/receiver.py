"""The receiving thread: executes orders, reads the socket, and maintains connections and hello requests."""

import errno
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import zmq

from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.driver_state import SubscriberState
from pubsub_lib.errors import FrameError
from pubsub_lib.logs import logger
from pubsub_zmq import addresses
from pubsub_zmq.arrivals import Arrivals
from pubsub_zmq.buckets import Topics, is_bucketed, plain
from pubsub_zmq.connection_monitor import ConnectionMonitor
from pubsub_zmq.options import ZmqOptions
from pubsub_zmq.pending_hellos import SUBSCRIBE, PendingHellos, RequestPart
from pubsub_zmq.sockets import REFUSED, UNPROVEN, Monitor, Waker, expect_server, translated

_log = logger(__name__)

_BURST: Final = 500
"""Maximum number of messages received before orders, connections and deadlines are checked again."""
_POLLIN: Final = int(zmq.POLLIN)
_MAX_QUIET: Final = 30.0
"""Seconds added to the duration of retries, because ZeroMQ's thread blocks while it resolves a host name."""
HANDSHAKE_SUCCEEDED: Final = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_UNSUBSCRIBE: Final = b"\0"
_MAX_WAIT: Final = 3600.0  # seconds; poll() counts milliseconds in an int


class Receiver:
    """The work of a subscriber's thread. Other threads fill ``orders`` and ``parts``; deques need no lock.

    ``orders``: ("subscribe" | "unsubscribe", topic) and ("connect" | "disconnect", address), in order. ``pins``: the
    public key expected at each address, to which no connection is made without one; None without keys.
    """

    def __init__(
        self,
        limits: Limits,
        options: ZmqOptions,
        orders: deque[tuple[str, str]],
        parts: deque[RequestPart],
        life: SubscriberState,
        pins: Mapping[str, str] | None = None,
    ) -> None:
        self._limits = limits
        self._orders = orders
        self._parts = parts
        self._life = life
        self._pins = pins
        self._topics = Topics(exact=pins is not None)
        self._failing: set[str] = set()
        """Addresses whose last handshake failed, with keys."""
        self._pending = PendingHellos(options.answer_time, subscribes=pins is not None)
        self.known: frozenset[str] | None = None
        """The UUIDs of the publishers that may show an older version; None: all. Other threads replace it."""
        self._health = ConnectionMonitor(
            options.reconnect_interval,
            options.max_reconnect_interval,
            _MAX_QUIET + 2 * (options.connect_timeout + options.max_reconnect_interval),
        )
        # Only the thread counts, and keys never change, so that readers copy without a lock and the hot path has none.
        self._counts = life.counts
        buffered = options.buffered_frames(limits.max_frame_bytes)
        self._arrivals = Arrivals(limits.max_frame_bytes, buffered, self._counts)

    def counters(self) -> Mapping[str, int]:
        """Any thread."""
        return {**self._counts, **self._health.counts}

    def run(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        sub: "zmq.Socket[bytes]",
        monitor: Monitor,
        waker: Waker,
    ) -> None:
        """Run the thread. Returns only when ``life`` is closed."""
        woken, changed = waker.fileno(), monitor.fileno()
        poller = zmq.Poller()
        # Poll the sockets' descriptors: ZeroMQ's poll of sockets makes some ten system calls more for each message. A
        # descriptor only signals a change since the last use of its socket, so that use must find that nothing waits.
        for each in (int(sub.getsockopt(zmq.FD)), changed, woken):
            poller.register(each, zmq.POLLIN)
        due = 0.0  # time of the next check of connections and hello requests
        empty = False  # whether the last use of the socket found that no message waits
        try:
            self._receive(monitor.events())  # from then on its descriptor signals events
            self._subscribe(sub, [codec.topic_frame(ALL)])  # hellos to all subscribers
            while not self._life.closed:
                try:
                    if self._orders or self._parts:
                        self._carry_out(sub)
                        due = 0.0
                    wait = due - time.monotonic()
                    if wait <= 0:
                        due, empty = self._keep_up(sub), False
                        wait = due - time.monotonic()
                    more = not empty and int(sub.getsockopt(zmq.EVENTS)) & _POLLIN
                    wait = 0.0 if more else min(wait, _MAX_WAIT)
                    ready = dict(poller.poll(round(1000 * max(0.0, wait)) + (wait > 0)))
                    if woken in ready:  # clear() without need would cost more than receiving a message
                        waker.clear()
                    empty = self._drain(sub)
                    if changed in ready:
                        self._receive(monitor.events())
                        due = 0.0
                except Exception:  # noqa: BLE001 - without this thread, no message would be received again
                    empty = False
                    self._counts["receive_errors"] += 1
                    _log.exception("the receiving thread continues after an error")
        finally:
            monitor.close()
            sub.close(0)
            context.term()
            waker.close()

    # -- orders ------------------------------------------------------------------------------------------------------

    def _carry_out(self, sub: "zmq.Socket[bytes]") -> None:
        while self._orders:
            order, what = self._orders.popleft()
            if order == "subscribe":
                self._subscribe(sub, self._topics.add(what))
            elif order == "unsubscribe":
                self._unsubscribe(sub, self._topics.remove(what))
            elif order == "connect":
                self._connect(sub, what)
            else:
                self._disconnect(sub, what)
                self._health.removed(what)
                self._failing.discard(what)
        while self._parts:
            messages, ended = self._pending.request(self._parts.popleft(), time.monotonic(), self._connections())
            for message in messages:
                sub.send(message)
            self._unsubscribe(sub, ended)

    def _connections(self) -> int:
        """Number of connections that have begun or ended until now; 0 when none is open."""
        counts = self._health.counts
        return counts["connected"] + counts["disconnected"] if self._health.up else 0

    def _connect(self, sub: "zmq.Socket[bytes]", address: str) -> None:
        expected = None if self._pins is None else self._pins.get(address)
        if self._pins is not None and expected is None:
            return  # pin_key() connects when the key is known
        self._health.added(address, time.monotonic())
        try:
            if expected is not None:
                expect_server(sub, expected)
            # Set for this connection only: otherwise the monitor would report IPv4 addresses in another notation.
            sub.setsockopt(zmq.IPV6, addresses.is_ipv6(address))
            sub.connect(address)
        except zmq.ZMQError as error:
            self._counts["receive_errors"] += 1
            _log.error("%s", translated(error, f"cannot listen to {address!r}", "correct this publisher's address"))

    def _disconnect(self, sub: "zmq.Socket[bytes]", address: str) -> None:
        try:
            sub.disconnect(address)
        except zmq.ZMQError as error:
            if error.errno != errno.ENOENT:  # never connected, or already disconnected
                raise

    def _subscribe(self, sub: "zmq.Socket[bytes]", frames: Sequence[bytes]) -> None:
        for frame in frames:
            sub.send(SUBSCRIBE + frame)

    def _unsubscribe(self, sub: "zmq.Socket[bytes]", frames: Sequence[bytes]) -> None:
        for frame in frames:
            sub.send(_UNSUBSCRIBE + frame)

    # -- messages ----------------------------------------------------------------------------------------------------

    def _drain(self, sub: "zmq.Socket[bytes]") -> bool:
        """Receive until nothing waits (True), at most ``_BURST`` messages. The attempt that finds nothing takes longer
        than a look at the events, but lets the handler's thread run: with the look, a handler began 12 µs later.
        """
        receive = self._arrivals.read
        for _ in range(_BURST):
            if self._life.closed:
                return False
            try:
                frames = receive(sub)
            except zmq.Again:
                return True
            head = frames[0]
            if not self._topics.wants(head):
                self._counts["unwanted"] += 1
                continue
            if is_bucketed(head):
                frames[0] = plain(head)
            try:
                envelope = codec.decode(frames, self._limits)
            except FrameError as error:
                self._life.drop(error)
                continue
            if self._topics.named and self._topics.repeats(head, frames[1]):
                self._counts["unwanted"] += 1
                continue
            if envelope.hello is not None and envelope.hello.nonce:
                if not self._pending.has(envelope.hello.nonce):
                    self._counts["unwanted"] += 1  # the request has ended
                    continue
                self._meet(sub, envelope.uuid, frames[1])
                envelope, ended = self._pending.answered(envelope, self._health.up)
                self._unsubscribe(sub, ended)
            self._counts["received"] += 1
            self._life.deliver(envelope)
        return False

    def _meet(self, sub: "zmq.Socket[bytes]", uuid: str, body: bytes) -> None:
        """A reply to an own request came. When it is the first one of an older version, subscribe to names, too; what
        that publisher sent before is then missed, as on a new connection.
        """
        if self.known is not None and uuid not in self.known:
            return
        names = self._topics.meets(body)
        if names:
            self._subscribe(sub, names)
            self._life.connected()
            _log.info("a publisher of an older version sends data by topics; subscribing to topics, too")

    # -- connections and deadlines -----------------------------------------------------------------------------------

    def _receive(self, events: Iterable[tuple[int, str, int]]) -> None:
        now = time.monotonic()
        connected = self._health.counts["connected"]
        for event, endpoint, number in events:
            self._arrivals.event(event, endpoint, number, now)
            self._health.event(event, endpoint, now)
            if self._pins is not None:
                self._note_handshake(event, endpoint)
        # On a new connection, ZeroMQ first sends the socket's subscriptions; a hello request made from now on comes
        # after them.
        if self._health.counts["connected"] > connected:
            self._life.connected()

    def _note_handshake(self, event: int, endpoint: str) -> None:
        behind = self._health.behind(endpoint)
        if event == HANDSHAKE_SUCCEEDED:
            self._failing -= behind
            return
        if event == REFUSED:
            self._counts["refused"] += 1
            reason = "refuses the key of this client; see pubsub-db clients list, and compare it with client_key_file"
        elif event in UNPROVEN:
            self._counts["unproven"] += 1
            reason = "did not prove the key in the directory: it was restarted, or another program has its address"
        else:
            return
        if not behind <= self._failing:
            self._failing |= behind
            _log.warning("the publisher at %s %s", endpoint, reason)

    def _keep_up(self, sub: "zmq.Socket[bytes]") -> float:
        """Connect again, expire hello requests and end connections without whole messages, as far as due. Return the
        time of the next call; an order or an event may make one necessary before."""
        now = time.monotonic()
        self._arrivals.look(sub, self._health.addresses, now)
        for gone in self._health.given_up(now):
            self._counts["revived"] += 1
            self._counts["oversized"] += gone.was_up
            # ZeroMQ also gives up after a failed handshake, which is logged once.
            if self._failing.isdisjoint(gone.addresses):
                names = " or ".join(gone.addresses)
                _log.warning("ZeroMQ gave up %s (a frame too large, or not ZeroMQ); connecting again", names)
            for address in gone.addresses:
                self._disconnect(sub, address)
                self._connect(sub, address)
        self._unsubscribe(sub, list(self._pending.expired(now, self._connections())))
        return min(self._pending.next_time(), self._health.next_time(), self._arrivals.next_time)
