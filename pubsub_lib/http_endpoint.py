"""``/metrics`` for Prometheus and ``/ready`` for whoever starts and watches a program: a service or a replica."""

import errno
import ipaddress
import os
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from pubsub_lib.errors import ClosedError, PubSubError, TransportError
from pubsub_lib.http_routes import Answered, Query, Route
from pubsub_lib.logs import logger
from pubsub_lib.port_owner import owner_of_port
from pubsub_lib.threads.start import ReadyThread

_log = logger(__name__)

Problems = Callable[[], Sequence[str]]
"""Why the program is not ready, one sentence each; none when it is. Any thread, does not block."""

TEXT = "text/plain; charset=utf-8"
MAX_CONNECTIONS: Final = 32
"""At the same time, each with a thread; further ones are closed at once. Scrapers and commands need a few."""
TURN: Final = 5.0
"""Seconds that a request for what is counted anew waits for another one, before it is told to come again."""
LOOK_AGAIN = 0.1
"""Seconds within which the server notices that it is to end."""


class Endpoint:
    """An HTTP server on threads of its own. ``start`` and ``close`` may be called from any thread.

    ``port`` 0 takes a free one. ``option`` says in an error where the port is set. ``routes``: what else is answered,
    by method and path (``GET /verify``), one at a time: it may cost more than metrics. POST changes something, so it
    is taken from this host only.
    """

    def __init__(
        self,
        address: str,
        port: int,
        metrics: Collector,
        problems: Problems,
        option: str,
        routes: Mapping[str, Route] = MappingProxyType({}),
    ) -> None:
        self._at = (address.strip("[]"), port)
        self._option = option
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        turn = threading.Lock()
        self._routes: Mapping[str, Route] = {
            "GET /metrics": lambda _query: (200, generate_latest(self._registry), CONTENT_TYPE_LATEST),
            "GET /ready": lambda _query: _ready(problems()),
            **{name: _one_at_a_time(route, turn) for name, route in routes.items()},
        }
        self._lock = threading.Lock()
        self._closed = False
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """What was bound; 0 before ``start``."""
        return 0 if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        """Bind, and begin to answer. Raises TransportError, naming address and port; ClosedError after ``close``."""
        with self._lock:
            if self._closed:
                raise ClosedError("this endpoint for metrics is closed; make a new one")
            ready = ReadyThread("pubsub-metrics")
            try:
                server = self._bound()
            except BaseException:
                ready.drop()
                raise
            ready.run(partial(server.serve_forever, LOOK_AGAIN))
            self._server, self._thread = server, ready.thread

    def _bound(self) -> "_Server":
        address, port = self._at
        try:
            kind = _Server6 if ":" in address else _Server
            return kind(self._at, _handler(self._routes))
        except (OSError, OverflowError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            holder = owner_of_port(port) if taken else ""
            by = f", held by {holder}" if holder else ""
            raise TransportError(
                f"the endpoint for metrics cannot be had at {address}:{port} ({reason}{by}); "
                f"set {self._option} to a free one, or to 0 for none"
            ) from error

    def close(self) -> None:
        """Stop and release the port; within about half a second. What was not started, or is closed, is no matter; it
        is not started any more.
        """
        with self._lock:
            self._closed = True
            server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            self._thread.join(1.0)
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, at: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(at, handler)

    def server_bind(self) -> None:
        """Without HTTPServer's look-up of this host's full name, which may take as long as its name server likes."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give it a thread, when one is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread either
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, on a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle, or says nothing more, is no news."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            _log.error("the endpoint for metrics broke while it answered; please report this", exc_info=error)


class _Server6(_Server):
    address_family = socket.AF_INET6


def _is_own_host(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    # At an address of version 6, one of version 4 is seen as ::ffff:127.0.0.1, which is no loopback address itself.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds; a client that says nothing does not keep its thread for ever

        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            if _is_own_host(self.client_address[0]):
                self._serve("POST")
            else:
                self._send(403, b"only this host itself may ask for that\n", TEXT)

        def _serve(self, method: str) -> None:
            try:
                answer = _answer(method, self.path, routes)
            except PubSubError as error:  # it is being closed
                answer = 503, f"{error}\n".encode(), TEXT
            except Exception:  # noqa: BLE001 - whoever asks must hear that there is no answer, and people why
                _log.exception("the endpoint for metrics cannot answer %s %s; please report this", method, self.path)
                answer = 500, b"this program has a fault; its log says more\n", TEXT
            self._send(*answer)

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            """Requests are not logged."""

    return Handler


def _one_at_a_time(route: Route, turn: threading.Lock) -> Route:
    def answer(query: Query) -> Answered:
        if not turn.acquire(timeout=TURN):
            return 503, b"another request is being answered; ask again\n", TEXT
        try:
            return route(query)
        finally:
            turn.release()

    return answer


def _answer(method: str, target: str, routes: Mapping[str, Route]) -> Answered:
    path, _, query = target.partition("?")
    route = routes.get(f"{method} {path}")
    if route is not None:
        return route(parse_qs(query, keep_blank_values=True))
    there = ", ".join(sorted(routes))
    return (405 if any(name.endswith(f" {path}") for name in routes) else 404), f"there are {there}\n".encode(), TEXT


def _ready(found: Sequence[str]) -> Answered:
    return 503 if found else 200, "".join(f"{each}\n" for each in found or ["ready"]).encode(), TEXT
