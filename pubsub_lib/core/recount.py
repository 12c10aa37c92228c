"""When a replica's memory is recounted: every object within a configured time, a bounded number at each step."""

from collections.abc import Callable, Sequence
from typing import Final

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.topic_objects import Rot, Walk

STEP_OBJECTS: Final = 500
"""Objects of one step: the replica's lock is held for about half a millisecond."""
TOPIC_COST: Final = 5
"""Cost of a topic without its objects, in objects."""
PAUSE: Final = 0.01
"""Seconds between two steps."""
NEVER_DUE: Final = float("inf")


class Recount:
    """Rounds over all topics, two in each ``within`` seconds (0: none), so that the next round still finds in time an
    object that is altered right after a round checked it. Not thread-safe: the caller holds the replica's lock.
    """

    def __init__(self, within: float, now: float) -> None:
        self._period = within / 2
        self._round_at = now + self._period if within else NEVER_DUE
        self._topics: list[str] = []
        self._walk: Walk | None = None
        self._pause = PAUSE
        self.next_time = self._round_at
        """When ``step`` is next due."""
        self.rounds = 0
        """Completed rounds."""
        self.objects = 0
        """Objects that were checked."""

    def step(self, cache: Cache, is_frozen: Callable[[str], bool], now: float) -> Sequence[Rot]:
        """Check the next objects. Returns the faults of the topics whose check ended in this step.

        ``is_frozen``: whether a topic is to be read again anyway; such topics are left out.
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
                self._walk = None if is_frozen(name) else cache.walk(name)
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
        # A round over very many objects, or within a very short time, must be faster to end before the next one.
        self._pause = min(PAUSE, self._period / 2 / (1 + weight / STEP_OBJECTS))
