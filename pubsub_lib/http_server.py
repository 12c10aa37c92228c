"""The server of an HTTP endpoint: reads requests within limits, and answers them by routes."""

import errno
import io
import math
import random
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Collection, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qs

from pubsub_lib import http_limits
from pubsub_lib.errors import PubSubError
from pubsub_lib.http_limits import Connections, PleaseWait, RequestReader, RequestTooLarge
from pubsub_lib.http_routes import POST_HEADER, Answered, Route, Streamed, Streaming
from pubsub_lib.logs import logger

_log = logger(__name__)

TEXT: Final = "text/plain; charset=utf-8"
_READY: Final = "GET /ready"
_CHUNK: Final = 64 * 1024
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of accept that leave the connection in the backlog."""


class Server(ThreadingHTTPServer):
    """Accepts connections, each with a thread, as far as the limits allow."""

    daemon_threads = True
    request_queue_size = http_limits.BACKLOG

    def __init__(
        self,
        at: tuple[str, int],
        routes: Mapping[str, Route],
        names: Collection[str],
        streams: Mapping[str, Streaming] = MappingProxyType({}),
    ) -> None:
        self.routes = routes
        self.streams = streams
        self.names = names
        self.connections = Connections()
        self._exhausted = False
        self._stopping = threading.Event()
        super().__init__(at, _Handler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of this host's full name, which can block for long on a name server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. Without a free descriptor the listener stays readable, so a pause follows: else the
        thread would use a whole processor.
        """
        try:
            accepted = super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                if not self._exhausted:
                    _log.error(
                        "the endpoint for metrics cannot accept connections (%s); raise the limit of open files",
                        error.strerror,
                    )
                self._exhausted = True
                self._stopping.wait(http_limits.ACCEPT_PAUSE)
            raise  # the caller tries again
        self._exhausted = False
        return accepted

    def shutdown(self) -> None:
        """Stop accepting connections, also during a pause. Waits for the thread that accepts them."""
        self._stopping.set()
        super().shutdown()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the request, unless all are busy."""
        if not self.connections.admit(request, time.monotonic()):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system cannot start a thread
            self.connections.release(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer on the request's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error. A client's disconnect or timeout is not logged."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            _log.error("the endpoint for metrics failed while it answered; please report this", exc_info=error)


class Server6(Server):
    """The same for an address of IP version 6."""

    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    server: Server
    request_version = "HTTP/1.0"
    requestline = ""
    """For an answer before a request line was read, because the line is too large."""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._admitted = self.server.connections.of(self.connection)
        self._received = RequestReader(self._admitted)
        self.rfile = io.BufferedReader(self._received)

    def handle(self) -> None:
        try:
            self.handle_one_request()
        except RequestTooLarge:
            self._send(431, f"a request has at most {http_limits.MAX_REQUEST_BYTES} bytes\n".encode(), TEXT)

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        stream = self.server.streams.get(f"POST {self.path.partition('?')[0]}")
        if stream is None:
            self._serve("POST")
        else:
            self._serve_stream(stream)

    def _serve_stream(self, stream: Streaming) -> None:
        until = time.monotonic() + stream.max_seconds
        length = self._length(stream.max_body_bytes)
        if length is None:
            self._send(413, f"a body has a Content-Length of at most {stream.max_body_bytes}\n".encode(), TEXT)
            return
        self._received.allow(length, stream.max_seconds)
        body = _Body(self.rfile, length)
        refused = self._misdirected("POST", alone=False)
        if refused is not None:
            body.skip()
            self._refuse(refused)
            return
        gzip = "gzip" in self.headers.get("Accept-Encoding", "")
        with stream.serve(body, gzip=gzip) as answer:
            self._send_stream(answer, until)

    def _serve(self, method: str) -> None:
        refused = self._refused(method)
        self._admitted.reading = False
        if refused is not None:
            self._refuse(refused)
            return
        wait = 0.0
        try:
            answer = _answer(method, self.path, self.server.routes)
        except PleaseWait as pause:
            wait, answer = pause.seconds, (429, f"{pause}\n".encode(), TEXT)
        except PubSubError as error:  # the program is closing
            answer = 503, f"{error}\n".encode(), TEXT
        except Exception:  # noqa: BLE001 - the client must get a status, and the log the reason
            _log.exception("the endpoint for metrics cannot answer %s %s; please report this", method, self.path)
            answer = 500, b"internal error; see the program's log\n", TEXT
        self._send(*answer, wait)

    def _refused(self, method: str) -> Answered | None:
        """The answer to a request that no route may see; None when it is allowed. Receives the request's body."""
        path = self.path.partition("?")[0]
        if f"{method} {path}" not in self.server.routes:
            unused = self._length(http_limits.MAX_UNUSED_BYTES) or 0
            self._received.allow(unused)
            _Body(self.rfile, unused).skip()
            return self._misdirected(method, alone=False) or _unknown(path, {*self.server.routes, *self.server.streams})
        length = self._length(http_limits.MAX_BODY_BYTES)
        if length is None:
            return 413, f"a body has a Content-Length of at most {http_limits.MAX_BODY_BYTES}\n".encode(), TEXT
        self.rfile.read(length)
        return self._misdirected(method, alone=True)

    def _misdirected(self, method: str, *, alone: bool) -> Answered | None:
        """The answer to a request whose headers or whose client forbid it. ``alone``: POST only from this host."""
        hosts = self.headers.get_all("Host", [])
        local = str(self.connection.getsockname()[0])
        if len(hosts) > 1 or not all(http_limits.host_is_allowed(each, local, self.server.names) for each in hosts):
            return 403, b"the Host header does not name this endpoint; an option of the endpoint adds names\n", TEXT
        if method == "POST" and alone and not http_limits.is_own_host(self.client_address[0]):
            return 403, b"this request is allowed only from this host\n", TEXT
        if method == "POST" and self.headers.get(POST_HEADER) is None:
            return 403, f"a POST request needs the header {POST_HEADER}, with any value\n".encode(), TEXT
        if self._admitted.only_ready and f"{method} {self.path.partition('?')[0]}" != _READY:
            return HTTPStatus.SERVICE_UNAVAILABLE, b"all connections are in use; try again\n", TEXT
        return None

    def _refuse(self, refused: Answered) -> None:
        """Send a refusal: a pause comes with that of a busy endpoint, and a client does not double its wait."""
        busy = refused[0] == HTTPStatus.SERVICE_UNAVAILABLE
        self._send(*refused, random.randint(1, http_limits.BUSY_PAUSE) if busy else 0.0)

    def _length(self, maximum: int) -> int | None:
        """The size of the body; None for an invalid one, and for one above the maximum."""
        if self.headers.get("Transfer-Encoding") is not None:
            return None
        given = self.headers.get("Content-Length", "0")
        if not (given.isascii() and given.isdecimal()) or len(given) > len(str(maximum)):
            return None
        return int(given) if int(given) <= maximum else None

    def _send(self, status: int, body: bytes, kind: str, wait: float = 0.0) -> None:
        self._admitted.reading = False
        until = time.monotonic() + http_limits.ANSWER_TIMEOUT
        self.connection.settimeout(http_limits.ANSWER_TIMEOUT)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if wait:
            self.send_header("Retry-After", str(math.ceil(wait)))
        self.end_headers()
        self.connection.settimeout(max(0.001, until - time.monotonic()))
        self.wfile.write(body)

    def _send_stream(self, answer: Streamed, until: float) -> None:
        """Send an answer whose size is not known; the client finds its end by the end of the connection."""
        self._admitted.reading = False
        self._limit(until)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for part in answer.parts:
            self._limit(until)
            self.wfile.write(part)

    def _limit(self, until: float) -> None:
        """Give the next part the time that is left, and no more than ``ANSWER_TIMEOUT``."""
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client did not take the whole answer in time")
        self.connection.settimeout(min(left, http_limits.ANSWER_TIMEOUT))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Requests are not logged."""


class _Body:
    """A body of known length that is still to be received."""

    def __init__(self, file: io.BufferedIOBase, length: int) -> None:
        self._file = file
        self.length = length

    def read(self) -> bytes:
        """Receive it."""
        data = self._file.read(self.length)
        if len(data) < self.length:
            raise ConnectionError("the client ended the connection in the middle of its request")
        return data

    def skip(self) -> None:
        """Receive it without keeping it."""
        left = self.length
        while left and (part := self._file.read(min(left, _CHUNK))):
            left -= len(part)


def _answer(method: str, target: str, routes: Mapping[str, Route]) -> Answered:
    path, _, query = target.partition("?")
    return routes[f"{method} {path}"](parse_qs(query, keep_blank_values=True))


def _unknown(path: str, names: Collection[str]) -> Answered:
    """The answer for a path or a method that no route has."""
    status = 405 if any(name.endswith(f" {path}") for name in names) else 404
    return status, f"use one of {', '.join(sorted(names))}\n".encode(), TEXT
