"""Readiness of a child process by systemd's protocol: it sends ``READY=1`` to a datagram socket."""

import socket
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Self


class ReadySocket:
    """The parent's end, for one child at a time. For one thread; closed with a ``with`` block.

    It has an abstract name, because the path of a temporary folder may be too long for a socket.
    """

    def __init__(self) -> None:
        """Raises OSError."""
        name = f"pubsub-ready-{uuid.uuid4().hex}"
        self.variables: Mapping[str, str] = {"NOTIFY_SOCKET": f"@{name}"}
        """Environment variables of the child."""
        self._ready = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.bind(f"\0{name}")
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def expect(self) -> None:
        """A new child is started: discard the messages of the previous one."""
        self._receive()
        self._ready = False

    def ready(self) -> bool:
        """Whether the child is ready since ``expect``. Does not block."""
        self._ready = self._ready or b"READY=1" in self._receive()
        return self._ready

    def _receive(self) -> bytes:
        received = b""
        while True:
            try:
                received += self._socket.recv(4096) + b"\n"
            except BlockingIOError:
                return received
