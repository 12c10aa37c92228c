"""Histograms of the time since a commit: plain integers per bucket, for the metrics of replicas and services.

The commit's time is ``written_at`` of the link, by the writer's wall clock, so the clocks of two hosts are compared.
Nothing but metrics depends on the result. This module reads no clock and takes no lock: the caller gives the time.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, Protocol

import msgspec

BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets, in seconds. A latency that equals a bound is counted in the bucket of that bound."""
_NEVER: Final = float("inf")
_RANGES: Final = ((0.0, BOUNDS[0]), *pairwise(BOUNDS), (_NEVER, _NEVER))
"""Lower and upper bound of each bucket. No latency is between those of the last one: a link whose commit's time is
unknown has a huge latency.
"""


class Written(Protocol):
    """A link, or an event of a replica."""

    @property
    def written_at(self) -> float:
        """The time of its commit, in Unix seconds; 0.0: unknown."""


class Latencies(msgspec.Struct, frozen=True):
    """A histogram at one moment. Immutable."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """The number of latencies in the bucket of each of ``BOUNDS``, and above the last one."""
    total: float = 0.0
    """The sum of all latencies, in seconds."""
    negative: int = 0
    """How many were below 0, because clocks differ; they are counted as 0."""

    @property
    def count(self) -> int:
        """The number of all latencies."""
        return sum(self.counts)

    def __add__(self, other: "Latencies") -> "Latencies":
        counts = tuple(one + another for one, another in zip(self.counts, other.counts, strict=True))
        return Latencies(counts, self.total + other.total, self.negative + other.negative)


NO_LATENCIES: Final = Latencies()


class LatencyHistogram:
    """Counts latencies. Not thread-safe: the caller holds a lock of its own around ``observe``. Without the lock,
    ``taken`` may lack a part of the last observation.
    """

    __slots__ = ("_bucket", "_counts", "_negative", "_total")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0
        self._negative = 0
        self._bucket = 0
        """The bucket of the last latency."""

    def observe(self, commits: Iterable[Written], now: float) -> None:
        """Count the time from each commit until ``now``, in Unix seconds. A commit whose time is unknown (0.0) is not
        counted.

        Replicas call this for each link that they apply. Nearly always a link is in the bucket of the one before, so it
        costs two comparisons and two additions.
        """
        bucket = self._bucket
        low, high = _RANGES[bucket]
        alike = 0
        total = 0.0
        for commit in commits:
            latency = now - commit.written_at
            if low < latency <= high:
                alike += 1
                total += latency
                continue
            if not commit.written_at:
                continue
            if not latency >= 0.0:  # also NaN, which would remain in the sum
                self._negative += 1
                latency = 0.0
            self._counts[bucket] += alike
            bucket = bisect_left(BOUNDS, latency)
            low, high = _RANGES[bucket]
            alike = 1
            total += latency
        self._counts[bucket] += alike
        self._total += total
        self._bucket = bucket

    def taken(self) -> Latencies:
        """The histogram now. Any thread; does not block."""
        return Latencies(tuple(self._counts), self._total, self._negative)
