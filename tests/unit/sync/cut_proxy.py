"""A proxy that breaks off the answers to HTTP requests after a number of bytes."""

import socket
import struct
import threading
from types import TracebackType
from typing import Self

from tests.unit.world import LONG


class CutProxy:
    """Forwards each connection to ``target`` (a URL of 127.0.0.1), the answer up to ``limit`` bytes (None: whole).
    ``reset``: one that breaks off ends with an error, and not in order.
    ``gone``: after it nothing is forwarded until ``target`` is set again.
    """

    def __init__(self, target: str) -> None:
        self.target = int(target.rpartition(":")[2])
        self.limit: int | None = None
        self.reset = False
        self.gone = False
        self.sizes: list[int] = []
        """The forwarded bytes of each answer."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(LONG)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                try:
                    self._forward(client)
                except OSError:
                    self.sizes.append(0)  # the target does not listen, or one of both left

    def _forward(self, client: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += client.recv(65536)
        head, _, body = request.partition(b"\r\n\r\n")
        length = next(int(each.split(b":")[1]) for each in head.lower().split(b"\r\n") if b"content-length" in each)
        while len(body) < length:
            part = client.recv(65536)
            request, body = request + part, body + part
        with socket.create_connection(("127.0.0.1", self.target)) as server:
            server.sendall(request)
            left = self.limit if self.limit is not None else 2**62
            sent = 0
            while left and (part := server.recv(min(left, 65536))):
                client.sendall(part)
                sent += len(part)
                left -= len(part)
        if self.gone and not left:
            self.target = 1
        self.sizes.append(sent)
        if self.reset and self.limit is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
