"""Parts of the joined runs: a clock, two kinds of database, and a tracker that can break one of its rules once."""

import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from pubsub_lib.audit.ingest.store_journal import journal_of_store
from pubsub_lib.core.effects import Apply, Effect
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, EMPTY, Heads, Link, Point, SyncAnswer, Want
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.journal import Journal, JournalSettings
from pubsub_lib.store import Store
from tests.unit.core.builders import History, Write

BEGIN: Final = 1_700_000_000
"""The first second of every run."""
DROPPED, TWICE, STALE = "dropped", "twice", "stale"
FAULTS: Final = (DROPPED, TWICE, STALE)


class Clock:
    """Replaces the module ``time`` of journals and stores. No two readings of the wall are equal."""

    def __init__(self) -> None:
        self.now = 0.0
        self._wall = 0

    def time_ns(self) -> int:
        """The time of ``now``, at least a microsecond later than the last reading."""
        self._wall = max(self._wall + 1000, int((BEGIN + self.now) * 1e9))
        return self._wall

    def time(self) -> float:
        """The same in seconds."""
        return self.time_ns() / 1e9

    def monotonic(self) -> float:
        """Seconds since the run's begin."""
        return self.now

    def monotonic_ns(self) -> int:
        """The same in nanoseconds."""
        return int(self.now * 1e9)


class Database(Protocol):
    """The part of a store that a run needs."""

    @property
    def store_id(self) -> bytes:
        """See :class:`pubsub_lib.store.Store`."""

    def commit(self, writes: Sequence[Write]) -> Sequence[Link]:
        """One transaction; deletes are of objects that exist."""

    def holds(self, topic: str, key: str) -> bool:
        """Whether the object exists."""

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """See :meth:`pubsub_lib.store.Store.read_sync`."""

    def read_heads(self, topics: Collection[str]) -> Heads:
        """See :meth:`pubsub_lib.store.Store.read_heads`."""

    def read_links(self, after: Point | None, maximum: int) -> tuple[list[Link], Point, bool]:
        """See :meth:`pubsub_lib.store.Store.read_links`."""

    def trim(self, keep: int) -> None:
        """Delete all but the last ``keep`` links of the changelog."""

    def journal(self, folder: Path) -> None:
        """Write the store's side of the audit."""

    def close(self) -> None:
        """Release everything."""


class Modelled:
    """The model of the core's tests, in memory."""

    def __init__(self, seed: int, clock: Clock) -> None:
        self._history = History(seed)
        self._clock = clock

    def commit(self, writes: Sequence[Write]) -> Sequence[Link]:
        """See :class:`Database`."""
        at = self._clock.time()
        links = [msgspec.structs.replace(link, written_at=at) for link in self._history.commit(*writes)]
        self._history.links[-len(links) :] = links
        return links

    def holds(self, topic: str, key: str) -> bool:
        """See :class:`Database`."""
        return ("port", key) in self._history.objects.get(topic, {})

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """See :class:`Database`."""
        return self._history.answer(wants)

    @property
    def store_id(self) -> bytes:
        """See :class:`Database`."""
        return self._history.store_id

    def read_heads(self, topics: Collection[str]) -> Heads:
        """See :class:`Database`."""
        heads = self._history.heads
        found = heads if ALL in topics else {name: heads.get(name, EMPTY) for name in topics}
        return Heads(self._history.point, found, self._history.store_id)

    def read_links(self, after: Point | None, maximum: int) -> tuple[list[Link], Point, bool]:
        """See :class:`Database`."""
        known = after or Point(0, 0)
        floor = self._history.floor
        links = [link for link in self._history.links if link.point.position > known.position]
        return links, self._history.point, known.position >= floor

    def trim(self, keep: int) -> None:
        """See :class:`Database`."""
        kept = self._history.links[-keep:]
        self._history.trim(kept[0].tx_prev.position if kept else 0)

    def journal(self, folder: Path) -> None:
        """See :class:`Database`."""
        journal = Journal(JournalSettings(str(folder), to_parquet=False), "store", "store")
        journal.of_store(self.store_id)
        point = self._history.point
        for number, (topic, objects) in enumerate(self._history.objects.items(), 1):
            journal.listing(number, topic, point, list(objects.values()))
        links = [link for link in self._history.links if link.point.position > self._history.floor]
        journal.links("committed", links)
        journal.note("changelog", prev=Point(self._history.floor, 0), point=point)
        journal.close()

    def close(self) -> None:
        """See :class:`Database`."""


class Stored:
    """A real store."""

    def __init__(self, url: str) -> None:
        self._store = Store(url)
        self._committed: list[Link] = []
        self._store.on_commit(self._committed.extend)
        self._existing: set[tuple[str, str]] = set()
        self.read_sync = self._store.read_sync
        self.read_heads = self._store.read_heads
        self.read_links = self._store.read_links
        self.close = self._store.close

    @property
    def store_id(self) -> bytes:
        """See :class:`Database`."""
        return self._store.store_id

    def commit(self, writes: Sequence[Write]) -> Sequence[Link]:
        """See :class:`Database`."""
        self._committed.clear()
        with self._store.transaction() as tx:
            for topic, key, value in writes:
                if value is None:
                    tx.delete("port", key)
                else:
                    tx.set("port", key, value, topic=topic)
        self._existing -= {(topic, key) for topic, key, value in writes if value is None}
        self._existing |= {(topic, key) for topic, key, value in writes if value is not None}
        return list(self._committed)

    def holds(self, topic: str, key: str) -> bool:
        """See :class:`Database`."""
        return (topic, key) in self._existing

    def trim(self, keep: int) -> None:
        """See :class:`Database`."""
        self._store.trim(keep_links=keep)

    def journal(self, folder: Path) -> None:
        """See :class:`Database`."""
        journal_of_store(self._store, folder)


class Planted(msgspec.Struct, frozen=True):
    """A broken rule: its name, and the link that it concerns."""

    fault: str
    topic: str
    position: int


class BreakableTracker(Tracker):
    """The real tracker, except for one step: the first one that allows ``fault``."""

    def __init__(self, timing: Timing, limits: Limits, rng: random.Random, now: float) -> None:
        super().__init__(timing, limits, rng, now)
        self.fault = ""
        self.planted: Planted | None = None
        self._inline: set[tuple[str, str, int]] = set()
        """Messages that were applied when they were received, by UUID, topic and sequence."""

    def feed(self, envelope: Envelope, now: float, *, proves: bool = True) -> list[Effect]:
        """See :meth:`pubsub_lib.core.tracker.Tracker.feed`."""
        effects = super().feed(envelope, now, proves=proves)
        links = [link for effect in effects if isinstance(effect, Apply) for link in effect.links]
        broken = self._break(envelope, links)
        if broken is not None:
            self.fault = ""
            return [Apply(broken)] if broken else []
        if links and len(links) == len(envelope.messages):
            numbered = enumerate(envelope.messages, envelope.sequence)
            self._inline |= {(envelope.uuid, envelope.topic, number) for number, each in numbered if each.parts == 1}
        return effects

    def _break(self, envelope: Envelope, links: list[Link]) -> list[Link] | None:
        """The links that are applied instead of the given ones; None: this step does not allow the fault."""
        came = [message.link for message in envelope.messages if message.parts == 1]
        if self.fault == DROPPED and links:
            link = self._rng.choice(links)
            self._plant(link)
            return [each for each in links if each is not link]
        if self.fault == TWICE and not links:
            for number, message in enumerate(envelope.messages, envelope.sequence):
                if (envelope.uuid, envelope.topic, number) in self._inline:
                    self._plant(message.link)
                    return [message.link]
        if self.fault == STALE:
            mine = [link for link in links if any(link is each for each in came)]
            for older, newer in ((a, b) for place, a in enumerate(mine) for b in mine[place + 1 :]):
                keys = {(each.table, each.key) for each in older.changes}
                if older.topic == newer.topic and any((each.table, each.key) in keys for each in newer.changes):
                    self._plant(older)
                    return [newer if each is older else older if each is newer else each for each in links]
        return None

    def _plant(self, link: Link) -> None:
        self.planted = Planted(self.fault, link.topic, link.point.position)
