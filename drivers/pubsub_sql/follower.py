"""What polling does, without threads and clocks: read what is new after a point, and make envelopes of it."""

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import Final, Protocol

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, Heads, Link, Point
from pubsub_lib.errors import FrameError

SERVICE: Final = "db-polling"
"""The publisher's name in every envelope that polling makes."""


class ChangelogReader(Protocol):
    """What is used of :class:`pubsub_lib.store.Store`."""

    def read_heads(self, topics: Collection[str], /) -> Heads:
        """The store's point and the heads of these topics, in one reading."""

    def read_links(self, after: Point | None, maximum: int, /) -> tuple[list[Link], Point, bool]:
        """(links in commit order, the store's head, whether the changelog still reaches the point)."""

    def close(self) -> None:
        """Release the connections."""


class ChangelogFollower:
    """One reader of the changelog: where it stands, and the sequences that it gives. One thread at a time.

    ``counts``: ``links`` read for registered topics, ``polls``, ``reads`` (polls that had to read links), ``jumps``
    (over links that are gone or of another history), ``oversized`` (a change that no frame has room for).
    """

    def __init__(self, limits: Limits, batch: int) -> None:
        self.uuid = uuid.uuid4().hex
        self.at: Point | None = None
        """The store's point up to which everything was delivered; None before the first poll."""
        self.counts = Counter(links=0, polls=0, reads=0, jumps=0, oversized=0)
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
        """What is new on these topics since the last poll, then the answers to ``asks``.

        The heads are read before the links, so that an answer never speaks of what its asker did not get yet. The
        first poll only remembers where the store stands. Raises what the store raises; a later poll goes on where
        this one stood. ``topics`` is looked at after each reading, so that a topic misses nothing that is committed
        after it was registered. ``clock``: seconds that never go back.
        """
        self.counts["polls"] += 1
        began = clock()
        asked = {topic for ask in asks for topic in ask.topics if topic != ALL}
        heads = store.read_heads(sorted(asked))
        if self.at is None:
            self.at = heads.store
        elif self.at != heads.store:
            yield from self._links(store, topics, heads.store, clock)
        for ask in asks:
            yield self._hello(ask.topics, heads, clock() - began, ask.nonce)

    def _links(
        self, store: ChangelogReader, topics: Callable[[], Collection[str]], upto: Point, clock: Callable[[], float]
    ) -> Iterator[Envelope]:
        while self.at != upto:
            self.counts["reads"] += 1
            links, _, complete = store.read_links(self.at, self._batch)
            if not complete:
                yield from self._jump(store, topics, clock)
                return
            if not links:
                return
            self.at = links[-1].point
            yield from self._envelopes(links, topics())
            if self.at.position > upto.position:
                return  # writers go on while we read; the rest is for the next poll

    def _jump(
        self, store: ChangelogReader, topics: Callable[[], Collection[str]], clock: Callable[[], float]
    ) -> Iterator[Envelope]:
        """The changelog was trimmed behind us, or its history is another one: go on at the head, and say so by a
        hello, so that replicas see the hole without waiting for their own question."""
        self.counts["jumps"] += 1
        began = clock()
        heads = store.read_heads(sorted(topic for topic in topics() if topic != ALL))
        self.at = heads.store
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
                    # The limits here are narrower than the writer's. Its replicas see a hole and read a delta.
                    self.counts["oversized"] += 1
                else:
                    self.counts["links"] += 1
            for messages in codec.pack(ready, self._limits):
                first = self._sequences[topic] + 1
                self._sequences[topic] += len(messages)
                yield Envelope(SERVICE, self.uuid, topic, first, messages)

    def _hello(self, topics: Collection[str], heads: Heads, age: float, nonce: str) -> Envelope:
        told = {topic: heads.topics[topic] for topic in topics if topic != ALL}
        last = {topic: self._sequences[topic] for topic in told}
        return Envelope(SERVICE, self.uuid, ALL, 0, [], Hello(last, told, heads.store, max(0.0, age), nonce))


class Pace:
    """How long to wait between two polls: shorter while there are changes, longer while there are none. Seconds."""

    def __init__(self, fastest: float, slowest: float, max_backoff: float) -> None:
        self._fastest = fastest
        self._slowest = slowest
        self._max_backoff = max(max_backoff, slowest)
        self._interval = slowest
        self._failures = 0

    def changed(self) -> float:
        """There was something new."""
        self._failures = 0
        self._interval = max(self._fastest, self._interval / 2)
        return self._interval

    def idle(self) -> float:
        """There was nothing new."""
        self._failures = 0
        self._interval = min(self._slowest, self._interval * 1.25)
        return self._interval

    def failed(self) -> float:
        """The database did not answer: doubles with each further failure."""
        self._failures += 1
        return min(self._max_backoff, self._fastest * 2.0 ** min(self._failures, 40))
