"""Trimming the changelog and removing expired entries, by the one service that holds the lease."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec


class Collects(Protocol):
    """A directory. Blocks; raises StoreError."""

    def collect_garbage(self) -> int:
        """Remove expired entries; returns how many."""


class Trimmed(Protocol):
    """The methods of a store that maintenance uses."""

    @property
    def directory(self) -> Collects:
        """Services and leases."""

    def trim(self, *, keep_links: int | None = None, keep_seconds: float | None = None) -> int:
        """Remove the oldest links; returns how many. Blocks; raises StoreError."""


class _Rules(msgspec.Struct, frozen=True):
    """Replaced as a whole, so that a step never uses a bound of one configuration with a bound of another."""

    interval: float
    keep_links: int | None
    keep_seconds: float | None


class Maintenance:
    """``keep_links`` and ``keep_time`` (seconds): 0 means no such bound. ``step`` is called by one thread."""

    def __init__(
        self, store: Trimmed, holds: Callable[[float], bool], interval: float, keep_links: int, keep_time: float
    ) -> None:
        """``holds(now)``: whether this service holds the lease."""
        self._store = store
        self._holds = holds
        self._rules = _Rules(interval, keep_links or None, keep_time or None)
        self._counts: Counter[str] = Counter(trimmed=0, collected=0)

    def step(self, now: float) -> float:
        """Clean up if this service holds the lease; returns the time of the next step. Blocks for the database; raises
        StoreError.
        """
        rules = self._rules
        if self._holds(now):
            self._counts["collected"] += self._store.directory.collect_garbage()
            if rules.keep_links is not None or rules.keep_seconds is not None:
                removed = self._store.trim(keep_links=rules.keep_links, keep_seconds=rules.keep_seconds)
                self._counts["trimmed"] += removed
        return now + rules.interval

    def adjust(self, interval: float, keep_links: int, keep_time: float) -> None:
        """Use other bounds and another interval from the next step on. Any thread."""
        self._rules = _Rules(interval, keep_links or None, keep_time or None)

    def counters(self) -> Mapping[str, int]:
        """``trimmed`` links and ``collected`` entries."""
        return dict(self._counts)
