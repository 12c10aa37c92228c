"""The publisher service's metrics, as Prometheus reads them. Imported only where an endpoint is asked for."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pubsub_lib.http_endpoint import Endpoint, Problems
from pubsub_lib.service.settings import ServiceSettings

PREFIX: Final = "publisher_service_"

Counters = Callable[[], Mapping[str, Mapping[str, float]]]


def endpoint_of(settings: ServiceSettings, counters: Counters, gauges: Counters, problems: Problems) -> Endpoint:
    """The endpoint that the settings ask for, not yet started."""
    return Endpoint(
        settings.metrics_address,
        settings.metrics_port,
        ServiceMetrics(counters, gauges, problems),
        problems,
        "metrics_port in [publisher_service]",
    )


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
