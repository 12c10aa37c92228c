"""Announcements without I/O: their channel and payload, and when a subscriber reads the changelog because of one."""

import math
import re
from typing import Final

from pubsub_lib.core.model import Point

_PAYLOAD: Final = re.compile(rb"([0-9]{1,19}) ([0-9]{1,19})")
"""Position and nonce of the newest transaction."""


def channel(store_id: bytes) -> str:
    """The channel of this store. Several stores can be in one database, in different schemas."""
    return f"pubsub_{store_id.hex()}"


def payload(point: Point) -> str:
    """The announcement of the transaction with this point and of all before it."""
    return f"{point.position} {point.nonce}"


def announced(given: bytes) -> Point | None:
    """The point in a payload; None for another text, which any user of the database can send."""
    found = _PAYLOAD.fullmatch(given)
    return Point(int(found[1]), int(found[2])) if found is not None else None


class ReadGate:
    """When to read the changelog because of an announcement. Times in seconds, by the caller's clock.

    An announcement of a later position than that of the last read causes a read at once. If such a read found no
    change, the next one comes at the earliest ``fastest`` after the last read, until a read finds a change. So forged
    announcements cause at most one read for each change, and ``1 / fastest`` further ones a second. An announcement of
    an earlier position is late, or the database was restored: the next read is within ``slowest`` after the last one.
    """

    def __init__(self, fastest: float, slowest: float) -> None:
        self._fastest = fastest
        self._slowest = slowest
        self._at: Point | None = None
        self._polled = 0.0
        self._caused = False
        self._useless = False

    @property
    def expects_change(self) -> bool:
        """Whether an announcement caused the next read."""
        return self._caused

    def polled(self, at: Point | None, now: float) -> None:
        """The changelog was read up to this point, or could not be read any further."""
        self._useless = (self._caused or self._useless) and at == self._at
        self._at, self._polled, self._caused = at, now, False

    def due(self, point: Point, now: float) -> float:
        """The time of the next read (now, when it has passed) after an announcement of this point; infinite when it
        causes none."""
        if point == self._at:
            return math.inf
        if self._at is not None and point.position <= self._at.position:
            return self._polled + self._slowest
        self._caused = True
        return self._polled + self._fastest if self._useless else now
