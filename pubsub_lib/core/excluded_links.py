"""What publishers in quarantine send: the next reading of the store shows whether it is true (rule 14).

A quarantine ends, so that a mistake cannot exclude a publisher for ever. A publisher that goes on to lie would be
believed again each time, so its lies meanwhile make its quarantine longer.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.model import Delta, Full, Point, SyncAnswer
from pubsub_lib.core.quarantine import Publisher

MAX_KEPT: Final = 200
"""Maximum number of links that wait for a reading; the oldest is forgotten first. A publisher does not know when a
reading begins, so one that hides lies among true links is detected sooner or later."""


class ExcludedLink(msgspec.Struct, frozen=True, gc=False):
    """A link that was not used; without a chain, the store's point in a hello that was not used."""

    chain: str | None
    point: Point
    publisher: Publisher
    received: float


class ExcludedLinks:
    """Those of one replica. Not thread-safe."""

    def __init__(self) -> None:
        self._received: deque[ExcludedLink] = deque(maxlen=MAX_KEPT)
        self._asked: list[ExcludedLink] = []

    def add(self, link: ExcludedLink) -> None:
        """A link was received, and is not used."""
        self._received.append(link)

    def reading(self, chains: Collection[str]) -> None:
        """A reading of these chains begins: it has what was committed until now."""
        waiting = [*self._asked, *self._received]  # the reading before may have failed
        asked = [each.chain is None or each.chain in chains for each in waiting]
        self._asked = [each for each, now in zip(waiting, asked, strict=True) if now][-MAX_KEPT:]
        self._received = deque((each for each, now in zip(waiting, asked, strict=True) if not now), MAX_KEPT)

    def false(self, answer: SyncAnswer, chain: Callable[[str], Chain | None]) -> dict[Publisher, float]:
        """The store's own answer was used. The publishers of links that it does not contain, each with the time at
        which the last of them was received. ``chain``: a chain by its name, None if it is not followed.
        """
        found: dict[Publisher, float] = {}
        committed: dict[str, set[Point]] = {}
        for link in self._asked:
            name = link.chain
            if name is None:
                if link.point.position > answer.store.position:
                    found[link.publisher] = link.received
                continue
            part, read = answer.chains.get(name), chain(name)
            if read is None or not isinstance(part, Delta | Full):
                continue
            if link.point.position > part.head.position:
                found[link.publisher] = link.received
            elif isinstance(part, Delta) and read.passed(part.head) and link.point.position > read.oldest.position:
                if name not in committed:
                    wanted = {each.point for each in self._asked if each.chain == name}
                    committed[name] = {point for point in read.remembered() if point in wanted}
                if link.point not in committed[name]:
                    found[link.publisher] = link.received
        self._asked = []
        return found
