"""``/metrics`` for Prometheus and ``/ready`` for whoever starts and watches the service."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pubsub_lib.errors import TransportError

PREFIX: Final = "publisher_service_"

Counters = Callable[[], Mapping[str, Mapping[str, float]]]
Problems = Callable[[], list[str]]


class ServiceMetrics(Collector):
    """Reads the service's counters when it is asked; keeps nothing of its own."""

    def __init__(self, counters: Counters, gauges: Counters, problems: Problems) -> None:
        self._counters = counters
        self._gauges = gauges
        self._problems = problems

    def collect(self) -> Iterable[Metric]:
        """One family per part of the service, with what is counted as label."""
        for part, values in self._counters().items():
            text = f"What the service's part {part!r} counted."
            counter = CounterMetricFamily(f"{PREFIX}{part}", text, labels=["what"])
            for what, value in values.items():
                counter.add_metric([what], value)
            yield counter
        for part, values in self._gauges().items():
            text = f"What the service's part {part!r} shows now."
            gauge = GaugeMetricFamily(f"{PREFIX}{part}", text, labels=["what"])
            for what, value in values.items():
                gauge.add_metric([what], value)
            yield gauge
        yield GaugeMetricFamily(f"{PREFIX}ready", "1 when the service is ready.", value=float(not self._problems()))


class Endpoint:
    """An HTTP server on threads of its own. ``port`` 0 takes a free one."""

    def __init__(self, address: str, port: int, metrics: ServiceMetrics, problems: Problems) -> None:
        """Bind. Raises TransportError, naming address and port."""
        registry = CollectorRegistry()
        registry.register(metrics)
        try:
            self._server = _Server((address, port), _handler(registry, problems))
        except (OSError, OverflowError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise TransportError(
                f"the endpoint for metrics cannot be had at {address}:{port} ({reason}); "
                "set metrics_port in [publisher_service] to a free one, or to 0 for none"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="pubsub-metrics", daemon=True)

    @property
    def port(self) -> int:
        """What was bound."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop and release the port; within about half a second."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join(1.0)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is no news."""


def _handler(registry: CollectorRegistry, problems: Problems) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds; a client that says nothing does not keep its thread for ever

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path == "/ready":
                found = problems()
                text = "".join(f"{each}\n" for each in found or ["ready"])
                self._answer(503 if found else 200, text.encode(), "text/plain; charset=utf-8")
            else:
                self._answer(404, b"there are /metrics and /ready\n", "text/plain; charset=utf-8")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            """Requests are not logged."""

    return Handler
