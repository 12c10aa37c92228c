"""When a chain whose count or digest differed is read again (rules 9 and 14)."""

from typing import Final

import msgspec

from pubsub_lib.core.sync_scheduler import backoff
from pubsub_lib.core.timing import Timing

FORGET: Final = 600.0
"""Seconds after a pause after which the next link that had waited causes a reading at once again."""


class PersistentMismatch(msgspec.Struct):
    """All of a chain was read, and the answer did not fit its own count or digest: so the fault is in the store."""

    topic: str
    """The first topic that did not fit."""
    again_at: float
    """When the chain is read again; infinite while that is due or runs."""


class LinkPauses:
    """Pauses before the differing buckets of a chain are read again because of a link that had waited. The first such
    reading is at once. Other reasons for a reading do not wait: an altered object in memory, a link in order, a hello.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._readings: dict[str, tuple[int, float]] = {}
        """By chain: how many such readings there were, and the end of the last pause."""
        self.ends: dict[str, float] = {}
        """By chain: the end of the current pause."""

    def may_read(self, chain: str, now: float) -> bool:
        """A link that had waited does not fit. False: the chain is to be read at the end of the pause, which is twice
        as long as the one before.
        """
        if chain in self.ends:
            return False
        number, until = self._readings.get(chain, (0, now))
        if number and now < until + FORGET:
            until = self.ends[chain] = now + backoff(self._timing, number - 1)
        else:
            number, until = 0, now
        self._readings[chain] = number + 1, until
        return not number

    def due(self, now: float) -> list[str]:
        """The chains whose pauses have ended: to be read now."""
        ended = [chain for chain, until in self.ends.items() if now >= until]
        for chain in ended:
            del self.ends[chain]
        return ended

    def read(self, chain: str) -> None:
        """The chain was read, so the current pause has no purpose. The next one is longer nevertheless."""
        self.ends.pop(chain, None)

    def forget(self, chain: str) -> None:
        """The chain is not followed any more."""
        self._readings.pop(chain, None)
        self.ends.pop(chain, None)
