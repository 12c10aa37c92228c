"""A replica's metrics, as Prometheus reads them. Imported only where an endpoint is asked for."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.http_routes import Route
from pubsub_lib.replica.status import Status
from pubsub_lib.settings import Settings

PREFIX: Final = "pubsub_replica_"
MAX_TOPICS: Final = 200
"""A replica of more topics shows the lowest and the highest position only: series are what a monitoring pays for."""


def endpoint_of(
    settings: Settings,
    status: Callable[[], Status],
    routes: Mapping[str, Route] = MappingProxyType({}),
) -> Endpoint:
    """The endpoint that the settings ask for, not yet started. ``routes``: what it answers besides."""
    return Endpoint(
        settings.metrics_address,
        settings.metrics_port,
        ReplicaMetrics(status),
        lambda: status().problems,
        "replica_metrics_port in [pubsub]",
        routes,
    )


class ReplicaMetrics(Collector):
    """Takes a :class:`~pubsub_lib.replica.status.Status` when it is asked; keeps nothing of its own. Any thread."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Every metric; docs/operating.md says what each means. Raises ClosedError when the replica is closed."""
        now = self._status()
        yield from _freshness(now)
        yield from _positions(now)
        yield from _syncs(now)
        yield _counters("dropped", "Messages that were received and not used.", "why", now.dropped)
        yield _counters("driver", "What the driver counted.", "what", now.driver)
        yield from _handlers(now)
        yield from _left_out(now)
        yield _counters("journal_records", "Records of the journal.", "what", now.journal)
        yield _gauge("journal_failing", "1 while the journal cannot be written.", bool(now.journal_error))


def _freshness(now: Status) -> Iterable[Metric]:
    yield _gauge("ready", "1 when the replica is ready.", now.ready)
    yield _gauge("synced", "1 when every topic was synced and the handlers had what was there.", now.synced)
    yield _gauge("polling", "1 while no publisher proves to be fresh and the store is polled.", now.polling)
    yield _gauge("staleness_seconds", "Everything committed longer ago than that is here.", now.staleness)


def _positions(now: Status) -> Iterable[Metric]:
    known = {name: 0 if chain.known is None else chain.known.position for name, chain in now.chains.items()}
    yield _gauge("topics", "Topics that are subscribed to.", len(known))
    yield _gauge(
        "waiting_messages", "Messages that wait for an earlier one.", sum(c.waiting for c in now.chains.values())
    )
    ends = {"lowest": min(known.values(), default=0), "highest": max(known.values(), default=0)}
    yield _gauges("known_position", "Up to which positions everything is here.", "what", ends)
    if len(known) <= MAX_TOPICS:
        yield _gauges("topic_known_position", 'The same of each topic; "" is everything.', "topic", known)


def _syncs(now: Status) -> Iterable[Metric]:
    counters = now.counters
    yield _counter("links_applied", "Links applied.", counters.applied)
    syncs = CounterMetricFamily(f"{PREFIX}syncs", "Topics synced, by kind and cause.", labels=["kind", "cause"])
    for kind, causes in (("delta", counters.deltas), ("full", counters.fulls)):
        for cause, value in causes.items():
            syncs.add_metric([kind, cause], value)
    yield syncs
    yield _counter("history_changes", "Topics read anew because the store's history changed.", counters.history_changes)
    yield _counter("syncs_failed", "Syncs that failed or took too long.", counters.syncs_failed)
    tally = now.sequences
    seen = {"holes": tally.holes, "filled": tally.filled, "duplicates": tally.duplicates, "restarts": tally.restarts}
    yield _counters("sequences", "What publishers' sequences told.", "what", seen)
    faults = msgspec.structs.asdict(now.faults)
    yield _counters("faults", "What must never happen.", "what", faults)


def _handlers(now: Status) -> Iterable[Metric]:
    of = now.handlers
    done = {
        "handled": of.handled,
        "failed": of.failed,
        "retried": of.retried,
        "parked": of.parked,
        "conflated": of.conflated,
    }
    yield _counters("handlers", "What became of changes for handlers.", "what", done)
    yield _gauge("handlers_waiting", "Changes that wait for handlers.", of.waiting)
    yield _gauge("handlers_lag_seconds", "How long the oldest of them has been waiting.", of.lag)
    yield _gauge("handlers_parked_objects", "Objects that are parked now.", len(now.parked))


def _left_out(now: Status) -> Iterable[Metric]:
    objects = {name: index.left_out for name, index in now.indexes.items()}
    failures = {name: index.failures for name, index in now.indexes.items()}
    tables = Counter(each.table for each in now.unreadable)
    yield _gauges("index_left_out_objects", "Objects that an index lacks: they could not be indexed.", "index", objects)
    yield _counters("index_failures", "Objects that could not be indexed, each time.", "index", failures)
    yield _gauges("unreadable_objects", "Objects that do not fit their table's declared type.", "table", tables)
    yield _counter("unreadable_reads", "Reads of such objects.", now.unreadable_reads)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}{name}", text, value=float(value))


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=[label])
    for what, value in values.items():
        family.add_metric([what], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}{name}", text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}{name}", text, labels=[label])
    for what, value in values.items():
        family.add_metric([what], value)
    return family
