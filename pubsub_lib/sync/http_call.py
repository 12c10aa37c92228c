"""One HTTP request with a deadline for the whole exchange, which another thread may end.

A timeout of the socket alone would count from each received byte, so a server could hold the caller for hours.
"""

import contextlib
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse
from math import inf
from typing import Any, Final

from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.sync.urls import ChannelUrl
from pubsub_lib.threads.name_lookup import NameLookup

CHUNK: Final = 64 * 1024
"""Bytes that are received at once."""
CONNECT_TIMEOUT: Final = 5.0
"""Maximum seconds until a connection to one URL is made."""
_MAX_REASON: Final = 300
"""Bytes of a refusal's text that are shown."""


class HttpCall:
    """One POST request to one URL; used once. ``end`` may be called from any thread."""

    def __init__(self, url: ChannelUrl, deadline: float, begin_by: float = inf) -> None:
        """``deadline``: of the monotonic clock, for everything. ``begin_by``: for the status and the headers of the
        answer.
        """
        self._url = url
        self._deadline = deadline
        self._begin_by = min(begin_by, deadline)
        self._lookup = NameLookup(url.host, url.port)
        self._lock = threading.Lock()
        self._peer: socket.socket | None = None
        self._ended = False

    def end(self) -> None:
        """End the request now: the thread that waits in it gets StoreUnavailable. Idempotent."""
        with self._lock:
            self._ended = True
            peer = self._peer
        self._lookup.end()
        if peer is not None:
            with contextlib.suppress(OSError):  # the server has ended it
                # Not that of an SSLSocket, which would take its state away from the thread that reads.
                socket.socket.shutdown(peer, socket.SHUT_RDWR)

    @contextlib.contextmanager
    def post(self, body: bytes, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
        """Send the body, and receive status and headers. Raises StoreUnavailable, also inside of the block when the
        response is read there.
        """
        connection = HTTPConnection(self._url.host, self._url.port)
        try:
            with contextlib.closing(self._connected()) as peer:
                connection.sock = timed = _Timed(peer, self._begin_by)
                connection.request("POST", self._url.path, body, dict(headers))
                with connection.getresponse() as response:
                    timed.deadline = self._deadline
                    yield response
        except (OSError, UnicodeError, HTTPException) as error:
            reason = "closed meanwhile" if self._ended else _reason(error)
            raise StoreUnavailable(f"the sync channel {self._url} does not answer: {reason}") from error

    def _connected(self) -> socket.socket:
        until = min(self._begin_by, time.monotonic() + CONNECT_TIMEOUT)
        last: OSError = OSError("its name has no address")
        for family, kind, protocol, _, address in self._lookup.addresses(_left(until)):
            peer = socket.socket(family, kind, protocol)
            try:
                self._use(peer)
                peer.settimeout(_left(until))
                peer.connect(address)
                return self._encrypted(peer) if self._url.tls else peer
            except OSError as error:
                peer.close()
                last = error
        raise last

    def _use(self, peer: socket.socket) -> None:
        with self._lock:
            if self._ended:
                raise OSError("closed meanwhile")
            self._peer = peer

    def _encrypted(self, peer: socket.socket) -> ssl.SSLSocket:
        wrapped = ssl.create_default_context().wrap_socket(peer, server_hostname=self._url.host)
        self._use(wrapped)  # the plain one is detached
        return wrapped


def body_of(response: HTTPResponse) -> Iterator[bytes]:
    """The body in parts, until its end. Raises OSError, HTTPException."""
    while part := response.read1(CHUNK):
        yield part


def reason_in(response: HTTPResponse) -> str:
    """The text of a refusal, in one line; the reason of its status without one. Raises OSError, HTTPException."""
    text = response.read(_MAX_REASON).decode(errors="replace").strip()
    return "".join(each if each.isprintable() else " " for each in text) or response.reason


class _Timed:
    """The parts of a connected socket that ``http.client`` uses, each with the time that is left until ``deadline``,
    which may be changed.
    """

    def __init__(self, peer: socket.socket, deadline: float) -> None:
        self._peer = peer
        self.deadline = deadline

    def sendall(self, data: bytes) -> None:
        """Send everything."""
        self._peer.settimeout(_left(self.deadline))
        self._peer.sendall(data)

    def receive(self, buffer: Any) -> int:
        """Receive some bytes; 0 at the end."""
        self._peer.settimeout(_left(self.deadline))
        return self._peer.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """A file that reads from the socket."""
        return io.BufferedReader(_Received(self.receive), CHUNK)

    def close(self) -> None:
        """Nothing: ``http.client`` closes its connection before the response is read."""


class _Received(io.RawIOBase):
    """What ``receive`` receives, as a file."""

    def __init__(self, receive: Callable[[Any], int]) -> None:
        super().__init__()
        self._receive = receive

    def readable(self) -> bool:
        """As of every file that is read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive some bytes; 0 at the end."""
        return self._receive(buffer)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("it did not answer in time")
    return left


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
