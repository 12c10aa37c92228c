"""Bounds the memory for subscriptions, which ZeroMQ keeps without a limit: chooses the connections that must end.

Without keys, ZeroMQ reports each different subscription once, with the descriptor of the connection that made it first,
and its end once, without a descriptor when its last connection has ended. So the total is right, and a connection's
share is not: when the shares do not explain the total, all connections end. A program that ends subscriptions which it
never made lowers the total, because ZeroMQ reports that, too. With keys: see :mod:`.keyed_budget`.
"""

import ctypes
from collections import Counter
from typing import Final

import zmq

from pubsub_lib.logs import logger
from pubsub_zmq.buckets import is_few
from pubsub_zmq.connection_limit import ConnectionLimit
from pubsub_zmq.reading_progress import ReadingProgress

_log = logger(__name__)

MUCH: Final = 8 * 1024 * 1024
"""Bytes of different subscriptions, as they count. More cause a warning: they need 40 times the memory."""
TABLE: Final = 56
"""Bytes that each subscription counts beside its prefix. A node of ZeroMQ's tree has 40 bytes and a pointer to its one
child, or a table of pointers to more, with up to 256 entries of 8 bytes for the smallest and the largest byte and those
between. A tree has at most one node with a table for each subscription, so all is at most 40 bytes of memory for each
counted one. Without this number, prefixes of 4 bytes whose last bytes are 0 and 255 took 300 bytes for each."""
WORTH: Final = 1_000_000
"""Bytes of subscriptions, as they count, whose memory is returned when half of them have ended, for whatever cause."""
PAUSE: Final = 1.0
"""Seconds before further connections are ended: the subscriptions of the first ones must be gone before."""
REQUEST: Final = b"H"
"""The first byte of a hello request that is no subscription."""
_DESCRIPTOR: Final = "__fd"
"""The property of a received message that ZMQ_SRCFD returns."""


def return_memory() -> None:
    """Give freed memory back to the system, which the C library keeps otherwise: all of it, after 40 MB of ended
    subscriptions 1.9 GB. Blocks for 0.3 s then.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc only
    if trim is not None:
        trim(0)


def descriptor_of(frame: "zmq.Frame") -> int | None:
    """The connection that sent this subscription; None for an end that ZeroMQ reports when a connection has ended."""
    try:
        return int(frame.get(_DESCRIPTOR))
    except zmq.ZMQError:
        return None


def request_in(message: bytes) -> bytes:
    """The hello request that a publisher's socket received; b"" when the message is none. Since 1.7 of the wire it is
    the message. Before, and with keys, it is a subscription: its nonce ends with NUL, and topics follow.
    """
    if message[:1] == REQUEST:
        return message
    return message[1:] if message[:2] == b"\1" + REQUEST and b"\0" in message[2:-1] else b""


class SubscriptionBudget:
    """The shares of the connections. One thread. ``maximum`` 0: ``AUTOMATIC``."""

    AUTOMATIC = 4 * 1024
    """No replica of this version needs any. libzmq walks through its tree for each connection that ends, and this keeps
    it below 1 ms. Some hundred connections may end before the guard can drop new ones."""

    def __init__(self, address: str, maximum: int) -> None:
        self.address = address
        """For the log; a publisher sets the bound one."""
        self.maximum = maximum or self.AUTOMATIC
        self.progress = ReadingProgress()
        self.total = 0
        """Bytes of all different subscriptions now, each with ``TABLE``; without those that are few anyway."""
        self._shares = Counter[int]()
        self._invalid: set[int] = set()
        """Connections that sent something else and are to be ended."""
        self._refused: set[int] = set()
        """Those that were ended for it: what they had sent before still arrives."""
        self._not_before = 0.0
        self._peak = 0
        """The largest total since memory was returned."""

    def received(self, frame: "zmq.Frame", data: bytes) -> bool:
        """A message arrived: 1 and the prefix of a subscription, 0 and that of its end, or a hello request, for which
        ZeroMQ keeps nothing. False: it is none of them. :meth:`enforce` ends the connection.
        """
        kind = data[:1]
        descriptor = descriptor_of(frame)
        size = max(0, len(data) - 1)
        self.progress.read(descriptor, size)
        if kind in (b"\0", b"\1"):
            if is_few(data[1:]):
                return True
            cost = size + TABLE if kind == b"\1" else -size - TABLE
            self.grow(cost)
            self.share(descriptor, cost)
            return True
        if kind == REQUEST:
            return True
        if descriptor is not None and descriptor not in self._refused:
            self._invalid.add(descriptor)
        return False

    def grow(self, size: int) -> None:
        """All different subscriptions together count this number of bytes more."""
        before, self.total = self.total, max(0, self.total + size)  # forged ends must not leave room below 0
        if before <= MUCH < self.total:
            _log.warning(
                "subscribers of %s ask for %d bytes of different topics and hello requests, which need 40 times the "
                "memory: allow only replicas to reach this address",
                self.address,
                self.total,
            )

    def share(self, descriptor: int | None, size: int) -> None:
        """Those of this connection count this number of bytes more; None for a connection that has ended."""
        if descriptor is not None:
            self._shares[descriptor] = max(0, self._shares[descriptor] + size)

    @property
    def wait(self) -> int | None:
        """Milliseconds after which :meth:`enforce` must be called again; None: after the next report."""
        return round(PAUSE * 1000) if self.total > self.maximum else None

    def renewed(self) -> None:
        """All connections have ended with their socket."""
        self.total = 0
        self._shares.clear()
        self._invalid.clear()
        self._refused.clear()

    def disconnected(self, descriptor: int) -> None:
        """A connection has ended."""
        self._shares.pop(descriptor, None)
        self._invalid.discard(descriptor)
        self._refused.discard(descriptor)

    def enforce(self, now: float, connections: ConnectionLimit) -> None:
        """End the connections that must end; when their subscriptions are gone, return the memory to the system."""
        if self._invalid:
            number = sum(connections.end(each) for each in self._invalid)
            self._refused |= self._invalid
            self._invalid.clear()
            if number:
                _log.warning(
                    "%d connections to %s were ended: they sent what is no subscription and no hello request",
                    number,
                    self.address,
                )
        self._peak = max(self._peak, self.total)
        if self._peak > WORTH and self.total <= self._peak // 2:
            self._peak = self.total
            return_memory()
        chosen = self.excess(self.total, now)
        ended = sum(connections.end(each) for each in chosen)
        if chosen:
            _log.warning(
                "%d connections to %s were ended: all subscriptions together have %d bytes, over "
                "max_subscription_bytes (%d); raise it in [pubsub_zmq] if they are those of replicas, which need any "
                "only with keys, or with a version before 1.4 of the wire",
                ended,
                self.address,
                self.total,
                self.maximum,
            )

    def excess(self, total: int, now: float) -> list[int]:
        """The connections to end, those with the largest shares first; none while ``total`` is within the maximum."""
        if total <= self.maximum or now < self._not_before:
            return []
        self._not_before = now + PAUSE
        chosen = []
        left = total
        for descriptor, share in self._shares.most_common():
            if left <= self.maximum:
                break
            chosen.append(descriptor)
            left -= share
        return chosen
