"""Prometheus families that replicas and services share. Imported only when an endpoint is configured."""

from collections.abc import Mapping
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pubsub_lib.latency import BOUNDS, Latencies
from pubsub_lib.version import __version__

_BOUNDS = [*map(str, BOUNDS), "+Inf"]


def histogram(name: str, text: str, latencies: Latencies) -> Metric:
    """The histogram of these latencies, in seconds."""
    buckets = list(zip(_BOUNDS, accumulate(latencies.counts), strict=True))
    return HistogramMetricFamily(name, text, buckets, latencies.total)


def negative_latencies(prefix: str, latencies: Mapping[str, Latencies]) -> Metric:
    """How many latencies of each step were below 0."""
    text = "Latencies below 0, because clocks differ; they are counted as 0."
    family = CounterMetricFamily(f"{prefix}negative_latencies", text, labels=["what"])
    for what, each in latencies.items():
        family.add_metric([what], each.negative)
    return family


def build_info() -> Metric:
    """The version of this library, as a label."""
    family = GaugeMetricFamily("pubsub_build_info", "1; the label is the version of pubsub_lib.", labels=["version"])
    family.add_metric([__version__], 1.0)
    return family
