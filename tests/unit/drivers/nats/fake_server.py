"""A NATS server of a test that records the commands of its clients, and sends what the test gives."""

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

INFO: Final = b'INFO {"server_id":"x","version":"2.10.0","max_payload":8388608,"proto":1,"headers":true}\r\n'


def message(sid: bytes, subject: bytes, data: bytes, reply: bytes = b"") -> bytes:
    """The bytes by which a server sends a message."""
    return b"MSG %b %b %b%d\r\n%b\r\n" % (subject, sid, reply + b" " if reply else b"", len(data), data)


class _Encrypted(ssl.SSLSocket):
    """``wrap_socket`` of Python 3.11 leaves the new socket open when the client has ended just before."""

    def __del__(self) -> None:
        self.close()


class Peer:
    """The server's side of one connection."""

    def __init__(self, connection: socket.socket, info: bytes, tls: ssl.SSLContext | None) -> None:
        self._connection = connection
        self._info = info
        self._tls = tls
        self.commands: list[bytes] = []
        """The first lines of all commands so far."""
        self.subjects: dict[bytes, bytes] = {}
        """The number of each subscription, by subject."""

    def send(self, data: bytes) -> None:
        """Send bytes at once."""
        self._connection.sendall(data)

    def end(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _connected(self) -> socket.socket:
        """The connection, after the client may send commands."""
        try:
            self.send(self._info)
            if self._tls is not None:
                self._tls.sslsocket_class = _Encrypted
                self._connection = self._tls.wrap_socket(self._connection, server_side=True)
        except OSError:  # the client has ended, or refuses the certificate
            self._connection.close()
            raise
        return self._connection

    def serve(self, on_command: Callable[["Peer"], None]) -> None:
        """Read commands until the connection ends."""
        with suppress(OSError), self._connected() as connection, connection.makefile("rb") as lines:
            while line := lines.readline():
                words = line.split()
                if words[0] in (b"PUB", b"HPUB"):
                    lines.read(int(words[-1]) + 2)
                elif words[0] == b"SUB":
                    self.subjects[words[1]] = words[-1]
                self.commands.append(line.strip())
                if words[0] == b"PING":
                    self.send(b"PONG\r\n")
                on_command(self)


class FakeServer:
    """Answers pings. ``on_command`` is called after each command of a client; use the server in a ``with`` block.

    With ``tls``, connections are encrypted. ``info``: the server's first line to each client.
    """

    def __init__(
        self,
        on_command: Callable[[Peer], None] = lambda peer: None,
        tls: ssl.SSLContext | None = None,
        info: bytes = INFO,
        host: str = "127.0.0.1",
    ) -> None:
        self._on_command = on_command
        self._tls = tls
        self.info = info
        self._listening = socket.create_server((host, 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"nats://{host}:{self.port}"
        self.peers: list[Peer] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and its connections. Idempotent."""
        if self._listening.fileno() < 0:
            return
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(10)
        self._listening.close()
        for peer in self.peers:
            peer.end()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):  # the listening socket was shut down
            while True:
                peer = Peer(self._listening.accept()[0], self.info, self._tls)
                self.peers.append(peer)
                thread = threading.Thread(target=peer.serve, args=(self._on_command,), daemon=True)
                self._threads.append(thread)
                thread.start()
