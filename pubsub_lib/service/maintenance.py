"""Trimming the changelog and removing expired entries, by the one service that holds the lease."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

TRIMMING: Final = 2.0
"""Seconds of a step after which it removes no more links. Millions of links take many steps: a step without end would
count as that of a thread that hangs, and would go on without the lease."""


class Collects(Protocol):
    """A directory. Blocks; raises StoreError."""

    def collect_garbage(self) -> int:
        """Remove expired entries; returns how many."""


class Trimmed(Protocol):
    """The methods of a store that maintenance uses."""

    @property
    def directory(self) -> Collects:
        """Services and leases."""

    def trim_batches(self, *, keep_links: int | None = None, keep_seconds: float | None = None) -> Iterator[int]:
        """Remove the oldest links; yields how many after each batch. Blocks; raises StoreError."""


class _Rules(msgspec.Struct, frozen=True):
    """Replaced as a whole, so that a step never uses a bound of one configuration with a bound of another."""

    interval: float
    keep_links: int | None
    keep_seconds: float | None


class Maintenance:
    """``keep_links`` and ``keep_time`` (seconds): 0 means no such bound. ``step`` is called by one thread."""

    def __init__(
        self,
        store: Trimmed,
        holds: Callable[[float], bool],
        interval: float,
        keep_links: int,
        keep_time: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``holds(now)``: whether this service holds the lease."""
        self._store = store
        self._holds = holds
        self._rules = _Rules(interval, keep_links or None, keep_time or None)
        self._clock = clock
        self._unfinished: tuple[_Rules, Iterator[int]] | None = None
        """The trimming that the next step goes on with, and its bounds."""
        self._counts: Counter[str] = Counter(trimmed=0, collected=0)

    def step(self, now: float) -> float:
        """Clean up if this service holds the lease; returns the time of the next step, which is ``now`` while links are
        left to be removed. Blocks for the database; raises StoreError.
        """
        rules, (bounds, batches) = self._rules, self._unfinished or (None, iter(()))
        self._unfinished = None  # a step that raises leaves nothing to go on with: the next one begins again
        if not self._holds(now):
            return now + rules.interval
        until = self._clock() + TRIMMING
        if bounds is not rules:
            self._counts["collected"] += self._store.directory.collect_garbage()
            batches = self._batches(rules)
        for removed in batches:
            self._counts["trimmed"] += removed
            if self._clock() >= until:
                self._unfinished = rules, batches
                return now
        return now + rules.interval

    def _batches(self, rules: _Rules) -> Iterator[int]:
        if rules.keep_links is None and rules.keep_seconds is None:
            return iter(())
        return self._store.trim_batches(keep_links=rules.keep_links, keep_seconds=rules.keep_seconds)

    def adjust(self, interval: float, keep_links: int, keep_time: float) -> None:
        """Use other bounds and another interval from the next step on. Any thread."""
        self._rules = _Rules(interval, keep_links or None, keep_time or None)

    def counters(self) -> Mapping[str, int]:
        """``trimmed`` links and ``collected`` entries."""
        return dict(self._counts)
