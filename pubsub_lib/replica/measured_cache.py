"""The cache of a replica with metrics: it counts the time from the commit until a link was applied."""

import time
from collections.abc import Mapping, Sequence

from pubsub_lib.core.cache import Cache, Fault
from pubsub_lib.core.events import Decode, Event
from pubsub_lib.core.model import Link
from pubsub_lib.latency import NO_LATENCIES, Latencies, LatencyHistogram


class MeasuredCache(Cache):
    """A cache that counts each link once, under the lock that its caller holds anyway. A full sync is not counted,
    because snapshots have no times of commits; a delta is, because its links have.
    """

    def __init__(self, decoders: Mapping[str, Decode]) -> None:
        super().__init__(decoders)
        self.latencies = LatencyHistogram()

    def apply_run(self, links: Sequence[Link], events: list[Event] | None) -> list[Fault]:
        """Apply these links, then read the clock once for all of them."""
        faults = Cache.apply_run(self, links, events)  # super() costs more
        self.latencies.observe(links, time.time())
        return faults


def cache_of(decoders: Mapping[str, Decode], *, measured: bool) -> Cache:
    """The cache of a replica. ``measured``: metrics are wanted; without them nothing is counted."""
    return MeasuredCache(decoders) if measured else Cache(decoders)


def applied_latencies(cache: Cache) -> Latencies:
    """The times from the commit until a link was applied; nothing without metrics. The caller holds the lock."""
    return cache.latencies.taken() if isinstance(cache, MeasuredCache) else NO_LATENCIES
