"""A TCP proxy in a process of its own, which counts the bytes that come back, and the open connections."""

import multiprocessing
import socket
import threading

from _children import Line

PART = 1 << 16


class Counts:
    """Counted in memory that forked processes share. One process writes, any reads."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._sent = context.RawValue("q", 0)
        self._open = context.RawValue("q", 0)
        self._most = context.RawValue("q", 0)
        self._lock = threading.Lock()

    @property
    def sent(self) -> int:
        """Bytes that the server sent."""
        return int(self._sent.value)

    @property
    def most(self) -> int:
        """The largest number of connections that were open at the same time."""
        return int(self._most.value)

    @property
    def open(self) -> int:
        """The number of open connections."""
        return int(self._open.value)

    def add(self, size: int) -> None:
        """The server sent bytes."""
        with self._lock:
            self._sent.value += size

    def opened(self) -> None:
        """A connection was made."""
        with self._lock:
            self._open.value += 1
            self._most.value = max(self._most.value, self._open.value)

    def closed(self) -> None:
        """A connection has ended."""
        with self._lock:
            self._open.value -= 1

    def begin_again(self) -> None:
        """Forget what was counted, while no connection is open."""
        self._sent.value = self._most.value = 0


def serve(line: Line, listener: socket.socket, target: int, counts: Counts) -> None:
    """Forward connections to a port of this host until the process is killed. A server that does not run refuses the
    connection, as without the proxy.
    """
    line.send()
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", target))
        except OSError:
            client.close()
            continue
        threading.Thread(target=_pass_on, args=(client, server, counts), daemon=True).start()


def _pass_on(client: socket.socket, server: socket.socket, counts: Counts) -> None:
    """Forward both directions until both have ended."""
    counts.opened()
    up = threading.Thread(target=_copy, args=(client, server, None), daemon=True)
    up.start()
    _copy(server, client, counts)
    up.join()
    client.close()
    server.close()
    counts.closed()


def _copy(source: socket.socket, target: socket.socket, counts: Counts | None) -> None:
    """Forward one direction, and its end."""
    try:
        while data := source.recv(PART):
            if counts is not None:
                counts.add(len(data))
            target.sendall(data)
    except OSError:
        pass  # one end was killed; the shutdown below ends the other one
    for each in (source, target):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it had ended already
