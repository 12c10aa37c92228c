"""Prepared snapshots of topics: compressed once, and sent to many replicas, each with the links since (rule W6).

When many replicas begin at once, each needs all objects of the same topics. The first answer's compressed pages are
kept. For the next ones the source is asked for the links after the snapshot's point, which costs little, and shows that
the point is still in the history: a source that has another history answers with all objects. Of many links, the
compressed pages are kept after the snapshot's own ones, so that the next answers need not make them again.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from pubsub_lib.core.model import ALL, Delta, Full, Incomplete, Point, SyncAnswer, TopicSnapshot, Want
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.sync.packing import PackedRecords
from pubsub_lib.sync.pages import (
    End,
    Page,
    TopicPage,
    begin_page,
    chain_pages,
    change_pages,
    encode_page,
    header_page,
    link_pages,
    record_pages,
    topic_page,
)
from pubsub_lib.sync.question import SyncQuestion, SyncSource
from pubsub_lib.sync.stream import Item, Member, Ready

MIN_BYTES: Final = 16 * 1024
"""A smaller snapshot is not kept: to make it again costs less than a further question to the source."""
_FEW_CHANGES: Final = 100
"""Fewer changes after a snapshot are made into pages for each answer."""
MAX_NAMES: Final = 100_000
"""Maximum number of names of topics that are remembered without a snapshot."""
FIRST: Final = Want()
MAX_WAIT: Final = 2.0
"""Seconds that an answer waits for the snapshot of another one. Then its replica comes again, and has no place."""


class Snapshot(msgspec.Struct, frozen=True):
    """All objects of a topic at a point, compressed. Immutable."""

    point: Point
    parts: Sequence[bytes]
    """One or more streams of their own, of pages of records, and then of links."""
    pages: int
    records: int
    changes: int = 0
    """In the links, which lead from the records to the point."""

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(map(len, self.parts))


class BeingRead(StoreUnavailable):
    """Another answer reads all objects of the same topic, and the next one is to use its snapshot."""


class SnapshotCache:
    """The snapshots that were used last, of at most ``max_bytes`` together. Any thread.

    With ``max_bytes`` above 0, the objects of a topic are read for one answer at a time, and the others wait for its
    snapshot. Else many replicas that begin at once would have them read several times.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._read = threading.Condition(self._lock)
        self._reading: set[str] = set()
        """Topics whose objects are being read for an answer."""
        self._not_kept: set[str] = set()
        """Topics whose snapshot was too small or too large: nothing to wait for."""
        self._kept: OrderedDict[str, Snapshot] = OrderedDict()
        self._size = 0
        self.used = 0
        """Topics that were answered from a snapshot."""

    @property
    def size(self) -> int:
        """Bytes of all snapshots."""
        return self._size

    def of(self, wants: Mapping[str, Want]) -> dict[str, Snapshot]:
        """The snapshots of the topics whose objects are wanted for the first time."""
        with self._lock:
            found = {topic: self._kept[topic] for topic, want in wants.items() if want == FIRST and topic in self._kept}
            for topic in found:
                self._kept.move_to_end(topic)
            return found

    @contextmanager
    def read_once(self, wants: Mapping[str, Want]) -> Iterator[None]:
        """Around the reading of these wants. Waits while another one reads a topic of them; raises BeingRead when that
        takes longer than :data:`MAX_WAIT`.
        """
        firsts = {topic for topic, want in wants.items() if self.max_bytes and topic != ALL and want == FIRST}
        with self._lock:
            if not self._read.wait_for(lambda: not self._reading & self._missing(firsts), MAX_WAIT):
                raise BeingRead("the objects of a topic are being read for another replica")
            mine = self._missing(firsts)
            self._reading |= mine
        try:
            yield
        finally:
            with self._lock:
                self._reading -= mine
                self._read.notify_all()

    def _missing(self, firsts: set[str]) -> set[str]:
        return firsts - self._kept.keys() - self._not_kept

    def put(self, topic: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the topic's older one, unless it is too small or too large."""
        size = snapshot.size
        fits = MIN_BYTES <= size <= self.max_bytes
        with self._lock:
            self._forget(topic)
            if not fits:
                if len(self._not_kept) >= MAX_NAMES:
                    self._not_kept.clear()
                self._not_kept.add(topic)
                return
            self._not_kept.discard(topic)
            self._keep(topic, snapshot)

    def extend(self, topic: str, snapshot: Snapshot, longer: Snapshot) -> None:
        """Keep ``longer``, which is ``snapshot`` with further links, in its place. No effect when another one has that
        place now, or when it is too large.
        """
        with self._lock:
            if self._kept.get(topic) is snapshot and longer.size <= self.max_bytes:
                self._forget(topic)
                self._keep(topic, longer)

    def _keep(self, topic: str, snapshot: Snapshot) -> None:
        self._kept[topic] = snapshot
        self._size += snapshot.size
        while self._size > self.max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._size -= oldest.size

    def drop(self, topics: Iterable[str]) -> None:
        """Forget these snapshots."""
        with self._lock:
            for topic in topics:
                self._forget(topic)

    def _forget(self, topic: str) -> None:
        dropped = self._kept.pop(topic, None)
        self._size -= 0 if dropped is None else dropped.size

    def count(self, topics: int) -> None:
        """This number of topics was answered from snapshots."""
        with self._lock:
            self.used += topics


def answer_of(
    source: SyncSource, question: SyncQuestion, cache: SnapshotCache
) -> tuple[SyncAnswer | None, Mapping[str, Snapshot]]:
    """The source's answer, and the snapshots whose topics it answers by the links after them. Blocks; raises as the
    source does, and BeingRead.
    """
    with cache.read_once(question.wants):
        prepared = cache.of(question.wants)
        if not prepared:
            return _kept_answer(source(question), question, cache), {}
        after = {topic: Want(each.point) for topic, each in prepared.items()}
        # The replica gets all objects, so it refuses a proof from before its question (rule R3). A relay renews its
        # proof for a question about objects by itself, and this one is about links.
        answer = _kept_answer(source(SyncQuestion({**question.wants, **after}, refresh=True)), question, cache)
        if answer is None:
            return None, {}
        outdated = [topic for topic, each in prepared.items() if not _follows(answer.chains.get(topic), each)]
        if not outdated:
            cache.count(len(prepared))
            return answer, prepared
        cache.drop(outdated)
    with cache.read_once(question.wants):
        return _kept_answer(source(question), question, cache), {}


def _kept_answer(answer: SyncAnswer | None, question: SyncQuestion, cache: SnapshotCache) -> SyncAnswer | None:
    """Keep what is compressed already, before it is sent: a slow replica delays no other one."""
    for topic, part in () if answer is None else answer.chains.items():
        if topic == ALL or question.wants.get(topic) != FIRST or not isinstance(part, Full):
            continue
        contents = part.topics[topic]
        records = contents.records
        if isinstance(records, PackedRecords):
            parts = tuple(records.parts)
            cache.put(topic, Snapshot(contents.head.point, parts, len(parts), len(records)))
    return answer


def _follows(part: Delta | Incomplete | Full | None, snapshot: Snapshot) -> bool:
    """Whether the snapshot and this part are all objects of the topic, and less than a new snapshot costs."""
    if part is None:
        return True  # the relay does not have the topic now
    if not isinstance(part, Delta) or len(part.heads) != 1 or not (part.links or part.head == snapshot.point):
        return False
    return snapshot.changes + _changes(part) <= snapshot.records // 4 + _FEW_CHANGES


def _changes(delta: Delta) -> int:
    return sum(len(link.changes) for link in delta.links)


def _connects(delta: Delta, snapshot: Snapshot) -> bool:
    """Whether the links lead from the snapshot's point to the delta's head, each from the one before."""
    known = snapshot.point
    for link in delta.links:
        if link.prev != known:
            return False
        known = link.point
    return known == delta.head


class Composition:
    """The items of one answer's stream: pages, prepared snapshots, and pages that become snapshots. Used once."""

    def __init__(
        self, answer: SyncAnswer, wants: Mapping[str, Want], prepared: Mapping[str, Snapshot], cache: SnapshotCache
    ) -> None:
        self._answer = answer
        self._wants = wants
        self._prepared = prepared
        self._cache = cache
        self._pages = 0

    def items(self) -> Iterator[Item]:
        """One after the other."""
        answer = self._answer
        yield self._page(header_page(answer))
        for chain, part in answer.chains.items():
            if isinstance(part, Delta) and chain in self._prepared:
                yield from self._from_snapshot(chain, part, self._prepared[chain])
            elif isinstance(part, Full):
                yield self._page(begin_page(answer, chain, part))
                keeps = chain != ALL and self._wants[chain] == FIRST
                for topic, contents in part.topics.items():
                    yield from self._topic(topic, contents, keeps=keeps)
            else:
                yield from map(self._page, chain_pages(answer, chain, part))
        yield encode_page(End(self._pages))

    def _from_snapshot(self, topic: str, delta: Delta, snapshot: Snapshot) -> Iterator[Item]:
        head = delta.heads[topic]
        yield self._page(begin_page(self._answer, topic, Full({}, head.point)))
        yield self._page(TopicPage(topic, head))
        self._pages += snapshot.pages
        yield Ready(snapshot.parts)
        before, changes = self._pages, _changes(delta)
        pages = map(self._page, link_pages(delta.links))
        if changes < _FEW_CHANGES or not _connects(delta, snapshot):
            yield from pages
            return

        def keep(parts: Sequence[bytes]) -> None:
            longer = Snapshot(
                delta.head, (*snapshot.parts, *parts), snapshot.pages + self._pages - before, snapshot.records,
                snapshot.changes + changes,
            )  # fmt: skip
            self._cache.extend(topic, snapshot, longer)

        yield Member(pages, keep, self._cache.max_bytes)

    def _topic(self, topic: str, contents: TopicSnapshot, *, keeps: bool) -> Iterator[Item]:
        """``keeps``: the pages of objects become a snapshot."""
        yield self._page(topic_page(topic, contents))
        before, records = self._pages, contents.records
        if isinstance(records, PackedRecords):
            self._pages += len(records.parts)
            yield Ready(records.parts)
        elif keeps:
            pages = map(self._page, record_pages(records))
            yield Member(pages, partial(self._keep, topic, contents, before), self._cache.max_bytes)
        else:
            yield from map(self._page, record_pages(records))
        yield from map(self._page, change_pages(contents.changes))

    def _keep(self, topic: str, contents: TopicSnapshot, before: int, parts: Sequence[bytes]) -> None:
        pages = self._pages - before
        self._cache.put(topic, Snapshot(contents.head.point, tuple(parts), pages, len(contents.records)))

    def _page(self, page: Page) -> bytes:
        self._pages += 1
        return encode_page(page)
