"""When a replica of topics asks because a broadcast hello shows that the store stands beyond what it has (rule 6).

A broadcast names few topics, of a publisher that was just started none. Its store's point is all that tells a replica
of the others that something may be missing. It says nothing about a topic, so the replica asks.
"""

import random
from collections.abc import Callable, Iterable, Sequence

from pubsub_lib.core.timing import Timing

NEVER_DUE = float("inf")


class StoreHints:
    """The chains to ask about before the next round of questions about all chains, and when.

    At most once between two such rounds: on a busy store every broadcast of every idle publisher shows a later point.
    """

    def __init__(self, timing: Timing, rng: random.Random) -> None:
        self._timing = timing
        self._rng = rng
        self._chains: dict[str, None] = {}
        self._position = 0
        self._asked = False
        self.ask_at = NEVER_DUE
        """When ``due`` next has something to say."""

    @property
    def wanted(self) -> bool:
        """False while a hint would lead to nothing: the next round of questions is near enough."""
        return not self._asked

    @property
    def waits(self) -> bool:
        """True while a question is to be asked."""
        return self.ask_at != NEVER_DUE

    def received(self, position: int, behind: Iterable[str], now: float) -> None:
        """A broadcast shows that the store stands at ``position``; ``behind`` are the chains of which so much is not
        proved to be here.
        """
        chains = dict.fromkeys(behind)
        if self._asked or not chains:
            return
        self._chains.update(chains)
        self._position = max(self._position, position)
        # A herd of replicas received the same hello. Not later than the clock of a link that begins to wait meanwhile.
        jitter = min(self._timing.connect_jitter, self._timing.message_delay_window)
        self.ask_at = min(self.ask_at, now + self._rng.random() * jitter)

    def due(self, now: float, is_behind: Callable[[str, int], bool]) -> Sequence[str]:
        """The chains to ask about now: those that are still behind the position that was shown."""
        if now < self.ask_at:
            return ()
        due = [name for name in self._chains if is_behind(name, self._position)]
        self._clear()
        self._asked = bool(due)
        return due

    def asked_about_all(self) -> None:
        """A round of questions about all chains goes out."""
        self._clear()
        self._asked = False

    def _clear(self) -> None:
        self._chains.clear()
        self._position = 0
        self.ask_at = NEVER_DUE
