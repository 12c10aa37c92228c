"""Polling without threads and clocks: read the links after a point, and make envelopes of them."""

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import Final, Protocol

from pubsub_lib.core import codec
from pubsub_lib.core.backoff import doubled
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, NO_STORE, Heads, Link, Point
from pubsub_lib.errors import FrameError

SERVICE: Final = "db-polling"
"""The publisher's name in every envelope that polling makes."""


class ChangelogReader(Protocol):
    """The members of :class:`pubsub_lib.store.Store` that polling uses."""

    @property
    def store_id(self) -> bytes:
        """The store's id in the last reading."""

    def read_heads(self, topics: Collection[str], /) -> Heads:
        """The store's point and the heads of these topics, in one reading."""

    def read_links(self, after: Point | None, maximum: int, /) -> tuple[list[Link], Point, bool]:
        """(links in commit order, the store's head, whether the changelog still reaches the point)."""

    def close(self) -> None:
        """Release the connections."""


class ChangelogFollower:
    """One reader of the changelog: its position, and the sequences that it assigns. One thread at a time.

    ``counts``: ``links`` read for registered topics, ``polls``, ``reads`` (polls that had to read links), ``jumps``
    (over links that were trimmed or belong to another history), ``oversized`` (changes larger than a frame).
    """

    def __init__(self, limits: Limits, batch: int) -> None:
        self.uuid = uuid.uuid4().hex
        self.at: Point | None = None
        """The store's point up to which everything was delivered; None before the first poll."""
        self.counts = Counter(links=0, polls=0, reads=0, jumps=0, oversized=0)
        self.store_id = NO_STORE
        """The store's id in the last reading; ``NO_STORE`` before the first poll."""
        self.expects_links = False
        """Whether the next polls read the links without the heads first, which is quicker when there are some. A poll
        with hello requests and the first poll read the heads anyway."""
        self._limits = limits
        self._batch = batch
        self._sequences: Counter[str] = Counter()

    def poll(
        self,
        store: ChangelogReader,
        topics: Callable[[], Collection[str]],
        asks: Sequence[HelloRequest],
        clock: Callable[[], float],
    ) -> Iterator[Envelope]:
        """Yield the new links on these topics since the last poll, then the hello replies to ``asks``.

        The heads are read before the links, so that a reply never includes a link that was not delivered before it.
        The first poll only stores the store's point. Raises the store's exceptions; the next poll continues at the
        same point. ``topics`` is called after each reading, so that a topic misses no link that is committed after it
        was registered. ``clock``: seconds that never go back.
        """
        self.counts["polls"] += 1
        if self.expects_links and self.at is not None and not asks:
            yield from self._links(store, topics, None, clock)
            return
        began = clock()
        asked = {topic for ask in asks for topic in ask.topics if topic != ALL}
        heads = store.read_heads(sorted(asked))
        self.store_id = heads.store_id
        if self.at is None:
            self.at = heads.store
        elif self.at != heads.store:
            yield from self._links(store, topics, heads.store, clock)
        for ask in asks:
            yield self._hello(ask.topics, heads, clock() - began, ask.nonce)

    def _links(
        self,
        store: ChangelogReader,
        topics: Callable[[], Collection[str]],
        upto: Point | None,
        clock: Callable[[], float],
    ) -> Iterator[Envelope]:
        """Read up to this point of the store; None: up to its point in the first reading."""
        while self.at != upto:
            self.counts["reads"] += 1
            links, head, complete = store.read_links(self.at, self._batch)
            if upto is None:
                upto, self.store_id = head, store.store_id
            if not complete:
                yield from self._jump(store, topics, clock)
                return
            if not links:
                return
            self.at = links[-1].point
            yield from self._envelopes(links, topics())
            if self.at.position > upto.position:
                return  # writers commit while we read; the next poll reads the rest

    def _jump(
        self, store: ChangelogReader, topics: Callable[[], Collection[str]], clock: Callable[[], float]
    ) -> Iterator[Envelope]:
        """The changelog no longer reaches our point, or it has another history. Continue at the head and send a hello,
        so that replicas find the gap without a hello request."""
        self.counts["jumps"] += 1
        began = clock()
        heads = store.read_heads(sorted(topic for topic in topics() if topic != ALL))
        self.at, self.store_id = heads.store, heads.store_id
        yield self._hello(heads.topics, heads, clock() - began, "")

    def _envelopes(self, links: Sequence[Link], topics: Collection[str]) -> Iterator[Envelope]:
        for topic, run in groupby(links, key=lambda link: link.topic):
            if topic not in topics and ALL not in topics:
                continue
            ready = []
            for link in run:
                try:
                    ready += codec.pieces(link, self._limits)
                except FrameError:
                    # The limits here are lower than the writer's. The replica finds a gap and reads a delta.
                    self.counts["oversized"] += 1
                else:
                    self.counts["links"] += 1
            for messages in codec.pack(ready, self._limits):
                first = self._sequences[topic] + 1
                self._sequences[topic] += len(messages)
                yield Envelope(SERVICE, self.uuid, topic, first, messages, None, self.store_id)

    def _hello(self, topics: Collection[str], heads: Heads, age: float, nonce: str) -> Envelope:
        shown = {topic: heads.topics[topic] for topic in topics if topic != ALL}
        last = {topic: self._sequences[topic] for topic in shown}
        hello = Hello(last, shown, heads.store, max(0.0, age), nonce)
        return Envelope(SERVICE, self.uuid, ALL, 0, [], hello, heads.store_id)


class Pace:
    """Seconds to wait between two polls: fewer while there are changes, more while there are none."""

    def __init__(self, fastest: float, slowest: float, max_backoff: float) -> None:
        self._fastest = fastest
        self._slowest = slowest
        self._max_backoff = max(max_backoff, slowest)
        self._interval = slowest
        self._failures = 0

    def changed(self) -> float:
        """The poll found a change."""
        self._failures = 0
        self._interval = max(self._fastest, self._interval / 2)
        return self._interval

    def idle(self) -> float:
        """The poll found no change."""
        self._failures = 0
        self._interval = min(self._slowest, self._interval * 1.25)
        return self._interval

    def failed(self) -> float:
        """The database did not answer. The wait doubles with each further failure."""
        self._failures += 1
        return doubled(self._fastest, self._failures, self._max_backoff)
