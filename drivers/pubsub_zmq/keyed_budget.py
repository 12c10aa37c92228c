"""The size of subscriptions of a publisher with keys, where ZeroMQ reports those of every client."""

from typing import Final

import zmq

from pubsub_lib.logs import logger
from pubsub_zmq.reading_progress import KEYED_FRAMING, ReadingProgress
from pubsub_zmq.subscription_budget import PAUSE, TABLE, SubscriptionBudget, descriptor_of

_log = logger(__name__)

KEYED_TABLE: Final = 2 * TABLE
"""As ``TABLE``: with keys, ZeroMQ has a second tree of what each client subscribed to."""
LONGEST_PAUSE: Final = 60.0
"""Maximum seconds between two corrections of the total, which end every connection."""


class KeyedBudget(SubscriptionBudget):
    """With keys each connection's subscription is reported, repeated ones too, and one end for each connection. Equal
    ones share ZeroMQ's memory, so they count once, until as many ends were reported.

    A client that repeats subscriptions therefore leaves some in the total when it leaves. Only a new socket corrects
    this, so :meth:`is_wrong` asks for one, but seldom, because every client must connect again.
    """

    AUTOMATIC = 4 * 1024 * 1024
    """Enough for 26,000 topics with names of 44 bytes."""

    def __init__(self, address: str, maximum: int) -> None:
        super().__init__(address, maximum)
        self.progress = ReadingProgress(KEYED_FRAMING)
        self.gone: set[int] = set()
        """Connections that have ended since their owner cleared it."""
        self._copies: dict[bytes, int] = {}
        """The different subscriptions, and how many were reported more than ends."""
        self._above_since = float("inf")
        self._correct_at = float("-inf")
        self._pause = PAUSE

    def report(self, frame: "zmq.Frame", prefix: bytes, *, subscribed: bool) -> None:
        """A subscription to this prefix or its end was reported."""
        descriptor = descriptor_of(frame)
        self.progress.read(descriptor, len(prefix))
        size = len(prefix) + KEYED_TABLE
        if subscribed:
            copies = self._copies[prefix] = self._copies.get(prefix, 0) + 1
            if copies == 1:
                self.grow(size)
            self.share(descriptor, size)
            return
        if descriptor is not None and self._shares[descriptor] < size:
            return  # the end of what this connection did not begin must not reduce the total
        self.share(descriptor, -size)
        copies = self._copies.pop(prefix, 0) - 1
        if copies > 0:
            self._copies[prefix] = copies
        elif copies == 0:
            self.grow(-size)

    def disconnected(self, descriptor: int) -> None:
        """A connection has ended."""
        super().disconnected(descriptor)
        self.gone.add(descriptor)

    def renewed(self) -> None:
        """All connections have ended with their socket."""
        super().renewed()
        self._copies.clear()
        self._above_since = float("inf")

    def excess(self, total: int, now: float) -> list[int]:
        """As the base class. But when the open connections together subscribe to less than the maximum, none of them
        is the cause.
        """
        if total <= self.maximum or self._shares.total() <= self.maximum:
            return []
        return super().excess(total, now)

    def is_wrong(self, now: float) -> bool:
        """Whether to make the socket again: the total is above the maximum, also after connections were ended. At most
        once in a pause that grows from 1 to 60 seconds. Ask when every report was read.
        """
        if self.total <= self.maximum:
            self._above_since = float("inf")
            return False
        self._above_since = min(self._above_since, now)
        if now < max(self._above_since + PAUSE, self._correct_at):
            return False
        recent = now < self._correct_at + 2 * LONGEST_PAUSE
        self._pause = min(2 * self._pause, LONGEST_PAUSE) if recent else PAUSE
        self._correct_at = now + self._pause
        _log.warning(
            "subscriptions to %s still have %d bytes after connections were ended, over max_subscription_bytes (%d): "
            "every connection is made again; raise it in [pubsub_zmq] if they are those of replicas",
            self.address,
            self.total,
            self.maximum,
        )
        return True
