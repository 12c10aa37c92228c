"""Hello requests of a replica of topics after a broadcast hello with a later point of the store (rule 6).

A broadcast names few topics, that of a just started publisher none. For the other topics only the store's point shows a
replica that changes may be missing. The point belongs to no topic, so the replica sends a hello request.
"""

import random
from collections.abc import Callable, Iterable, Sequence

from pubsub_lib.core.timing import Timing

NEVER_DUE = float("inf")


class StoreHints:
    """The chains to ask about before the next round of hello requests about all chains, and when.

    At most once between two such rounds: on a busy store every broadcast of every idle publisher has a later point.
    """

    def __init__(self, timing: Timing, rng: random.Random) -> None:
        self._timing = timing
        self._rng = rng
        self._chains: dict[str, None] = {}
        self._position = 0
        self._asked = False
        self.ask_at = NEVER_DUE
        """When ``due`` will next return chains; ``NEVER_DUE`` while no hello request is to be sent."""

    @property
    def wanted(self) -> bool:
        """False while hints are ignored: the next round of hello requests is near enough."""
        return not self._asked

    @property
    def waits(self) -> bool:
        """True while a hello request is to be sent."""
        return self.ask_at != NEVER_DUE

    def received(self, position: int, behind: Iterable[str], now: float) -> None:
        """A broadcast has the store's ``position``; ``behind`` are the chains that are not proved up to it."""
        chains = dict.fromkeys(behind)
        if self._asked or not chains:
            return
        self._chains.update(chains)
        self._position = max(self._position, position)
        # Many replicas received the same hello. Not later than the clock of a link that begins to wait meanwhile.
        jitter = min(self._timing.connect_jitter, self._timing.message_delay_window)
        self.ask_at = min(self.ask_at, now + self._rng.random() * jitter)

    def due(self, now: float, is_behind: Callable[[str, int], bool]) -> Sequence[str]:
        """The chains to ask about now: those that are still behind the position of the broadcasts."""
        if now < self.ask_at:
            return ()
        due = [name for name in self._chains if is_behind(name, self._position)]
        self._clear()
        self._asked = bool(due)
        return due

    def asked_about_all(self) -> None:
        """A round of hello requests about all chains was sent."""
        self._clear()
        self._asked = False

    def _clear(self) -> None:
        self._chains.clear()
        self._position = 0
        self.ask_at = NEVER_DUE
