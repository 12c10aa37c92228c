"""Publishers whose messages are not used for some time, because the store contradicted them repeatedly (rule 14).

A publisher is contradicted when its message led a replica to a point that the store does not contain. A restored backup
contradicts honest publishers, once each time, so one contradiction has no effect.
"""

from typing import Final

CONTRADICTIONS: Final = 3
"""Number of contradictions that lead to the quarantine, each less than ``SECONDS`` after the one before."""
SECONDS: Final = 600.0
"""Seconds of a quarantine: the replica then tries again, so that a mistake cannot exclude a publisher for ever."""
MAX_KEPT: Final = 1000
"""Maximum number of publishers that are remembered; the oldest is forgotten first."""


class Quarantine:
    """The contradicted publishers of one replica, by UUID. Not thread-safe."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._times: dict[str, list[float]] = {}
        self.until: dict[str, float] = {}
        """The end of each quarantine. Empty: ``excludes`` need not be called, which is a part of every message's cost.
        """

    def contradicted(self, uuid: str, now: float) -> bool:
        """The store contradicted a publisher. True: its quarantine begins."""
        times = [at for at in self._times.pop(uuid, []) if now - at < self._seconds] + [now]
        if len(times) >= CONTRADICTIONS:
            self.until[uuid] = now + self._seconds
            return True
        self._times[uuid] = times
        while len(self._times) > MAX_KEPT:
            del self._times[next(iter(self._times))]
        return False

    def excludes(self, uuid: str, now: float) -> bool:
        """Whether the messages of a publisher are not to be used now."""
        until = self.until.get(uuid)
        if until is None:
            return False
        if now < until:
            return True
        del self.until[uuid]
        return False

    def excluded(self, now: float) -> list[str]:
        """The UUIDs of the publishers that are excluded now."""
        return [uuid for uuid, until in self.until.items() if now < until]
