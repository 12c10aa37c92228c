"""Limits the bytes that each TCP subscriber may send, because ZeroMQ itself keeps any number of subscriptions.

ZeroMQ reads subscriptions inside the sending thread's calls, and does not return while more of them arrive. So a thread
of its own reads from the system how much each connection has received, and ends a connection that exceeds its budget.
Then ZeroMQ drops the subscriptions of that connection.
"""

import socket
import struct
import time
from typing import Final

import zmq

from pubsub_lib.logs import logger

_log = logger(__name__)

INTERVAL: Final = 0.25
"""Seconds between two checks of all connections."""
REFILL: Final = 1024 * 1024
"""Bytes a second by which the budget of a connection is filled up again: hello requests are sent all the time."""
ALL_PEERS: Final = 2
"""The different subscriptions of all peers may have this many times the budget of one."""
_TCP_INFO_BYTES: Final = 256
_BYTES_RECEIVED: Final = 128
"""Offset of ``tcpi_bytes_received`` in Linux's ``struct tcp_info``; an unsigned 64-bit integer."""


class _Peer:
    """One accepted connection. ``spent``: the bytes that it has sent, less those that were filled up again."""

    def __init__(self, number: int, now: float) -> None:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=number)
        try:
            self.name = found.getpeername()
        finally:
            found.detach()  # the descriptor is ZeroMQ's
        self._number = number
        self._at = now
        self.received = 0
        self.spent = 0.0

    def check(self, now: float) -> None:
        """Read what the connection has received. Raises OSError when it is closed, or another one has its number."""
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=self._number)
        try:
            info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        finally:
            found.detach()  # the descriptor is ZeroMQ's
        if len(info) < _BYTES_RECEIVED + 8:
            raise OSError("this system does not count the bytes of a connection")
        (received,) = struct.unpack_from("Q", info, _BYTES_RECEIVED)
        if received < self.received:
            raise OSError("another connection has this number")
        self.spent = max(0.0, self.spent - REFILL * (now - self._at)) + received - self.received
        self.received, self._at = received, now

    def end(self) -> None:
        """End the connection; ZeroMQ notices it. Raises OSError when it is closed, or another one has its number."""
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=self._number)
        try:
            if found.getpeername() != self.name:
                raise OSError("another connection has this number")
            found.shutdown(socket.SHUT_RDWR)
        finally:
            found.detach()


class PeerBudget:
    """The connections of one publisher and what they have sent. One thread uses it."""

    def __init__(self, address: str, budget: int) -> None:
        self._address = address
        self._budget = budget
        self._peers: dict[int, _Peer] = {}
        self._due = 0.0
        self.ended = 0
        """Connections that exceeded their budget."""

    def event(self, event: int, number: int) -> None:
        """An event of ZeroMQ's monitor, with the connection's number (its file descriptor)."""
        self._peers.pop(number, None)
        if event == zmq.EVENT_ACCEPTED:
            try:
                self._peers[number] = _Peer(number, time.monotonic())
            except (OSError, ValueError):
                pass  # it is closed again

    def wait(self) -> int | None:
        """Milliseconds until the next check; None without connections."""
        return max(1, round(1000 * (self._due - time.monotonic()))) if self._peers else None

    def check(self, subscribed: int) -> None:
        """End the connections beyond their budget, if due. ``subscribed``: bytes of all different subscriptions. Call
        it when all events of the monitor were passed on.
        """
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + INTERVAL
        for number, peer in list(self._peers.items()):
            try:
                peer.check(now)
            except OSError:
                del self._peers[number]  # closed; its event follows
                continue
            if peer.spent > self._budget:
                self._end(number, peer, f"sent {int(peer.spent)} bytes of subscriptions and hello requests")
        if subscribed > ALL_PEERS * self._budget and self._peers:
            number, peer = max(self._peers.items(), key=lambda each: each[1].received)
            self._end(number, peer, f"sent the most of {subscribed} bytes of subscriptions of all peers")

    def _end(self, number: int, peer: _Peer, reason: str) -> None:
        del self._peers[number]
        try:
            peer.end()
        except OSError:
            return  # it has ended
        self.ended += 1
        _log.warning(
            "the connection of %s to %s was closed: it %s; raise max_subscription_bytes in [pubsub_zmq] if it is a "
            "replica",
            peer.name[0],
            self._address,
            reason,
        )
