"""The publishers that have a live lease in the store's directory: only their messages are used (rule 14).

The caller reads the directory, regularly and when ``due``. Until the first reading every publisher is used, and always
by a replica that does not read the directory: a publisher behind a broker has no lease.
"""

import random
from collections.abc import Collection
from typing import Final

from pubsub_lib.core.timing import Timing

NEVER_DUE = float("inf")
ORIGIN: Final = "origin"
"""Role of a service that publishes what is committed."""
RELAY: Final = "relay"
"""Role of a service that publishes what it received. A replica listens to it only as one of its ``parents``."""
GRACE: Final = 30.0
"""Seconds for which a publisher is used after the first reading without its lease. A database that refuses writes, or
was restored, prevents renewals for a while, and the publishers' messages are true all the same."""
MAX_READINGS: Final = 4
"""Maximum number of readings that one unknown publisher causes. A publisher may send before its lease is stored, so one
reading may be too early."""
FIRST_PAUSE: Final = 1.0
MAX_PAUSE: Final = 10.0
"""Pauses in seconds between two readings for unknown publishers: doubled after each one that showed no new lease."""
MAX_KEPT: Final = 1000
"""Maximum number of unknown publishers that are remembered; the oldest is forgotten first."""


class LeasedPublishers:
    """The live publishers by UUID, as of the last readings. Not thread-safe. ``rng``: spreads the readings of replicas
    that receive the same message.
    """

    def __init__(self, timing: Timing, rng: random.Random) -> None:
        self._jitter = timing.connect_jitter
        self._rng = rng
        self.live: dict[str, float] = {}
        """When the lease of each was missing for the first time; ``NEVER_DUE`` when the last reading showed it."""
        self._unknown: dict[str, int] = {}
        """The publishers without a lease that were received, and the number of readings that each caused."""
        self.required = False
        """The directory was read, also if it showed no lease."""
        self._free_from = 0.0
        self._pause = FIRST_PAUSE
        self.read_at = NEVER_DUE
        """When the directory is to be read for an unknown publisher."""
        self.ask_at = NEVER_DUE
        """When hello replies are to be requested for a publisher whose lease was read."""

    def may_be_used(self, uuid: str, now: float) -> bool:
        """A message of this publisher was received, or still waits. Whether it may be applied, and a hello may prove
        anything; if not, a reading may become due.
        """
        if not self.required or uuid in self.live:
            return True
        readings = self._unknown.pop(uuid, 0)
        if readings < MAX_READINGS and self.read_at == NEVER_DUE:
            readings += 1
            self.read_at = max(now + self._rng.random() * self._jitter, self._free_from)
        self._unknown[uuid] = readings
        while len(self._unknown) > MAX_KEPT:
            del self._unknown[next(iter(self._unknown))]
        return False

    def due(self, now: float) -> bool:
        """Whether to read the directory now. Also a reading that fails is followed by a pause."""
        if now < self.read_at:
            return False
        self.read_at = NEVER_DUE
        self._free_from = now + self._pause
        self._pause = min(2 * self._pause, MAX_PAUSE)
        return True

    def read(self, uuids: Collection[str], now: float) -> None:
        """The directory shows live leases of these publishers. If a message of one of them was not used before, hello
        replies are to be requested again.
        """
        for uuid in [each for each in self.live if each not in uuids]:
            missing = self.live[uuid] = min(self.live[uuid], now)
            if now - missing >= GRACE:
                del self.live[uuid]
        found = False
        for uuid in uuids:
            found = self._unknown.pop(uuid, None) is not None or found
            self.live[uuid] = NEVER_DUE
        self.required = True
        if found:
            self._pause = FIRST_PAUSE
            self.ask_at = min(self.ask_at, now + self._rng.random() * self._jitter)

    def to_ask(self, now: float) -> bool:
        """Whether to request hello replies now, because a publisher's lease was read."""
        if now < self.ask_at:
            return False
        self.ask_at = NEVER_DUE
        return True

    def next_time(self) -> float:
        """When ``due`` or ``to_ask`` will next be true."""
        return min(self.read_at, self.ask_at)
