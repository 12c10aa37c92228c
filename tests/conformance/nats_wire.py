"""A private NATS server of a test, and a raw client of it, as any program could be."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _bench.e2e.side import LeftOutError
from _broker import NatsServer

from pubsub_nats.subjects import Subjects


@contextmanager
def server(configuration: str = "") -> Iterator[NatsServer]:
    """A private server; the test is skipped when the package cannot be had."""
    made = NatsServer(configuration)
    try:
        made.start()
    except LeftOutError as error:
        pytest.skip(str(error))
    with made:
        yield made


class RawNats:
    """Publishes any bytes. Each call returns when the server has handled it."""

    def __init__(self, port: int, prefix: str = "pubsub") -> None:
        self.subjects = Subjects(prefix)
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._lines = self._socket.makefile("rb")
        assert self._lines.readline().startswith(b"INFO ")
        self._socket.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n')

    def inject(self, head: bytes, body: bytes) -> None:
        """Publish to the subject of a topic frame."""
        self.publish(self.subjects.subject(head, {}).encode(), body)

    def ask(self, frame: bytes) -> None:
        """Publish a hello request of this client."""
        self.publish(f"{self.subjects.ask} {self.subjects.inbox('raw')}.nonce".encode(), frame)

    def publish(self, subject: bytes, body: bytes, headers: bytes = b"") -> None:
        """Publish to any subject; a reply subject may follow it."""
        if headers:
            self._socket.sendall(b"HPUB %b %d %d\r\n" % (subject, len(headers), len(headers) + len(body)) + headers)
        else:
            self._socket.sendall(b"PUB %b %d\r\n" % (subject, len(body)))
        self._socket.sendall(body + b"\r\nPING\r\n")
        while True:
            line = self._lines.readline()
            if line == b"PING\r\n":
                self._socket.sendall(b"PONG\r\n")
            elif line == b"PONG\r\n":
                return
            else:
                assert line.startswith(b"INFO"), line

    def close(self) -> None:
        self._lines.close()
        self._socket.close()
