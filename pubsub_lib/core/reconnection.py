"""Hello requests after a connection, and the meaning of their replies (rule 6).

Messages that were sent before a connection cannot arrive on it any more. A publisher's reading that began after the
connection shows the store's contents at that time. So the replica need not wait for the window for late messages.
"""

import random
from collections.abc import Iterable

from pubsub_lib.core.timing import Timing

NEVER_DUE = float("inf")


class Reconnection:
    """The last connection, and the chains without a reading that began after it."""

    def __init__(self, timing: Timing, rng: random.Random) -> None:
        self._timing = timing
        self._rng = rng
        self._since = NEVER_DUE
        self._unread: dict[str, None] = {}
        self._unproved: dict[str, None] = {}
        """The chains without a publisher's reading that began after it, or the store's: those to ask about."""
        self._asked = False
        self.ask_at = NEVER_DUE
        """When ``due`` will next return chains."""

    def connected(self, chains: Iterable[str], now: float) -> None:
        """A connection was made. Several within the jitter lead to one hello request."""
        self._since = now
        self._unread = dict.fromkeys(chains)
        self._unproved = self._unread.copy()
        self._asked = False
        self.ask_at = min(self.ask_at, now + self._jitter())

    def removed(self, chain: str) -> None:
        """A chain is no longer followed."""
        self._unread.pop(chain, None)
        self._unproved.pop(chain, None)

    def due(self, now: float) -> list[str]:
        """Chains to ask about now: those without a publisher's or the store's reading since the connection.

        A publisher may answer from a reading that is older than the connection, and as old as ``reading_age``. So the
        chains still without a reading are asked about once more, when no such answer can be received any more.
        """
        if now < self.ask_at:
            return []
        first, self._asked = not self._asked, True
        again = first and bool(self._unproved)
        self.ask_at = max(now, self._since + self._timing.reading_age) + self._jitter() if again else NEVER_DUE
        return list(self._unproved)

    def read(self, chain: str, began: float, *, relayed: bool = False) -> None:
        """A reading of this chain was received, a publisher's or a sync's, which began at ``began``. ``relayed``: a
        relay answered the sync. Without its hello reply, too, the replica would poll it until the next periodic one.
        """
        if began >= self._since:
            self._unread.pop(chain, None)
            if not relayed:
                self._unproved.pop(chain, None)

    def lost_at(self, chain: str, asked: float, now: float) -> float:
        """When a head in this reply that known has not reached must be read from the store; infinite for a reply that
        is unrelated to the connection.

        Messages sent after the connection may still be on their way, for as long as the request and its reply took.
        """
        return now + (now - asked) if chain in self._unread and asked >= self._since else NEVER_DUE

    def _jitter(self) -> float:
        return self._rng.random() * self._timing.connect_jitter
