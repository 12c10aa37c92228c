"""``/metrics`` for Prometheus and ``/ready`` for whoever starts and watches a program: a service or a replica."""

import os
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from pubsub_lib.errors import PubSubError, TransportError

Problems = Callable[[], Sequence[str]]
"""Why the program is not ready, one sentence each; none when it is. Any thread, does not block."""

LOOK_AGAIN = 0.1
"""Seconds within which the server notices that it is to end."""


class Endpoint:
    """An HTTP server on threads of its own; ``start`` and ``close`` from one thread.

    ``port`` 0 takes a free one. ``option`` says in an error where the port is set.
    """

    def __init__(self, address: str, port: int, metrics: Collector, problems: Problems, option: str) -> None:
        self._at = (address, port)
        self._option = option
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        self._problems = problems
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """What was bound; 0 before ``start``."""
        return 0 if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        """Bind, and begin to answer. Raises TransportError, naming address and port."""
        address, port = self._at
        try:
            self._server = _Server(self._at, _handler(self._registry, self._problems))
        except (OSError, OverflowError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise TransportError(
                f"the endpoint for metrics cannot be had at {address}:{port} ({reason}); "
                f"set {self._option} to a free one, or to 0 for none"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK_AGAIN,), name="pubsub-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop and release the port; within about half a second. What was not started, or is closed, is no matter."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            self._thread.join(1.0)
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is no news."""


def _handler(registry: CollectorRegistry, problems: Problems) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds; a client that says nothing does not keep its thread for ever

        def do_GET(self) -> None:
            try:
                answer = _answer(self.path.partition("?")[0], registry, problems)
            except PubSubError as error:  # it is being closed
                answer = 503, f"{error}\n".encode(), TEXT
            status, body, kind = answer
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            """Requests are not logged."""

    return Handler


TEXT = "text/plain; charset=utf-8"


def _answer(path: str, registry: CollectorRegistry, problems: Problems) -> tuple[int, bytes, str]:
    if path == "/metrics":
        return 200, generate_latest(registry), CONTENT_TYPE_LATEST
    if path == "/ready":
        found = problems()
        return 503 if found else 200, "".join(f"{each}\n" for each in found or ["ready"]).encode(), TEXT
    return 404, b"there are /metrics and /ready\n", TEXT
