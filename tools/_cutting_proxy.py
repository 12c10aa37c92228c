"""A TCP proxy that cuts a connection exactly at COMMIT, in each way that matters."""

import re
import socket
import threading
from collections.abc import Callable
from typing import Literal

COMMIT = re.compile(rb"(?<!AUTO)COMMIT(?!TED)")  # not autocommit, and not the isolation level
PREPARED = re.compile(rb"P....([^\0]+)\0COMMIT\0", re.DOTALL)
"""PostgreSQL's message that prepares a COMMIT under a name."""
Mode = Literal["pass", "before", "after", "late"]


class CuttingProxy:
    """Forwards a port of 127.0.0.1. ``mode`` applies to the next COMMIT; then it is ``pass`` again:

    before: cut on both sides, and never forwarded. after: forwarded, its answer awaited and dropped, then cut.
    late: cut towards the client at once, forwarded only when another connection requests a lock.
    With ``refuse_after_cut``, no connection is accepted after that, until ``revive``.
    """

    def __init__(self, target: int) -> None:
        self.mode: Mode = "pass"
        self.refuse_after_cut = False
        self.refusing = False
        self.cuts = 0
        self.target = target
        self.held: list[Callable[[], None]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[Pair] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def revive(self) -> None:
        """Accept connections again."""
        self.refusing = self.refuse_after_cut = False

    def close(self) -> None:
        """Cut all connections; return when all threads have ended."""
        end(self._listener)
        self._thread.join()
        self._listener.close()
        for pair in self._pairs:
            pair.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                end(client)
                client.close()
                continue
            try:
                self._pairs.append(Pair(self, client))
            except OSError:  # as the target itself would refuse the connection
                end(client)
                client.close()


class Pair:
    """One connection through the proxy, with one thread per direction."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = socket.create_connection(("127.0.0.1", proxy.target))
        self._swallow = threading.Event()
        self._names: set[bytes] = set()
        """Of prepared COMMITs on this connection."""
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._up, self._down)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Close both sides."""
        end(self._client)
        end(self._server)
        for thread in self._threads:
            thread.join()
        self._client.close()
        self._server.close()

    def _up(self) -> None:
        proxy = self._proxy
        while data := receive(self._client):
            mode = proxy.mode
            if self._commits(data) and mode != "pass":
                proxy.mode, proxy.refusing = "pass", proxy.refuse_after_cut
                proxy.cuts += 1
                if mode == "late":
                    proxy.held.append(lambda commit=data: send(self._server, commit))  # type: ignore[misc]
                    end(self._client)
                    return
                if mode == "after":
                    self._swallow.set()  # and forward more: a server may answer only at the end of a pipeline
                else:
                    break
            send(self._server, data)
            if b"FOR UPDATE" in data:
                while proxy.held:
                    proxy.held.pop()()
        end(self._client)
        end(self._server)

    def _commits(self, data: bytes) -> bool:
        """Whether a COMMIT is in these messages: in words, or by the name of a prepared one."""
        self._names.update(PREPARED.findall(data))
        return COMMIT.search(data) is not None or any(b"\0%b\0" % name in data for name in self._names)

    def _down(self) -> None:
        while data := receive(self._server):
            if self._swallow.is_set():
                break
            send(self._client, data)
        end(self._client)


def receive(connection: socket.socket) -> bytes:
    """Return the received bytes; b"" at any end of the connection."""
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def send(connection: socket.socket, data: bytes) -> None:
    """Send to a peer that may have ended the connection."""
    try:
        connection.sendall(data)
    except OSError:
        pass  # the other direction finds the end, too


def end(connection: socket.socket) -> None:
    """End a connection in both directions; this wakes its reader."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it had ended already
