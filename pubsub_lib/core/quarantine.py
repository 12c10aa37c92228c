"""Publishers whose messages are not used for some time, because the store contradicted them repeatedly (rule 14).

A publisher is contradicted when its message led a replica to a point that the store does not contain. A restored backup
contradicts honest publishers, so one contradiction has no effect. The topics of a replica show a restore one after the
other, and messages of the undone history may still arrive: together they count once.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from pubsub_lib.core.effects import Replace

Publisher = tuple[str, str]
"""Service name and UUID."""

CONTRADICTIONS: Final = 3
"""Number of contradictions within ``SECONDS`` that lead to the quarantine."""
SPACING: Final = 10.0
"""A contradiction counts only if its point was reached more than these seconds after the last one that counted."""
SECONDS: Final = 600.0
"""Seconds of a quarantine: the replica then tries again, so that a mistake cannot exclude a publisher for ever."""
MAX_KEPT: Final = 1000
"""Maximum number of contradicted and of excluded publishers; the oldest is forgotten first."""


class QuarantinedPublisher(msgspec.Struct, frozen=True):
    """A publisher whose messages are not used now."""

    service: str
    """The service name in its messages. A program can give any name, also that of another service."""
    uuid: str
    seconds_left: float
    """Seconds until its messages are used again."""


class Quarantine:
    """The contradicted publishers of one replica, by UUID. Not thread-safe."""

    def __init__(self, seconds: float = SECONDS, spacing: float = SPACING) -> None:
        self._seconds = seconds
        self._spacing = spacing
        self._times: dict[str, list[float]] = {}
        self.until: dict[str, tuple[float, str]] = {}
        """The end of each quarantine, and the service name that the publisher gave in its messages. Empty: ``excludes``
        need not be called, which is a part of every message's cost.
        """

    def judge(self, contradicted: Iterable[Replace], now: float) -> tuple[Publisher, ...]:
        """Chains were replaced to which a publisher's message had led. The publishers whose quarantine begins."""
        reached: dict[Publisher, float] = {}
        for each in contradicted:
            if each.source is not None:
                reached[each.source] = max(each.reached, reached.get(each.source, each.reached))
        return tuple(each for each, at in reached.items() if self.contradicted(each, at, now))

    def contradicted(self, publisher: Publisher, reached: float, now: float) -> bool:
        """The store contradicted a publisher, whose message led to the point at ``reached``. True: its quarantine
        begins.
        """
        service, uuid = publisher
        times = [at for at in self._times.pop(uuid, []) if now - at < self._seconds]
        counts = not times or reached > times[-1] + self._spacing
        self._times[uuid] = [*times, now] if counts else times
        while len(self._times) > MAX_KEPT:
            del self._times[next(iter(self._times))]
        if not counts or len(times) + 1 < CONTRADICTIONS:
            return False
        self._begin(service, uuid, now)
        return True

    def excludes(self, uuid: str, now: float) -> bool:
        """Whether the messages of a publisher are not to be used now."""
        if uuid not in self.until:
            return False
        if now < self.until[uuid][0]:
            return True
        del self.until[uuid]
        return False

    def excluded(self, now: float) -> list[QuarantinedPublisher]:
        """The publishers that are excluded now."""
        return [
            QuarantinedPublisher(service, uuid, until - now)
            for uuid, (until, service) in self.until.items()
            if now < until
        ]

    def _begin(self, service: str, uuid: str, now: float) -> None:
        # Those that have ended and sent nothing since are removed here, so that they do not add up.
        kept = [(each, end) for each, end in self.until.items() if now < end[0] and each != uuid]
        self.until = dict([*kept, (uuid, (now + self._seconds, service))][-MAX_KEPT:])
