"""``/metrics`` for Prometheus and ``/ready`` for supervisors of a program: the publisher service or a replica."""

import errno
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from pubsub_lib import exposure
from pubsub_lib.errors import ClosedError, TransportError
from pubsub_lib.http_limits import Pauses, PleaseWait, plain_name
from pubsub_lib.http_routes import Answered, Query, Route, Streaming
from pubsub_lib.http_server import TEXT, Server, Server6
from pubsub_lib.port_owner import owner_of_port
from pubsub_lib.threads.start import ReadyThread

Problems = Callable[[], Sequence[str]]
"""The reasons why the program is not ready, one sentence each; empty when it is. Any thread, does not block."""

ROUTE_TIMEOUT: Final = 5.0
"""Seconds that a request of ``routes`` waits for another one before it gets 503."""
SHORT_PAUSE: Final = 0.5
"""Seconds of a pause that the endpoint itself waits for; for a longer one the client gets 429 with Retry-After."""
FIRST_PAUSE: Final = 1.0
"""Seconds between the first two requests that change state (POST); later pauses are longer."""
SHUTDOWN_POLL = 0.1
"""Seconds within which the server notices that it must stop."""


class Endpoint:
    """An HTTP server on its own threads. ``start`` and ``close`` may be called from any thread.

    ``port`` 0 takes a free one. ``option``: the name of the port's option, for errors. ``routes``: further routes by
    method and path (``GET /verify``); they run one at a time and with pauses (:class:`.http_limits.Pauses`), because
    they may cost more than metrics. POST changes state, so it is accepted only from this host, and with a header that
    no web page can send. ``insecure``: the address may be one that others can reach; the constructor raises ConfigError
    for such an address without it. ``hosts``: names of this host that requests may use, besides its addresses.
    ``streams``: routes with large bodies and answers, which have limits of their own.
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
        hosts: Collection[str] = (),
        streams: Mapping[str, Streaming] = MappingProxyType({}),
    ) -> None:
        self._at = (address.strip("[]"), port)
        self._listener = {option.replace("_port", "_address"): f"http://{address}:{port}"}
        self._insecure = insecure
        exposure.check(self._listener, insecure)
        self._option = option
        self._names = frozenset(plain_name(each) for each in (address, *hosts) if each)
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        route_lock = threading.Lock()
        self._routes: Mapping[str, Route] = {
            "GET /metrics": lambda _query: (200, generate_latest(self._registry), CONTENT_TYPE_LATEST),
            "GET /ready": lambda _query: _ready(problems()),
            **{
                name: _paused(route, route_lock, Pauses(FIRST_PAUSE if name.startswith("POST ") else 0.0))
                for name, route in routes.items()
            },
        }
        self._streams = streams
        self._lock = threading.Lock()
        self._closed = False
        self._server: Server | None = None
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

    def _bound(self) -> Server:
        address, port = self._at
        try:
            kind = Server6 if ":" in address else Server
            return kind(self._at, self._routes, self._names, self._streams)
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


def _paused(route: Route, turn: threading.Lock, pauses: Pauses) -> Route:
    """The route, for one request at a time of all paused routes, and with a pause after each of this one's.

    A short pause is waited for, so that a client that verifies topic after topic needs no second request.
    """

    def answer(query: Query) -> Answered:
        if not turn.acquire(timeout=ROUTE_TIMEOUT):
            return 503, b"another request is in progress; try again\n", TEXT
        try:
            pause = pauses.left(time.monotonic())
            if pause > SHORT_PAUSE:
                raise PleaseWait(pause)
            time.sleep(pause)
            begin = time.monotonic()
            answered = route(query)
            if answered[0] == HTTPStatus.OK:  # others did nothing that costs
                pauses.served(begin, time.monotonic())
            return answered
        finally:
            turn.release()

    return answer


def _ready(found: Sequence[str]) -> Answered:
    return 503 if found else 200, "".join(f"{each}\n" for each in found or ["ready"]).encode(), TEXT
