"""Prometheus families of histograms and of the version: names, buckets and values."""

from typing import NamedTuple

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

from pubsub_lib import __version__
from pubsub_lib.latency import BOUNDS, LatencyHistogram
from pubsub_lib.metric_families import build_info, histogram, negative_latencies

NOW = 1024.0


class Commit(NamedTuple):
    written_at: float


class Fixed(Collector):
    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> tuple[Metric, ...]:
        return self._families


def registry(*families: Metric) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(Fixed(*families))
    return made


def test_histogram_has_cumulative_buckets_count_and_sum() -> None:
    latencies = LatencyHistogram()
    for latency in (0.0, 0.25, 0.25, 60.0, 1000.0):
        latencies.observe([Commit(NOW - latency)], NOW)
    text = generate_latest(registry(histogram("x_seconds", "About it.", latencies.taken()))).decode()
    (family,) = text_string_to_metric_families(text)
    buckets = {each.labels["le"]: each.value for each in family.samples if each.name == "x_seconds_bucket"}
    assert [float(bound) for bound in buckets] == [*BOUNDS, float("inf")]
    below = {"0.001": 1, "0.2": 1, "0.5": 3, "30.0": 3, "60.0": 4, "+Inf": 5}
    assert {bound: buckets[bound] for bound in below} == below
    others = {each.name: each.value for each in family.samples if each.name != "x_seconds_bucket"}
    assert others == {"x_seconds_count": 5.0, "x_seconds_sum": 1060.5}
    assert (family.type, family.documentation) == ("histogram", "About it.")


def test_openmetrics_accepts_the_families() -> None:
    latencies = LatencyHistogram()
    latencies.observe([Commit(NOW - 1.0)], NOW)
    made = registry(histogram("x_seconds", "About it.", latencies.taken()), build_info())
    text = exposition.generate_latest(made).decode()  # type: ignore[no-untyped-call]
    families = parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    assert [each.name for each in families] == ["x_seconds", "pubsub_build_info"]


def test_negative_latencies_are_a_counter_by_step() -> None:
    latencies = LatencyHistogram()
    latencies.observe([Commit(NOW + 1.0)], NOW)
    family = negative_latencies("x_", {"sent": latencies.taken()})
    assert [(each.name, each.labels, each.value) for each in family.samples] == [
        ("x_negative_latencies_total", {"what": "sent"}, 1)
    ]


def test_build_info_names_the_version() -> None:
    assert [(each.name, each.labels, each.value) for each in build_info().samples] == [
        ("pubsub_build_info", {"version": __version__}, 1.0)
    ]
