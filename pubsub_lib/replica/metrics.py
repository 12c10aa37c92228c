"""A replica's metrics for Prometheus. Imported only when an endpoint is configured."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.http_routes import Route
from pubsub_lib.metric_families import build_info, histogram, negative_latencies
from pubsub_lib.replica.status import Status
from pubsub_lib.settings import Settings

PREFIX: Final = "pubsub_replica_"
MAX_TOPICS: Final = 200
"""A replica of more topics shows only the lowest and the highest position, to limit the number of time series."""
MAX_PUBLISHERS: Final = 20
"""Maximum number of quarantined publishers with a name, for the same reason: a program can send with many UUIDs."""


def endpoint_of(
    settings: Settings,
    status: Callable[[], Status],
    routes: Mapping[str, Route] = MappingProxyType({}),
) -> Endpoint:
    """The configured endpoint, not yet started. ``routes``: its further routes."""
    return Endpoint(
        settings.replica_metrics_address,
        settings.replica_metrics_port,
        ReplicaMetrics(status),
        lambda: status().problems,
        "replica_metrics_port in [pubsub]",
        routes,
        settings.insecure,
        settings.replica_metrics_hosts,
    )


class ReplicaMetrics(Collector):
    """Reads a :class:`~pubsub_lib.replica.status.Status` at each collection; has no other state. Any thread."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Every metric (described in docs/operating.md). Raises ClosedError when the replica is closed."""
        now = self._status()
        yield from _freshness(now)
        yield from _positions(now)
        yield from _syncs(now)
        yield _counters("dropped", "Received messages that were dropped.", "why", now.dropped)
        yield _counters("driver", "Counters of the driver.", "what", now.driver)
        yield from _handlers(now)
        yield from _latencies(now)
        yield from _left_out(now)
        yield _counters("journal_records", "Records of the journal.", "what", now.journal)
        yield _gauge("journal_failing", "1 while the journal cannot be written.", bool(now.journal_error))
        yield _counters("announcements", "Announcements to the sync channel.", "what", now.announcements)
        yield build_info()


def _freshness(now: Status) -> Iterable[Metric]:
    yield _gauge("ready", "1 when the replica is ready.", now.ready)
    yield _gauge("synced", "1 when every topic was synced and handlers finished the initial changes.", now.synced)
    yield _gauge("polling", "1 while no publisher sends fresh hello replies and the store is polled.", now.polling)
    yield _gauge("staleness_seconds", "Maximum age of commits that the replica may lack.", now.staleness)


def _positions(now: Status) -> Iterable[Metric]:
    known = {name: 0 if chain.known is None else chain.known.position for name, chain in now.chains.items()}
    yield _gauge("topics", "Topics that are subscribed to.", len(known))
    yield _gauge(
        "waiting_messages", "Messages that wait for an earlier one.", sum(c.waiting for c in now.chains.values())
    )
    ends = {"lowest": min(known.values(), default=0), "highest": max(known.values(), default=0)}
    yield _gauges("known_position", "Position up to which a topic is complete, over all topics.", "what", ends)
    if len(known) <= MAX_TOPICS:
        yield _gauges("topic_known_position", 'Position up to which each topic is complete; "": all.', "topic", known)


def _syncs(now: Status) -> Iterable[Metric]:
    counters = now.counters
    yield _counter("links_applied", "Links applied.", counters.applied)
    syncs = CounterMetricFamily(f"{PREFIX}syncs", "Topics synced, by kind and cause.", labels=["kind", "cause"])
    for kind, causes in (("delta", counters.deltas), ("full", counters.fulls)):
        for cause, value in causes.items():
            syncs.add_metric([kind, cause], value)
    yield syncs
    yield _counter("history_changes", "Topics read again after the store's history changed.", counters.history_changes)
    yield _counter("contradicted", "Times that the store contradicted a message.", counters.contradicted)
    yield from _quarantined(now)
    yield _counter("unleased", "Messages and hello replies of publishers without a live lease.", counters.unleased)
    yield _counter("useless_reads", "Readings for a count or digest that found no difference.", counters.useless)
    yield _counter("syncs_failed", "Syncs that failed, timed out, or lacked a topic.", counters.syncs_failed)
    seen = msgspec.structs.asdict(now.sequences)
    yield _counters("sequences", "Events found by publishers' sequences.", "what", seen)
    faults = msgspec.structs.asdict(now.faults)
    yield _counters("faults", "Faults that must not happen.", "what", faults)


def _quarantined(now: Status) -> Iterable[Metric]:
    yield _gauge("quarantined_publishers", "Publishers whose messages are not used now.", len(now.quarantined))
    text = f"Seconds until the messages of a publisher are used again, for the last {MAX_PUBLISHERS} publishers."
    left = GaugeMetricFamily(f"{PREFIX}quarantine_seconds", text, labels=["service", "uuid"])
    for each in now.quarantined[-MAX_PUBLISHERS:]:
        left.add_metric([each.service, each.uuid], each.seconds_left)
    yield left


def _handlers(now: Status) -> Iterable[Metric]:
    of = now.handlers
    done = {
        "handled": of.handled,
        "failed": of.failed,
        "retried": of.retried,
        "parked": of.parked,
        "conflated": of.conflated,
    }
    yield _counters("handlers", "Changes for handlers, by outcome.", "what", done)
    yield _gauge("handlers_waiting", "Changes that wait for handlers.", of.waiting)
    yield _gauge("handlers_lag_seconds", "Wait of the oldest change for handlers.", of.lag)
    yield _gauge("handlers_parked_objects", "Objects that are parked now.", len(now.parked))


def _latencies(now: Status) -> Iterable[Metric]:
    steps = {"applied": now.commit_to_applied, "handled": now.handlers.commit_to_handled}
    texts = {"applied": "the link was applied", "handled": "a handler of the change returned"}
    for step, taken in steps.items():
        text = f"Seconds from the commit until {texts[step]}, by the wall clocks of both hosts."
        yield histogram(f"{PREFIX}commit_to_{step}_seconds", text, taken)
    yield negative_latencies(PREFIX, steps)


def _left_out(now: Status) -> Iterable[Metric]:
    objects = {name: index.left_out for name, index in now.indexes.items()}
    failures = {name: index.failures for name, index in now.indexes.items()}
    tables = Counter(each.table for each in now.unreadable)
    yield _gauges("index_left_out_objects", "Objects that an index lacks after a failure.", "index", objects)
    yield _counters("index_failures", "Failed attempts to index an object.", "index", failures)
    yield _gauges("unreadable_objects", "Objects that do not fit their table's declared type.", "table", tables)
    yield _counter("unreadable_reads", "Failed reads of such objects.", now.unreadable_reads)


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
