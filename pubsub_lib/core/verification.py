"""When a replica compares itself with the store, although publishers prove that it is fresh (rule 14)."""

import random

from pubsub_lib.core.timing import MIN_SECONDS, Timing

NEVER_DUE = float("inf")


class Verification:
    """The time of the next verification. ``rng`` spreads replicas that started together."""

    def __init__(self, timing: Timing, rng: random.Random, now: float) -> None:
        # Not more often than syncs may begin.
        self._interval = timing.verify_interval and max(timing.verify_interval, timing.sync_interval, MIN_SECONDS)
        self._rng = rng
        self.next_time = self._next(now)
        """When ``due`` will next return True; ``NEVER_DUE`` with the interval 0."""

    def due(self, now: float) -> bool:
        """Whether to verify now; then the next time is chosen."""
        if now < self.next_time:
            return False
        self.next_time = self._next(now)
        return True

    def recent(self, verified_at: float, now: float) -> bool:
        """Whether a sync that began at ``verified_at`` makes a verification needless."""
        return now - verified_at <= self._interval / 2

    def _next(self, now: float) -> float:
        return now + self._interval * (0.75 + self._rng.random() / 2) if self._interval else NEVER_DUE
