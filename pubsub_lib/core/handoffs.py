"""The transactions that workers handed over and that the changelog did not show yet (rule 14).

A worker hands over what it committed, so the changelog shows it within moments. What it never shows, while the store's
history did not change, was never committed: the worker's links are then not used for some time. Its true commits are
published from the changelog meanwhile (rule S10), so a mistake delays messages and loses none.

A program can take a new UUID for each lie. So after a lie the service doubts, for some time, each worker of which the
changelog has shown no link yet: its links are published only when the changelog shows them. A worker is confirmed by a
link of this service's own origin that it handed over before the changelog showed it: links of other services can be
received from their publishers, and those of this service that were sent are not new any more.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pubsub_lib.core.model import Link, Point

Worker = tuple[str, str]
"""Service name and UUID of a worker process."""
LinkName = tuple[str, Point]
"""Topic and point of a link."""

AFTER: Final = 5.0
"""A transaction is judged this number of seconds after it was handed over, or up to twice as late."""
SECONDS: Final = 600.0
"""Seconds for which the links of a contradicted worker are not used."""
MAX_KEPT: Final = 100_000
"""Maximum number of links that are remembered for one interval; further ones are not judged."""
MAX_ASKED: Final = 1000
"""Maximum number of links that are looked up at once; others of the same interval are not judged."""
MAX_EXCLUDED: Final = 1000
"""Maximum number of excluded workers; the oldest is used again for a newer one."""
MAX_CONFIRMED: Final = 10_000
"""Maximum number of confirmed workers; of the one that was confirmed longest ago the links may wait again."""
_ENCODER: Final = msgspec.msgpack.Encoder()


class Contradicted(msgspec.Struct, frozen=True):
    """A worker handed over links that the store does not contain, for the first time since it is used."""

    service: str
    uuid: str
    topic: str
    point: Point
    """Topic and point of the first of these links."""
    altered: bool = False
    """The store contains a link of this topic at this point, with other contents."""


class _Given(msgspec.Struct, frozen=True, gc=False):
    """A link that was handed over."""

    worker: Worker
    contents: bytes
    """As of ``contents_of``."""


def contents_of(link: Link) -> bytes:
    """A fingerprint of what the changelog has of a link; an attacker cannot make another link with the same one. Not of
    the trace, which is not stored, and not of the time of writing, by which nothing is decided.
    """
    fields = (
        link.topic, link.prev, link.point, link.changes, link.count, link.digest, link.tx_prev, link.tx_links,
        link.origin,
    )  # fmt: skip
    return hashlib.blake2b(_ENCODER.encode(fields), digest_size=16).digest()


class Handoffs:
    """Sans-I/O, not thread-safe. ``now``: seconds of any clock that never goes back."""

    def __init__(self, service: str, after: float = AFTER, seconds: float = SECONDS) -> None:
        """``service``: the name of the own service."""
        self._service = service
        self._after = after
        self._seconds = seconds
        self._young: dict[LinkName, _Given] = {}
        """Handed over since ``overdue`` last returned links."""
        self._old: dict[LinkName, _Given] = {}
        """In the interval before."""
        self._asked: dict[LinkName, _Given] = {}
        self._judge_at = 0.0
        self._until: dict[str, tuple[str, float]] = {}
        """By UUID of an excluded worker: its service name, and the end of the exclusion."""
        self._confirmed: dict[str, None] = {}
        """UUIDs of workers, the one that was confirmed last at the end."""
        self._doubt_until = float("-inf")
        self._now = 0.0
        """The time of the last call of ``overdue`` or ``judge``."""
        self.doubting = False
        """Whether the links of workers that are not confirmed wait, as of the last call of ``overdue``. Any thread."""
        self.contradicted = 0
        """Links that were handed over and never committed."""

    @property
    def excluded(self) -> Sequence[Worker]:
        """The workers whose links are not used, as of the last call of ``overdue``. Any thread."""
        return [(service, uuid) for uuid, (service, _) in self._until.copy().items()]

    def excludes(self, uuid: str) -> bool:
        """Whether the links of this worker are not to be used."""
        return uuid in self._until

    def doubts(self, uuid: str) -> bool:
        """Whether the links of this worker are to be used only when the changelog shows them."""
        return self.doubting and uuid not in self._confirmed

    def add(self, links: Iterable[Link], worker: Worker) -> None:
        """A worker hands these links over. No other process did before, and the changelog has not shown them."""
        for link in links:
            name = link.topic, link.point
            if len(self._young) < MAX_KEPT and name not in self._old and name not in self._young:
                self._young[name] = _Given(worker, contents_of(link))

    def confirm(self, links: Iterable[Link]) -> list[Contradicted]:
        """The store contains these links. The workers that handed over others in their place, and are excluded from now
        on.
        """
        found = []
        for link in links:
            name = link.topic, link.point
            given = self._young.pop(name, None) or self._old.pop(name, None) or self._asked.pop(name, None)
            if given is None:
                continue
            if given.contents != contents_of(link):
                found += self.altered(link, given.worker)
            elif link.origin == self._service and not self.excludes(given.worker[1]):
                self._confirmed.pop(given.worker[1], None)
                self._confirmed[given.worker[1]] = None
                if len(self._confirmed) > MAX_CONFIRMED:
                    del self._confirmed[next(iter(self._confirmed))]
        return found

    def altered(self, link: Link, worker: Worker) -> list[Contradicted]:
        """A worker handed over another link in place of this one of the changelog. As ``confirm``."""
        return self._contradict(worker, (link.topic, link.point), altered=True)

    def forget(self) -> None:
        """The store's history changed: what was handed over before may be of the undone history."""
        self._young.clear()
        self._old.clear()
        self._asked.clear()

    def overdue(self, now: float) -> list[LinkName]:
        """The links to look up in the store now; the caller then calls ``judge``."""
        self._now = now
        if now < self._judge_at:
            return []
        self._judge_at = now + self._after
        self._until = {uuid: (service, until) for uuid, (service, until) in self._until.items() if now < until}
        self.doubting = now < self._doubt_until
        self._asked = dict([*self._asked.items(), *self._old.items()][:MAX_ASKED])
        self._old, self._young = self._young, {}
        return [*self._asked]

    def judge(self, names: Sequence[LinkName], held: Sequence[bool | None], now: float) -> list[Contradicted]:
        """``held``: for each of these links, whether its topic's history contains its point; None: it cannot be known
        any more, because the changelog was trimmed. The workers that are excluded from now on.
        """
        self._now = now
        found = []
        for name, there in zip(names, held, strict=True):
            given = self._asked.pop(name, None)
            if given is not None and there is False:
                found += self._contradict(given.worker, name)
        return found

    def _contradict(self, worker: Worker, name: LinkName, *, altered: bool = False) -> list[Contradicted]:
        service, uuid = worker
        self.contradicted += 1
        self.doubting = True
        self._doubt_until = self._now + self._seconds
        self._confirmed.pop(uuid, None)
        known = uuid in self._until
        self._until[uuid] = service, self._now + self._seconds
        while len(self._until) > MAX_EXCLUDED:
            del self._until[next(iter(self._until))]
        return [] if known else [Contradicted(service, uuid, *name, altered)]
