"""The transactions that workers handed over and that the changelog did not show yet (rule 14).

A worker hands over what it committed, so the changelog shows it within moments. What it never shows, while the store's
history did not change, was never committed: the worker's links are then not used for some time. Its true commits are
published from the changelog meanwhile (rule S10), so a mistake delays messages and loses none.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pubsub_lib.core.model import Link, Point

Worker = tuple[str, str]
"""Service name and UUID of a worker process."""

AFTER: Final = 5.0
"""A transaction is judged this number of seconds after it was handed over, or up to twice as late."""
SECONDS: Final = 600.0
"""Seconds for which the links of a contradicted worker are not used."""
MAX_KEPT: Final = 100_000
"""Maximum number of transactions that are remembered for one interval; further ones are not judged."""
MAX_ASKED: Final = 1000
"""Maximum number of transactions that are looked up at once; others of the same interval are not judged."""
MAX_EXCLUDED: Final = 1000
"""Maximum number of excluded workers; the oldest is used again for a newer one."""


class Contradicted(msgspec.Struct, frozen=True):
    """A worker handed over links that the store does not contain, for the first time since it is used."""

    service: str
    uuid: str
    topic: str
    point: Point
    """Topic and point of the first of these links."""


class Handoffs:
    """Sans-I/O, not thread-safe. ``now``: seconds of any clock that never goes back."""

    def __init__(self, after: float = AFTER, seconds: float = SECONDS) -> None:
        self._after = after
        self._seconds = seconds
        self._young: dict[Point, tuple[Worker, str]] = {}
        """Handed over since ``overdue`` last returned points: worker and topic."""
        self._old: dict[Point, tuple[Worker, str]] = {}
        """In the interval before."""
        self._asked: dict[Point, tuple[Worker, str]] = {}
        self._judge_at = 0.0
        self._until: dict[str, tuple[str, float]] = {}
        """By UUID of an excluded worker: its service name, and the end of the exclusion."""
        self.contradicted = 0
        """Transactions that were handed over and never committed."""

    @property
    def excluded(self) -> Sequence[Worker]:
        """The workers whose links are not used, as of the last call of ``overdue``. Any thread."""
        return [(service, uuid) for uuid, (service, _) in self._until.copy().items()]

    def excludes(self, uuid: str) -> bool:
        """Whether the links of this worker are not to be used."""
        return uuid in self._until

    def add(self, links: Iterable[Link], worker: Worker) -> None:
        """A worker handed these links over, and no other process did before."""
        for link in links:
            if len(self._young) < MAX_KEPT and link.point not in self._old:
                self._young.setdefault(link.point, (worker, link.topic))

    def confirm(self, points: Iterable[Point]) -> None:
        """The store contains these transactions."""
        for point in points:
            self._young.pop(point, None)
            self._old.pop(point, None)
            self._asked.pop(point, None)

    def forget(self) -> None:
        """The store's history changed: what was handed over before may be of the undone history."""
        self._young.clear()
        self._old.clear()
        self._asked.clear()

    def overdue(self, now: float) -> list[Point]:
        """The transactions to look up in the store now; the caller then calls ``judge``."""
        if now < self._judge_at:
            return []
        self._judge_at = now + self._after
        self._until = {uuid: (service, until) for uuid, (service, until) in self._until.items() if now < until}
        self._asked = dict([*self._asked.items(), *self._old.items()][:MAX_ASKED])
        self._old, self._young = self._young, {}
        return [*self._asked]

    def judge(self, points: Sequence[Point], held: Sequence[bool | None], now: float) -> list[Contradicted]:
        """``held``: for each of these points, whether the store's history contains it; None: it cannot be known any
        more, because the changelog was trimmed. The workers that are excluded from now on.
        """
        found = []
        for point, there in zip(points, held, strict=True):
            asked = self._asked.pop(point, None)
            if asked is None or there is not False:
                continue
            (service, uuid), topic = asked
            self.contradicted += 1
            if uuid not in self._until:
                found.append(Contradicted(service, uuid, topic, point))
            self._until[uuid] = service, now + self._seconds
            while len(self._until) > MAX_EXCLUDED:
                del self._until[next(iter(self._until))]
        return found
