"""Publishers whose messages are not used for some time, because the store contradicted them (rule 14).

A publisher is contradicted when its message led a replica to a point that the store does not contain, or stated what
the store denies. A store that goes back contradicts honest publishers: that counts for none. The topics of a replica
show another history one after the other, and messages of the undone one may still arrive: together they count once.

A replica that knows the leases excludes a publisher at its first contradiction. One that does not know them may have a
relay as its publisher, which was misled itself: it excludes it at the third.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from pubsub_lib.core.effects import Replace

Publisher = tuple[str, str]
"""Service name and UUID."""

CONTRADICTIONS: Final = 3
"""Number of contradictions within ``SECONDS`` that lead to the quarantine, if the replica does not know the leases."""
FIRST_SECONDS: Final = 60.0
"""Seconds of the quarantine after a single contradiction: commits that a database lost cause one, too."""
SPACING: Final = 10.0
"""A contradiction counts only if its point was reached more than these seconds after the last one that counted."""
SECONDS: Final = 600.0
"""Seconds of a quarantine after further ones: the replica then tries again, so that a mistake cannot exclude a
publisher for ever."""
MAX_KEPT: Final = 1000
"""Maximum number of contradicted and of excluded publishers; the oldest is forgotten first."""


class QuarantineTimes(msgspec.Struct, frozen=True):
    """The times of a quarantine in seconds, also shorter ones for tests. ``seconds`` 0: no publisher is excluded."""

    seconds: float = SECONDS
    spacing: float = SPACING
    first: float = FIRST_SECONDS


class QuarantinedPublisher(msgspec.Struct, frozen=True):
    """A publisher whose messages are not used now."""

    service: str
    """The service name in its messages. A program can give any name, also that of another service."""
    uuid: str
    seconds_left: float
    """Seconds until its messages are used again."""


class Quarantine:
    """The contradicted publishers of one replica, by UUID. Not thread-safe."""

    def __init__(self, times: QuarantineTimes | None = None) -> None:
        self.times = times or QuarantineTimes()
        self._times: dict[str, list[float]] = {}
        self._went_back_at = float("-inf")
        self.at_once = False
        """Whether one contradiction is enough: the replica knows which publishers have a lease."""
        self.until: dict[str, tuple[float, str]] = {}
        """The end of each quarantine, and the service name that the publisher gave in its messages. Empty: ``excludes``
        need not be called, which is a part of every message's cost.
        """

    def went_back(self, now: float) -> None:
        """The store is behind a position of its own that was read before: what was reached until now, or is soon by
        late messages, accuses no publisher.
        """
        self._went_back_at = now

    def excuses(self, reached: float) -> bool:
        """Whether what was reached, or received, at this time accuses no publisher, because the store went back."""
        return reached <= self._went_back_at + self.times.spacing

    def judge(self, contradicted: Iterable[Replace], now: float) -> tuple[Publisher, ...]:
        """Chains were replaced to which a publisher's message had led. The publishers whose quarantine begins."""
        reached: dict[Publisher, float] = {}
        for each in contradicted:
            if each.source is not None:
                reached[each.source] = max(each.reached, reached.get(each.source, each.reached))
        return tuple(each for each, at in reached.items() if self.contradicted(each, at, now))

    def contradicted(self, publisher: Publisher, reached: float, now: float) -> bool:
        """The store contradicted a publisher, whose message led to the point, or was received, at ``reached``. True:
        its quarantine begins; one that lasts already may become longer.
        """
        seconds, spacing, first = self.times.seconds, self.times.spacing, self.times.first
        if not seconds or self.excuses(reached):
            return False
        service, uuid = publisher
        kept = 2 * seconds if self.at_once else seconds  # also for some time after a quarantine
        times = [at for at in self._times.pop(uuid, []) if now - at < kept]
        counts = not times or reached > times[-1] + spacing
        self._times[uuid] = [*times[1 - CONTRADICTIONS :], now] if counts else times
        while len(self._times) > MAX_KEPT:
            del self._times[next(iter(self._times))]
        if not self.at_once and (not counts or len(times) + 1 < CONTRADICTIONS):
            return False
        if not counts and uuid in self.until:
            return False
        # What counted before the leases were known had no effect.
        return self._begin(service, uuid, now, seconds if counts and times else first)

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

    def _begin(self, service: str, uuid: str, now: float, seconds: float) -> bool:
        end = self.until.get(uuid, (now, ""))[0]
        # Those that have ended and sent nothing since are removed here, so that they do not add up.
        kept = [(each, until) for each, until in self.until.items() if now < until[0] and each != uuid]
        self.until = dict([*kept, (uuid, (max(end, now + seconds), service))][-MAX_KEPT:])
        return end <= now
