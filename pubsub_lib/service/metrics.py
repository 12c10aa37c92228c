"""The publisher service's metrics for Prometheus. Imported only when an endpoint is configured."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.http_endpoint import Endpoint, Problems
from pubsub_lib.http_routes import Route, Streaming
from pubsub_lib.latency import Latencies
from pubsub_lib.metric_families import build_info, histogram, negative_latencies

PREFIX: Final = "pubsub_service_"

Counters = Callable[[], Mapping[str, Mapping[str, float]]]
Times = Callable[[], Mapping[str, Latencies]]
"""The time from the commit until each step, by its name."""


def endpoint_of(
    settings: ServiceSettings,
    counters: Counters,
    gauges: Counters,
    latencies: Times,
    problems: Problems,
    insecure: bool = False,
    routes: Mapping[str, Route] = MappingProxyType({}),
    streams: Mapping[str, Streaming] = MappingProxyType({}),
) -> Endpoint:
    """The endpoint of the settings, not yet started. ``insecure``: its address may be one that others can reach.
    ``routes``: its further routes; ``streams``: those with large bodies and answers.
    """
    return Endpoint(
        settings.metrics_address,
        max(settings.metrics_port, 0),  # -1: a free one
        ServiceMetrics(counters, gauges, latencies, problems),
        problems,
        "metrics_port in [publisher_service]",
        routes,
        insecure=insecure,
        hosts=settings.metrics_hosts,
        streams=streams,
    )


class ServiceMetrics(Collector):
    """Reads the service's counters at each request; keeps no state."""

    def __init__(self, counters: Counters, gauges: Counters, latencies: Times, problems: Problems) -> None:
        self._counters = counters
        self._gauges = gauges
        self._latencies = latencies
        self._problems = problems

    def collect(self) -> Iterable[Metric]:
        """One family per part of the service, with the counters' names as label; histograms; the version."""
        for part, values in self._counters().items():
            text = f"Counters of the service's part {part!r}."
            counter = CounterMetricFamily(f"{PREFIX}{part}", text, labels=["what"])
            for what, value in values.items():
                counter.add_metric([what], value)
            yield counter
        for part, values in self._gauges().items():
            text = f"Current values of the service's part {part!r}."
            gauge = GaugeMetricFamily(f"{PREFIX}{part}", text, labels=["what"])
            for what, value in values.items():
                gauge.add_metric([what], value)
            yield gauge
        latencies = self._latencies()
        for step, taken in latencies.items():
            text = f"Seconds from the commit until the link was {step}, by the wall clocks of both hosts."
            yield histogram(f"{PREFIX}commit_to_{step}_seconds", text, taken)
        yield negative_latencies(PREFIX, latencies)
        yield build_info()
        yield GaugeMetricFamily(f"{PREFIX}ready", "1 when the service is ready.", value=float(not self._problems()))
