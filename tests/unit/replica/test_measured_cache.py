"""The cache of a replica with metrics: counts the time from the commit for each applied link, and nothing else."""

import time

import pytest

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.digest import fingerprint
from pubsub_lib.core.model import ZERO, Change, Head, Link, Point, Record, TopicSnapshot
from pubsub_lib.latency import BOUNDS, NO_LATENCIES
from pubsub_lib.replica.measured_cache import MeasuredCache, applied_latencies, cache_of

NOW = 2.0**30
VALUE = b"{}"


def link(position: int, written_at: float) -> Link:
    digest = fingerprint("port", "k", position, VALUE)
    change = Change("port", "k", "set", position, VALUE)
    return Link("t", Point(position - 1, 7), Point(position, 7), [change], 1, digest, ZERO, 1, written_at=written_at)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setattr(time, "time", lambda: NOW)
    return cache_of({}, measured=True)


def test_each_applied_link_is_counted(cache: Cache) -> None:
    assert cache.apply_run([link(1, NOW - 0.25), link(2, NOW - 0.25), link(3, NOW - 4.0)], None) == []
    assert cache.apply(link(4, NOW + 8.0)).intact
    assert cache.record("port", "k") == Record("port", "k", 4, VALUE)
    taken = applied_latencies(cache)
    assert {place: number for place, number in enumerate(taken.counts) if number} == {
        0: 1,
        BOUNDS.index(0.5): 2,
        BOUNDS.index(5.0): 1,
    }
    assert (taken.total, taken.negative) == (4.5, 1)


def test_full_sync_is_not_counted(cache: Cache) -> None:
    head = Head(Point(1, 7), 1, fingerprint("port", "k", 1, VALUE))
    assert cache.replace("t", TopicSnapshot(head, [Record("port", "k", 1, VALUE)])).intact
    assert applied_latencies(cache) == NO_LATENCIES


def test_cache_without_metrics_counts_nothing() -> None:
    cache = cache_of({}, measured=False)
    assert not isinstance(cache, MeasuredCache)
    cache.apply(link(1, NOW - 1.0))
    assert applied_latencies(cache) == NO_LATENCIES
