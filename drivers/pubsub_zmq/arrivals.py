"""Ends a subscriber's connections that send a message without an end; see :mod:`.endless`, which decides.

It compares what the receiving thread reads with the kernel's counters of the socket's TCP connections, five times a
second, and more often while one is watched. The receiver reads by :attr:`Arrivals.read`, which is the ordinary function
while none is, so that a message costs nothing more. Connections by a path (``ipc``) have no counters.
"""

import ctypes
import fcntl
import socket
import struct
import termios
from collections.abc import Callable, MutableMapping
from typing import Final, NamedTuple

import zmq

from pubsub_lib.logs import logger
from pubsub_lib.zmq_frames import receive
from pubsub_zmq.endless import Brought, Endless
from pubsub_zmq.inflow_guard import copy_of, end, received_by
from pubsub_zmq.subscription_budget import descriptor_of, return_memory

_log = logger(__name__)

LOOK: Final = 0.2
"""Seconds between two looks at the counters. A fast program brings 3 MB meanwhile."""
_CLOSE_LOOK: Final = 0.05
"""The same while a connection is watched."""
MAX_PARTS: Final = 100
"""Parts of a message that are kept. A message has two; a later version may have some more. A connection that sends more
is ended, because ZeroMQ counts whole messages, so that many of them can wait, each with any number of parts."""
_MEMORY_AFTER: Final = 2.0
"""Seconds after the end of a connection when its memory is given back to the system. ZeroMQ has freed it by then."""
_LOG_INTERVAL: Final = 60.0
"""Seconds in which the ends of connections to one address are logged once: they are made again at once."""
_POLLIN: Final = int(zmq.POLLIN)
_NOW: Final = int(zmq.NOBLOCK)
_COOKIE: Final = 57  # SO_COOKIE, which Python does not name
_getsockopt: Final = ctypes.CDLL(None).getsockopt


def identity_of(descriptor: int) -> bytes:
    """A number that no other socket of this system has or had; empty for a closed one, or what is no socket."""
    cookie = ctypes.create_string_buffer(8)
    size = ctypes.c_int(len(cookie))
    failed = _getsockopt(descriptor, socket.SOL_SOCKET, _COOKIE, cookie, ctypes.byref(size))
    return b"" if failed else cookie.raw


def brought_by(descriptor: int, last: Brought | None = None) -> Brought | None:
    """The bytes that were taken from this TCP connection until now; None when it is none, or has ended. ``last``: what
    the call before returned; the same object when nothing has come since.
    """
    before = received_by(descriptor)
    if before is None:
        return None
    if last is not None and before == last.least:
        return last  # all had been taken
    try:
        (waiting,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    except OSError:
        return None  # closed meanwhile
    after = received_by(descriptor)
    return None if after is None else Brought(before - waiting, after - waiting)


class _Watched(NamedTuple):
    """A connection: its address as the monitor names it, and the number of its socket."""

    endpoint: str
    identity: bytes


class Arrivals:
    """The connections of one subscriber's socket. Only the thread that reads it."""

    def __init__(self, max_frame_bytes: int, receive_hwm: int, counts: MutableMapping[str, int]) -> None:
        """``counts``: its ``unfinished`` is the number of connections that were ended."""
        self._endless = Endless(max_frame_bytes, receive_hwm)
        self._counts = counts
        self._connections: dict[int, _Watched] = {}
        self._brought: dict[int, Brought] = {}
        """What the connections had brought at the last look."""
        self._logged: dict[str, float] = {}
        """Address -> when an end of its connection was logged last."""
        self._look_at = self._memory_at = float("inf")
        self._now = 0.0
        self.read: Callable[[zmq.Socket[bytes]], list[bytes]] = receive
        """Reads the next message, as :func:`pubsub_lib.zmq_frames.receive`."""

    @property
    def next_time(self) -> float:
        """When :meth:`look` is to be called."""
        return min(self._look_at, self._memory_at)

    def event(self, kind: int, endpoint: str, number: int, now: float) -> None:
        """The monitor reported this event."""
        if kind == zmq.EVENT_CONNECTED:
            self._forget(number)
            identity = identity_of(number)
            if identity and received_by(number) is not None:
                self._connections[number] = _Watched(endpoint, identity)
                self._look_at = min(self._look_at, now + LOOK)
        elif kind == zmq.EVENT_DISCONNECTED and number in self._connections:
            self._lost(number, now)

    def look(self, sub: "zmq.Socket[bytes]", connections: int, now: float) -> None:
        """As far as due: end the connections that must end, and give their memory back. ``connections``: the number of
        addresses to which the socket connects.
        """
        if now >= self._memory_at:
            self._memory_at = float("inf")
            return_memory()
        if now < self._look_at:
            return
        self._now = now
        brought = {}
        for descriptor, watched in list(self._connections.items()):
            last = self._brought.get(descriptor)
            found = brought_by(descriptor, last)
            if found is None or (found is not last and identity_of(descriptor) != watched.identity):
                self._lost(descriptor, now)  # the event comes later, or not if this end disconnected
            else:
                brought[descriptor] = found
        self._brought = brought
        empty = not int(sub.getsockopt(zmq.EVENTS)) & _POLLIN
        for descriptor, size in self._endless.look(brought, connections, empty=empty).items():
            self._end(descriptor, f"{size} bytes without a whole message")
        self.read = self._receive if self._endless.watched else receive
        self._look_at = now + (_CLOSE_LOOK if self._endless.watched else LOOK) if self._connections else float("inf")

    def _receive(self, sub: "zmq.Socket[bytes]") -> list[bytes]:
        """The frames of the next message, at most ``MAX_PARTS``, of a watched connection."""
        if not self._endless.watched:
            if self.read is not receive:  # the receiver may call this a few times more
                self.read = receive
                self._look_at += LOOK - _CLOSE_LOOK
            return receive(sub)
        frames = []
        number = 0
        more = True
        while more:
            frame = sub.recv(_NOW, copy=False)
            more = frame.more
            number += 1
            if number <= MAX_PARTS:
                frames.append(frame.bytes)
            elif number == MAX_PARTS + 1:
                self._end(descriptor_of(frame), f"a message of more than {MAX_PARTS} parts")
        self._endless.read(descriptor_of(frame))
        return frames

    def _lost(self, descriptor: int, now: float) -> None:
        """It ended by itself, perhaps in the middle of a message: what it brought since the last look is not known."""
        self._memory_at = min(self._memory_at, now + _MEMORY_AFTER)
        self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._connections.pop(descriptor, None)
        self._brought.pop(descriptor, None)
        self._endless.forget(descriptor)

    def _end(self, descriptor: int | None, sent: str) -> None:
        """End this connection; ZeroMQ then frees what it holds of it, and connects again."""
        watched = None if descriptor is None else self._connections.get(descriptor)
        if descriptor is None or watched is None:
            return
        try:
            with copy_of(descriptor) as connection:  # no other one can get the number of a copy meanwhile
                own = identity_of(connection.fileno()) == watched.identity
                ended = own and end(connection.fileno()) is not None
        except OSError:
            return  # closed, which the next look finds; or no file is left for a copy: the next look tries again
        self._forget(descriptor)
        if not ended:
            return
        self._counts["unfinished"] += 1
        self._memory_at = min(self._memory_at, self._now + _MEMORY_AFTER)
        if self._now >= self._logged.get(watched.endpoint, float("-inf")) + _LOG_INTERVAL:
            self._logged[watched.endpoint] = self._now
            _log.warning(
                "the connection to the publisher at %s was ended, and is made again: it sent %s, which no publisher "
                "does; another program has this address: end it, or let a firewall refuse it",
                watched.endpoint,
                sent,
            )
