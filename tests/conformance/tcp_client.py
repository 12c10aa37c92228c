"""A client of the broker in ``tcp_broker.py``, as a client library would be for a real broker."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.conformance.tcp_broker import receive

PAUSE = 0.02
SEND_SECONDS = 0.4
"""Maximum time of a write to a broker that reads nothing."""


class Wire:
    """One connection to the broker, made again until ``stop``; a thread reads it, any thread writes to it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._where = host, int(port)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self.stopped = threading.Event()
        self.send_seconds = SEND_SECONDS

    def write(self, data: bytes) -> None:
        """Raises OSError without a connection, or when the connection has ended or the broker does not read."""
        with self._lock:
            if self._connection is None:
                raise ConnectionResetError("the broker is unavailable")
            try:
                self._connection.sendall(data)
            except OSError:
                self._end()  # a part may be written, so the broker cannot find the next packet
                raise

    def run(self, greet: Callable[[], bytes], take: Callable[[bytes, bytes], None]) -> None:
        """Repeatedly connect, write the greeting, and pass on the received packets."""
        while not self.stopped.is_set():
            try:
                with self._connected(greet) as connection:
                    while True:
                        take(*receive(connection))
            except OSError:
                self.pause()

    def pause(self) -> None:
        """Wait between two attempts."""
        self.stopped.wait(PAUSE)

    def stop(self) -> None:
        """End the connection and the thread."""
        self.stopped.set()
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._connection is not None:
            try:
                self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the broker ended it before

    def _send_time(self) -> tuple[int, int]:
        """Seconds and microseconds."""
        return int(self.send_seconds), round(self.send_seconds % 1 * 1_000_000)

    @contextmanager
    def _connected(self, greet: Callable[[], bytes]) -> Iterator[socket.socket]:
        with socket.create_connection(self._where, 1.0) as connection:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", *self._send_time()))
            with self._lock:
                if self.stopped.is_set():
                    raise ConnectionAbortedError("closed meanwhile")
                # A registration from now on finds this connection, and waits for this lock.
                self._connection = connection
                connection.sendall(greet())
            try:
                yield connection
            finally:
                with self._lock:
                    self._connection = None
