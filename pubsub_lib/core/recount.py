"""When a replica's memory is counted anew: every object within a stated time, a bounded number at each step."""

from collections.abc import Callable, Sequence
from typing import Final

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.topic_objects import Rot, Walk

STEP_OBJECTS: Final = 500
"""Objects of one step: the replica's lock is held for about half a millisecond."""
TOPIC_COST: Final = 5
"""What a topic counts for besides its objects."""
PAUSE: Final = 0.01
"""Seconds between two steps."""
NEVER_DUE: Final = float("inf")


class Recount:
    """Rounds over all topics, two in each ``within`` seconds (0: none), so that what goes wrong right behind a round
    is found by the next one in time. Not thread-safe: the caller holds the replica's lock.
    """

    def __init__(self, within: float, now: float) -> None:
        self._period = within / 2
        self._round_at = now + self._period if within else NEVER_DUE
        self._topics: list[str] = []
        self._walk: Walk | None = None
        self._pause = PAUSE
        self.next_time = self._round_at
        """When ``step`` has something to do."""
        self.rounds = 0
        """Rounds that were ended."""
        self.objects = 0
        """Objects that were looked at."""

    def step(self, cache: Cache, stands_still: Callable[[str], bool], now: float) -> Sequence[Rot]:
        """Look at the next objects; what was found in topics that were looked at to their end.

        ``stands_still``: topics that are to be read anew anyway, which are left out.
        """
        if now < self.next_time:
            return ()
        if not self._topics and self._walk is None:
            self._begin(cache, now)
        found = []
        left = STEP_OBJECTS
        while left > 0 and (self._walk is not None or self._topics):
            if self._walk is None:
                left -= TOPIC_COST
                name = self._topics.pop()
                self._walk = None if stands_still(name) else cache.walk(name)
                continue
            if not self._walk.over:
                looked = self._walk.step(left)
                self.objects += looked
                left -= looked
                if not self._walk.done:
                    break
                rot = self._walk.result()
                if rot is not None:
                    found.append(rot)
            self._walk = None
        if self._topics or self._walk is not None:
            self.next_time = now + self._pause
        else:
            self.rounds += 1
            self.next_time = max(self._round_at, now + self._pause)
        return found

    def _begin(self, cache: Cache, now: float) -> None:
        self._round_at = now + self._period
        self._topics = cache.topics()
        weight = sum(cache.head(name)[0] + TOPIC_COST for name in self._topics)
        # A round of very much, or within a very short time, must go faster to end before the next one.
        self._pause = min(PAUSE, self._period / 2 / (1 + weight / STEP_OBJECTS))
