"""When a sync may start: one at a time, jittered, rate-limited, with backoff; no need is forgotten (rule 9)."""

import random

from pubsub_lib.core.backoff import doubled
from pubsub_lib.core.timing import Timing


def backoff(timing: Timing, failures: int) -> float:
    """Seconds to wait after a failure. ``failures``: number of failures before it; each doubles the wait, up to
    ``max_sync_backoff``.
    """
    return doubled(timing.sync_backoff, failures, timing.max_sync_backoff)


class SyncScheduler:
    """The one sync of a replica. Independent of the synced chains."""

    def __init__(self, timing: Timing, rng: random.Random, now: float) -> None:
        self._timing = timing
        self._rng = rng
        self.due: float | None = None
        """When the next sync is due; None while no chain needs one."""
        self._free_from = now
        self._failures = 0
        self._failed = self._source_changed = False
        """Whether the last sync failed; whether another source is to be asked since the running sync began."""
        self.number = 0
        """Number of the sync that runs or ran last; an answer with another number is late and ignored."""
        self.running = False
        self.begun = 0.0
        self.turn = 0
        self.failure = ""
        """Why the last sync failed, as one sentence; "" when it did not, or when nothing was wrong with the answer."""

    def need(self, now: float) -> None:
        """A chain needs a sync. Another call has no effect: the first need keeps its time."""
        if self.due is None:
            self.due = now + self._rng.random() * self._timing.sync_jitter

    def need_now(self, now: float) -> None:
        """The answer just read needs another reading: the same sync goes on."""
        self.due = self._free_from = now

    def no_need(self) -> None:
        """No sync is due any more (the topic was dropped)."""
        self.due = None
        self.failure = ""

    def may_begin(self, now: float) -> bool:
        """True when a sync is due and none runs."""
        return not self.running and self.due is not None and now >= max(self.due, self._free_from)

    def begin(self, now: float, turn: int) -> int:
        """Start; returns the sync's number."""
        self.number += 1
        self.running = True
        self._source_changed = False
        self.begun = now
        self.turn = turn
        self.due = None
        return self.number

    def ended(self, now: float) -> None:
        """The sync ended, and all of its answer is used."""
        self.running = self._failed = False
        self.failure = ""
        self._failures = 0
        self._free_from = now + self._timing.sync_interval

    def failed(self, now: float, pause: float | None = None, why: str = "") -> None:
        """The sync failed: each failure doubles the wait before the next. ``pause``: the wait that the source asked
        for, in place of that: it does its work, and knows how long others need it. ``why``: the ``failure``.
        """
        self.running, self._failed = False, True
        self.failure = why
        if self._source_changed:  # neither the failure nor the pause is one of the new source
            self._free_from = now
            return
        if pause is not None:
            self._free_from = now + max(pause, self._timing.sync_backoff)
            return
        self._free_from = now + backoff(self._timing, self._failures)
        self._failures += 1

    def source_changed(self, now: float) -> None:
        """The next sync is read from another source. What the one before failed at, or asked for, delays no sync."""
        self._source_changed = self.running
        if self._failed:
            self._free_from = min(self._free_from, now)
        self._failures = 0

    @property
    def waits(self) -> bool:
        """True while a sync is due."""
        return self.due is not None

    @property
    def failures(self) -> int:
        """Consecutive syncs that failed, without those whose source asked for a pause."""
        return self._failures

    def timed_out(self, now: float) -> bool:
        """True when the running sync takes too long."""
        return self.running and now >= self.begun + self._timing.sync_timeout

    def next_time(self) -> float:
        """When ``may_begin`` or ``timed_out`` will next be true; infinite when no sync is due or runs."""
        if self.running:
            return self.begun + self._timing.sync_timeout
        return float("inf") if self.due is None else max(self.due, self._free_from)
