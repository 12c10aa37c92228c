"""``/metrics`` for Prometheus and ``/ready`` for supervisors of a program: the publisher service or a replica."""

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

from pubsub_lib import exposure
from pubsub_lib.errors import ClosedError, PubSubError, TransportError
from pubsub_lib.http_routes import Answered, Query, Route
from pubsub_lib.logs import logger
from pubsub_lib.port_owner import owner_of_port
from pubsub_lib.threads.start import ReadyThread

_log = logger(__name__)

Problems = Callable[[], Sequence[str]]
"""The reasons why the program is not ready, one sentence each; empty when it is. Any thread, does not block."""

TEXT = "text/plain; charset=utf-8"
MAX_CONNECTIONS: Final = 32
"""Maximum number of open connections, each with a thread; further ones are closed at once. Scrapers need a few."""
ROUTE_TIMEOUT: Final = 5.0
"""Seconds that a request of ``routes`` waits for another one before it gets 503."""
SHUTDOWN_POLL = 0.1
"""Seconds within which the server notices that it must stop."""


class Endpoint:
    """An HTTP server on its own threads. ``start`` and ``close`` may be called from any thread.

    ``port`` 0 takes a free one. ``option``: the name of the port's option, for errors. ``routes``: further routes by
    method and path (``GET /verify``); they run one at a time, because they may cost more than metrics. POST changes
    state, so it is accepted only from this host. ``insecure``: the address may be one that others can reach. The
    constructor raises ConfigError for such an address without it.
    """

    def __init__(
        self,
        address: str,
        port: int,
        metrics: Collector,
        problems: Problems,
        option: str,
        routes: Mapping[str, Route] = MappingProxyType({}),
        insecure: bool = False,
    ) -> None:
        self._at = (address.strip("[]"), port)
        self._listener = {option.replace("_port", "_address"): f"http://{address}:{port}"}
        self._insecure = insecure
        exposure.check(self._listener, insecure)
        self._option = option
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        route_lock = threading.Lock()
        self._routes: Mapping[str, Route] = {
            "GET /metrics": lambda _query: (200, generate_latest(self._registry), CONTENT_TYPE_LATEST),
            "GET /ready": lambda _query: _ready(problems()),
            **{name: _one_at_a_time(route, route_lock) for name, route in routes.items()},
        }
        self._lock = threading.Lock()
        self._closed = False
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The bound port; 0 before ``start``."""
        return 0 if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        """Bind, and start to answer. Raises TransportError, naming address and port; ClosedError after ``close``."""
        with self._lock:
            if self._closed:
                raise ClosedError("this endpoint for metrics is closed; make a new one")
            exposure.warn(self._listener, self._insecure)
            ready = ReadyThread("pubsub-metrics")
            try:
                server = self._bound()
            except BaseException:
                ready.drop()
                raise
            ready.run(partial(server.serve_forever, SHUTDOWN_POLL))
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
                f"the endpoint for metrics cannot bind {address}:{port} ({reason}{by}); "
                f"set {self._option} to a free port, or to 0 for none"
            ) from error

    def close(self) -> None:
        """Stop and release the port, within about half a second. Idempotent, also before ``start``, which then raises
        ClosedError.
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
        """Bind without HTTPServer's look-up of this host's full name, which can block for long on a name server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the request, unless all are busy."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system cannot start a thread
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer on the request's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error. A client's disconnect or timeout is not logged."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            _log.error("the endpoint for metrics failed while it answered; please report this", exc_info=error)


class _Server6(_Server):
    address_family = socket.AF_INET6


def _is_own_host(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    # An IPv6 socket shows an IPv4 peer as ::ffff:127.0.0.1, which ``is_loopback`` does not accept.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds; a silent client does not occupy its thread for ever

        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            if _is_own_host(self.client_address[0]):
                self._serve("POST")
            else:
                self._send(403, b"this request is allowed only from this host\n", TEXT)

        def _serve(self, method: str) -> None:
            try:
                answer = _answer(method, self.path, routes)
            except PubSubError as error:  # the program is closing
                answer = 503, f"{error}\n".encode(), TEXT
            except Exception:  # noqa: BLE001 - the client must get a status, and the log the reason
                _log.exception("the endpoint for metrics cannot answer %s %s; please report this", method, self.path)
                answer = 500, b"internal error; see the program's log\n", TEXT
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


def _one_at_a_time(route: Route, route_lock: threading.Lock) -> Route:
    def answer(query: Query) -> Answered:
        if not route_lock.acquire(timeout=ROUTE_TIMEOUT):
            return 503, b"another request is in progress; try again\n", TEXT
        try:
            return route(query)
        finally:
            route_lock.release()

    return answer


def _answer(method: str, target: str, routes: Mapping[str, Route]) -> Answered:
    path, _, query = target.partition("?")
    route = routes.get(f"{method} {path}")
    if route is not None:
        return route(parse_qs(query, keep_blank_values=True))
    known = ", ".join(sorted(routes))
    return (405 if any(name.endswith(f" {path}") for name in routes) else 404), f"use one of {known}\n".encode(), TEXT


def _ready(found: Sequence[str]) -> Answered:
    return 503 if found else 200, "".join(f"{each}\n" for each in found or ["ready"]).encode(), TEXT
