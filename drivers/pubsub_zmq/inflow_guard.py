"""Pauses connections whose subscriptions occupy the sending thread, so that one client cannot silence others by them.

libzmq applies all subscriptions that have arrived before it returns from a call on the socket, also from a send. Each
byte of a subscription is a node of its tree, so a subscription of 2 KiB and its end take 0.2 ms of processor time. A
client sends both in 10 µs, and libzmq would not return for as long as the client sends. No code of the thread that uses
the socket can run meanwhile. So another thread finds out by the kernel's counters which connections bring so much, and
the kernel drops their data for a moment: TCP sends it again later, and nothing is lost.

Connections that end occupy the thread, too: for each, libzmq walks through its whole tree. Subscriptions to buckets
(:mod:`.buckets`) keep that short. Those to names do not: a walk takes 26 ms at 10,000 random names, and hundreds of
connections that end together silence the others for seconds. While a call lasts long, new connections are dropped, so
that it ends at last; those that were made before are not bounded.
"""

import bisect
import ctypes
import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pubsub_lib.logs import logger

_log = logger(__name__)

_LOOK: Final = 0.1
"""Seconds between two looks at the sending thread."""
_BUSY: Final = 0.05
"""Seconds in one call after which the counters are read."""
_STEP: Final = 0.05
"""Seconds between two readings of the counters while the call lasts; connections are compared from the second on."""
_HOLD: Final = 0.15
"""Seconds in one call after which new connections are dropped until it ends. Clients connect again by themselves, after
about a second."""
PAUSE: Final = 0.5
"""Seconds for which a connection's data is dropped. Much less than the time after which its client gives it up."""
REST: Final = 64 * 1024
"""Bytes that all connections together may bring in a step without a pause. libzmq needs 6 ms for them."""
_SHARE: Final = 20
"""A look at all connections is followed by a pause of 20 times its duration: 10,000 connections take 20 ms."""
ALARM: Final = 10.0
"""Seconds after a pause, or after new connections were held, for which senders leave the socket to its own thread."""
_ATTACH_FILTER, _DETACH_FILTER = 26, 27  # SO_ATTACH_FILTER and SO_DETACH_FILTER, which Python does not name
_DROP_DATA: Final = struct.pack("HBBI", 6, 0, 0, 1)
"""One instruction: accept 1 byte of the packet. TCP's header always stays, so acknowledgements of what is sent to the
client still arrive."""
_RECEIVED_AT: Final = 128
"""Offset of ``tcpi_bytes_received`` in the kernel's ``struct tcp_info``; Linux 4.1 and newer have it."""
_INFO_BYTES: Final = _RECEIVED_AT + 8
_ESTABLISHED: Final = 1  # tcpi_state
_getsockopt: Final = ctypes.CDLL(None).getsockopt
_FOLDER: Final = "/proc/self/fd"


def busiest(brought: Mapping[int, int]) -> list[int]:
    """The connections to pause: those that brought most bytes, until the others brought at most ``REST`` together."""
    chosen = []
    left = sum(brought.values())
    for descriptor in sorted(brought, key=lambda each: -brought[each]):
        if left <= REST:
            break
        chosen.append(descriptor)
        left -= brought[descriptor]
    return chosen


def received() -> dict[int, int]:
    """The received bytes of each TCP connection of this process, by its descriptor."""
    with os.scandir(_FOLDER) as entries:  # not by Path, which takes three times as long
        descriptors = [int(each.name) for each in entries]
    return {each: number for each in descriptors if (number := received_by(each)) is not None}


def received_by(descriptor: int) -> int | None:
    """The received bytes of this TCP connection; None for a file, another kind of socket, or a closed one."""
    info = ctypes.create_string_buffer(_INFO_BYTES)
    size = ctypes.c_int(_INFO_BYTES)
    if _getsockopt(descriptor, socket.IPPROTO_TCP, socket.TCP_INFO, info, ctypes.byref(size)) != 0:
        return None
    if size.value != _INFO_BYTES or info.raw[0] != _ESTABLISHED:
        return None
    return int(struct.unpack_from("Q", info.raw, _RECEIVED_AT)[0])


def copy_of(descriptor: int) -> socket.socket:
    """The socket with this descriptor, by a copy of it. Raises OSError when it is none, or closed."""
    copied = os.dup(descriptor)
    try:
        return socket.socket(fileno=copied)
    except OSError:
        os.close(copied)  # a file has the number now
        raise


def is_of(descriptor: int, port: int) -> bool:
    """Whether this is a connection to this port of this process. Raises OSError when no file is left for a copy."""
    try:
        with copy_of(descriptor) as connection:
            return belongs(connection, port)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # it is logged
        return False  # closed meanwhile


def end(descriptor: int) -> str | None:
    """End this connection. Its client's address; None when it is closed already."""
    try:
        with copy_of(descriptor) as connection:
            peer: str = connection.getpeername()[0]
            # The close by ZeroMQ resets it then; else the kernel would keep it for a minute, and its client longer.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return None
    return peer


def belongs(connection: socket.socket, port: int) -> bool:
    """Whether this is a connection to this port, and no other kind of socket. Raises OSError."""
    name = connection.getsockname()
    return isinstance(name, tuple) and len(name) > 1 and name[1] == port


class InflowGuard:
    """Watches the connections of one port from its own thread."""

    def __init__(
        self,
        port: int,
        busy_for: Callable[[float], float],
        hold: Callable[[bool], None],
        looks: Sequence[Callable[[Mapping[int, int], float], bool]] = (),
    ) -> None:
        """``busy_for``: for how many seconds a thread has been in a call on the socket, at this monotonic time.
        ``hold`` makes the kernel drop new connections, or not. ``looks`` are called about ten times a second with the
        received bytes of each connection and the time, and return whether to look again sooner.
        """
        self._looks = looks
        self._look_at = float("-inf")
        self._soon = False
        self._port = port
        self._busy_for = busy_for
        self._hold = hold
        self._closed = threading.Event()
        self._paused: list[tuple[float, socket.socket]] = []
        """When each pause ends, and a copy of the connection's descriptor; in order of these times."""
        self.paused = 0
        """Number of pauses."""
        self.alarmed = False
        """Whether a call on the socket lasted long because of clients just now, so that the next one may, too."""
        self._alarmed_until = float("-inf")

    def run(self) -> None:
        """Watch until :meth:`close`. The guard's thread."""
        before: dict[int, int] = {}
        while not self._closed.wait(_STEP if before or self._soon else _LOOK):
            try:
                now = time.monotonic()
                self._resume(now)
                busy = self._busy_for(now)
                self._hold(busy >= _HOLD)  # first: comparing thousands of connections takes long
                before = self.compare(before) if busy >= _BUSY else {}
                if self._paused or busy >= _HOLD:
                    self._alarmed_until = now + ALARM
                self.alarmed = now < self._alarmed_until
                self._look(now)
            except Exception:  # noqa: BLE001 - without this thread, one client could silence the others again
                _log.exception("watching what clients send to port %d continues after an error", self._port)
        self._resume(float("inf"))

    def close(self) -> None:
        """End the thread, which ends all pauses. Idempotent."""
        self._closed.set()

    def compare(self, before: Mapping[int, int]) -> dict[int, int]:
        """Pause the connections that brought most since ``before``, an earlier result; none when it is empty."""
        now = received()
        if not before:
            return now
        grown = {each: number - before.get(each, 0) for each, number in now.items()}
        mine = {each: number for each, number in grown.items() if number > 0 and is_of(each, self._port)}
        chosen = busiest(mine)
        for descriptor in chosen:
            self.pause(descriptor, mine[descriptor], PAUSE, "while they kept the sending thread from sending")
        return received() if chosen else now  # again: a paused one brings nothing more, and is not chosen twice

    def _look(self, now: float) -> None:
        if not self._looks or now < self._look_at:
            return
        found = received()
        soon = [look(found, now) for look in self._looks]
        self._soon = any(soon)
        self._look_at = now + _SHARE * (time.monotonic() - now)

    def number_paused(self) -> int:
        """The number of connections that are paused now."""
        return len(self._paused)

    def pause(self, descriptor: int, brought: int, seconds: float, reason: str) -> None:
        """Drop the data of this connection, which brought this number of bytes. The guard's thread."""
        try:
            connection = copy_of(descriptor)
        except OSError:
            return  # closed meanwhile
        code = ctypes.create_string_buffer(_DROP_DATA)
        if any(os.path.samestat(os.fstat(connection.fileno()), os.fstat(each.fileno())) for _, each in self._paused):
            connection.close()
            return  # what arrived before its pause was counted after it
        try:
            if not belongs(connection, self._port):  # closed meanwhile, and the number is another connection's now
                connection.close()
                return
            peer = connection.getpeername()
            connection.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(code)))
        except OSError as error:
            connection.close()
            if error.errno != errno.ENOTCONN:  # its client ended it meanwhile
                _log.error("cannot pause a connection to port %d: %s", self._port, error.strerror)
            return
        bisect.insort(self._paused, (time.monotonic() + seconds, connection), key=lambda each: each[0])
        self.paused += 1
        _log.warning(
            "the connection from %s to port %d is paused for %s s: it brought %d bytes of subscriptions and hello "
            "requests %s; let a firewall refuse it if it is no replica",
            peer[0],
            self._port,
            seconds,
            brought,
            reason,
        )

    def _resume(self, now: float) -> None:
        while self._paused and self._paused[0][0] <= now:
            _, connection = self._paused.pop(0)
            with connection:
                try:
                    connection.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, struct.pack("i", 0))
                except OSError as error:
                    _log.error("cannot continue a connection to port %d: %s", self._port, error.strerror)
