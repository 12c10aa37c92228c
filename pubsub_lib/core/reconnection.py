"""What a replica asks because a connection is there again, and what the answers mean (rule 6).

What was sent before a connection cannot come on it any more. A publisher's reading that began after it shows what the
store held then; the window for late messages need not be waited for.
"""

import random
from collections.abc import Iterable

from pubsub_lib.core.timing import Timing

NEVER_DUE = float("inf")


class Reconnection:
    """The last connection, and the chains of which no reading that began after it came yet."""

    def __init__(self, timing: Timing, rng: random.Random) -> None:
        self._timing = timing
        self._rng = rng
        self._since = NEVER_DUE
        self._unread: dict[str, None] = {}
        self._asked = False
        self.ask_at = NEVER_DUE
        """When ``due`` next has something to say."""

    def connected(self, chains: Iterable[str], now: float) -> None:
        """A connection is there. Several within the jitter lead to one question."""
        self._since = now
        self._unread = dict.fromkeys(chains)
        self._asked = False
        self.ask_at = min(self.ask_at, now + self._jitter())

    def removed(self, chain: str) -> None:
        """A chain is no longer followed."""
        self._unread.pop(chain, None)

    def due(self, now: float) -> list[str]:
        """Chains to ask about now: those that no reading since the connection told of.

        A publisher may answer from a reading that is older than the connection, and as old as ``reading_age``. So what
        is still open when no such answer can come any more is asked about once again.
        """
        if now < self.ask_at:
            return []
        first, self._asked = not self._asked, True
        again = first and bool(self._unread)
        self.ask_at = max(now, self._since + self._timing.reading_age) + self._jitter() if again else NEVER_DUE
        return list(self._unread)

    def read(self, chain: str, began: float) -> None:
        """A reading of this chain that began then came: a publisher's or a sync's."""
        if began >= self._since:
            self._unread.pop(chain, None)

    def lost_at(self, chain: str, asked: float, now: float) -> float:
        """When a head that this answer tells of, and that is not known, has to be read from the store; infinite for an
        answer that has nothing to do with the connection.

        What was sent after the connection may still be on its way: as long as the question and its answer were.
        """
        return now + (now - asked) if chain in self._unread and asked >= self._since else NEVER_DUE

    def _jitter(self) -> float:
        return self._rng.random() * self._timing.connect_jitter
