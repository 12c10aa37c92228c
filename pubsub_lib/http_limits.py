"""Limits of an HTTP endpoint: connections, time, bytes, names of the host, and pauses between costly requests."""

import array
import contextlib
import fcntl
import io
import ipaddress
import socket
import termios
import threading
import time
from collections.abc import Collection
from typing import Any, Final

from pubsub_lib.exposure import is_loopback_host

MAX_CONNECTIONS: Final = 32
"""Maximum number of open connections, each with a thread. Scrapers need a few."""
KEPT_FOR_READY: Final = 4
"""Connections of these that serve ``/ready`` only, when all others are in use."""
REQUEST_TIMEOUT: Final = 5.0
"""Seconds in which a client must send its whole request; a large body has as long again after its headers."""
READY_TIMEOUT: Final = 1.0
"""Seconds for the whole request, also with a large body, of a connection that serves ``/ready`` only."""
PLACE_TIMEOUT: Final = 0.5
"""Maximum seconds without a new connection while all kept ones are in use and cannot be replaced."""
ACCEPT_PAUSE: Final = 0.5
"""Seconds without a new connection after one could not be accepted."""
BACKLOG: Final = 128
"""Maximum number of connections that wait to be accepted: clients that connect at the same time."""
BUSY_PAUSE: Final = 5
"""Maximum seconds for which clients are sent away while all connections are in use. They are random, so that clients
do not come back together."""
ANSWER_TIMEOUT: Final = 10.0
"""Seconds in which a client must receive the whole answer."""
_LOOK: Final = 0.02
"""Seconds until the kept connections are looked at again, in which a thread may have read its bytes."""
MAX_REQUEST_BYTES: Final = 16 * 1024
"""Maximum size of a request with its headers and its body; for a route with a larger body, without the body."""
MAX_BODY_BYTES: Final = 1024
"""Maximum size of a request's body, which no route needs, except those that state a larger one."""
MAX_UNUSED_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a body that is received for a path that the endpoint does not serve, so that the client receives the
answer: a service without a sync channel gets questions of replicas."""
MAX_PAUSE: Final = 60.0
"""Maximum seconds between two costly requests of one kind."""
IDLE_SHARE: Final = 4.0
"""A costly request is followed by a pause of this many times its duration: at most a fifth of the time is spent."""


class RequestTooLarge(Exception):
    """A client sent more than ``MAX_REQUEST_BYTES``."""


class PleaseWait(Exception):
    """A costly request comes too soon after another one of its kind."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"this request was served just now; try again in {seconds:.1f} s")
        self.seconds = seconds


class Connection:
    """One admitted connection."""

    def __init__(self, peer: socket.socket, deadline: float, only_ready: bool) -> None:
        self.peer = peer
        self.deadline = deadline
        """Time of the monotonic clock at which the whole request must have been received."""
        self.only_ready = only_ready
        self.reading = True
        """Whether the request is not complete yet."""

    def replaceable(self) -> bool:
        """Whether a newer one may replace it: its request is not complete, and its thread has read all that came."""
        return self.reading and not _unread(self.peer)

    def end(self) -> None:
        """Let the connection's thread find its end now. Any thread."""
        with contextlib.suppress(OSError):  # the client has ended it
            self.peer.shutdown(socket.SHUT_RDWR)


class Connections:
    """The admitted connections: a bounded number, of which some are kept for ``/ready``.

    A client that opens connections and sends nothing cannot occupy the kept ones: the newest replaces the oldest whose
    request is not complete. A supervisor sends its request at once, and is served. For a busy machine, a connection
    with bytes that its thread has not read yet is not replaced, and the next one waits until a replaced one has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._ordinary: dict[socket.socket, Connection] = {}
        self._kept: dict[socket.socket, Connection] = {}

    def admit(self, peer: socket.socket, now: float) -> bool:
        """Whether the connection is admitted; else the caller closes it. Blocks for at most ``PLACE_TIMEOUT``."""
        begun = time.monotonic()
        waited = 0.0
        with self._lock:
            while not self._place(peer, now + waited):
                if waited >= PLACE_TIMEOUT:
                    return False
                self._lock.wait(min(_LOOK, PLACE_TIMEOUT - waited))
                waited = time.monotonic() - begun
            return True

    def _place(self, peer: socket.socket, now: float) -> bool:
        """Give the connection a place, if one is free now. Its time begins now."""
        if len(self._ordinary) < MAX_CONNECTIONS - KEPT_FOR_READY:
            self._ordinary[peer] = Connection(peer, now + REQUEST_TIMEOUT, only_ready=False)
        elif self._free_place():
            self._kept[peer] = Connection(peer, now + READY_TIMEOUT, only_ready=True)
        else:
            return False
        return True

    def _free_place(self) -> bool:
        """Whether a kept place is free now; replaces a connection if it can. Threads of replaced ones are bounded."""
        if len(self._kept) < KEPT_FOR_READY:
            return True
        if len(self._kept) >= 2 * KEPT_FOR_READY:  # the threads of replaced connections did not end yet
            return False
        oldest = next((each for each in self._kept.values() if each.replaceable()), None)
        if oldest is None:
            return False
        oldest.reading = False
        oldest.end()
        return True

    def of(self, peer: socket.socket) -> Connection:
        """The admitted connection of this socket."""
        with self._lock:
            return self._ordinary.get(peer) or self._kept[peer]

    def release(self, peer: socket.socket) -> None:
        """The connection has ended."""
        with self._lock:
            self._ordinary.pop(peer, None)
            self._kept.pop(peer, None)
            self._lock.notify()


def _unread(peer: socket.socket) -> bool:
    """Whether bytes were received on this socket and not read yet."""
    count = array.array("i", [0])
    with contextlib.suppress(OSError, ValueError):  # its thread has closed it
        fcntl.ioctl(peer, termios.FIONREAD, count)
    return count[0] > 0


class RequestReader(io.RawIOBase):
    """Reads a request until the connection's deadline, and not more than ``MAX_REQUEST_BYTES``.

    A timeout of the socket alone would count from each received byte. Raises TimeoutError, RequestTooLarge.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._left = MAX_REQUEST_BYTES

    def allow(self, more: int, max_seconds: float = REQUEST_TIMEOUT) -> None:
        """Read this number of further bytes, within ``REQUEST_TIMEOUT`` from now, or ``max_seconds`` if that is less. A
        connection that serves ``/ready`` only gets no further time: its place is needed.
        """
        self._left += more
        if not self._connection.only_ready:
            self._connection.deadline = time.monotonic() + min(REQUEST_TIMEOUT, max_seconds)

    def readable(self) -> bool:
        """As of every file that is read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive some bytes; 0 at the end."""
        left = self._connection.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request was not complete in time")
        if not self._left:
            raise RequestTooLarge
        self._connection.peer.settimeout(left)
        count = self._connection.peer.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count


def is_own_host(peer: str) -> bool:
    """Whether a client's address belongs to this host."""
    return is_loopback_host(peer)


def host_is_allowed(host: str, local: str, names: Collection[str]) -> bool:
    """Whether a request's Host header names this endpoint: by loopback, by the address at which the connection arrived,
    or by a configured name. Else a web page could read the endpoint by a name of its own that leads to this host (DNS
    rebinding). Browsers send the header always, so the caller allows a request without one.
    """
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    name = plain_name(name)
    return is_loopback_host(name) or name in names or _number(name) == _number(local) != ""


def plain_name(host: str) -> str:
    """A host in the form in which two spellings of one name are equal: lower case, no brackets, no dot at the end."""
    return host.lower().strip("[]").rstrip(".")


def _number(host: str) -> str:
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return ""
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


class Pauses:
    """When the next costly request of one kind is served. Not safe for threads: its user has a lock.

    The pause is ``IDLE_SHARE`` times the duration of the last request, and at least ``least``, which doubles with each
    request that comes as soon as it may. Both end at ``MAX_PAUSE``.
    """

    def __init__(self, least: float) -> None:
        self._least = self._next = least
        self._pause = 0.0
        self._until = 0.0

    def left(self, now: float) -> float:
        """Seconds until the next request is served; 0 when it is served now."""
        return max(0.0, self._until - now)

    def served(self, begin: float, now: float) -> None:
        """A request was served from ``begin`` to ``now``."""
        if begin >= self._until + self._pause:  # as long a time again without a request
            self._next = self._least
        self._pause = min(MAX_PAUSE, max(self._next, IDLE_SHARE * (now - begin)))
        self._until = now + self._pause
        self._next = min(MAX_PAUSE, 2 * self._next)
