"""The data of ``top``: rates, lags and holes, from readings of the store and received messages. Sans-I/O.

``now`` is always in seconds of a monotonic clock.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from pubsub_lib.cli.message_rows import LINK, ReceivedMessage
from pubsub_lib.core.model import Heads
from pubsub_lib.store import Service

WINDOW: Final = 10
"""Seconds over which a rate is an average."""
MAX_REQUESTS: Final = 64
"""Maximum number of hello requests whose replies are used; older ones are dropped."""
MAX_UNANSWERED: Final = 5
"""Intervals, and seconds, after a service's last reply after which its lag is unknown."""


class Rate:
    """A rate per second over the last ``WINDOW`` seconds (or since the start, when that is less)."""

    __slots__ = ("_began", "_buckets")

    def __init__(self, now: float) -> None:
        self._began = now
        self._buckets: deque[tuple[int, float]] = deque()

    def add(self, now: float, count: float) -> None:
        """Count ``count`` more."""
        second = int(now)
        if self._buckets and self._buckets[-1][0] == second:
            count += self._buckets.pop()[1]
        self._buckets.append((second, count))
        self._forget(now)

    def per_second(self, now: float) -> float:
        """The rate now."""
        self._forget(now)
        return sum(count for _, count in self._buckets) / max(1.0, min(WINDOW, now - self._began))

    def _forget(self, now: float) -> None:
        while self._buckets and self._buckets[0][0] <= now - WINDOW - 1:
            self._buckets.popleft()


class TopicRow(msgspec.Struct, frozen=True):
    """One topic. ``lag``: for how many seconds its newest change has not been received here; 0 when it was received."""

    topic: str
    objects: int
    head: int
    changes: float
    """Received per second."""
    lag: float
    holes: int


class ServiceRow(msgspec.Struct, frozen=True):
    """One service that is in the directory or sent a message."""

    service: str
    address: str
    lease_left: float | None
    """Seconds; None: not in the directory."""
    messages: float
    """Received per second."""
    latency: float | None
    """Seconds, of the last message."""
    lag: int | None
    """Number of positions by which its reading of the store was behind, at its last hello reply. None: it has not
    replied for some time."""
    holes: int


class View(msgspec.Struct, frozen=True):
    """The data of one screen, at one moment."""

    head: int
    written: float
    """Changes per second, by the store's head."""
    received: float
    """Changes per second."""
    holes: int
    error: str
    """Why the store could not be read; "" when it could."""
    services: tuple[ServiceRow, ...]
    topics: tuple[TopicRow, ...]
    """Topics that lag first, then the busiest."""
    read: bool = True
    """Whether the store was ever read."""
    some: bool = False
    """Whether only named topics are shown."""


class _Topic:
    __slots__ = ("behind_since", "changes", "head", "holes", "objects", "received")

    def __init__(self, now: float) -> None:
        self.objects = 0
        self.head = 0
        self.received = 0
        """Position of the newest received link; at first the head, because older links were sent before the start."""
        self.behind_since: float | None = None
        self.changes = Rate(now)
        self.holes = 0


class _Service:
    __slots__ = ("answered", "entry", "holes", "lag", "latency", "messages", "read_at", "replied_at")

    def __init__(self, now: float) -> None:
        self.entry: Service | None = None
        self.read_at = now
        self.messages = Rate(now)
        self.latency: float | None = None
        self.lag: int | None = None
        self.answered = 0
        """The round of requests of its newest reply."""
        self.replied_at = now
        self.holes = 0


class TopModel:
    """Not thread-safe: the caller holds one lock around every call."""

    def __init__(self, now: float, topics: Collection[str] = (), interval: float = 1.0) -> None:
        """``topics``: show only these; none: all. ``interval``: seconds between two rounds of hello requests."""
        self._patience = MAX_UNANSWERED * max(1.0, interval)
        self._only = frozenset(topics)
        self._topics: dict[str, _Topic] = {}
        self._services: dict[str, _Service] = {}
        self._written = Rate(now)
        self._received = Rate(now)
        self._head: int | None = None
        self._holes = 0
        self._error = ""
        self._requests: dict[str, tuple[int, int]] = {}
        """By nonce: the head that was known, and the round."""
        self._rounds = 0

    def stored(self, heads: Heads, entries: Iterable[Service], now: float) -> None:
        """The store was read."""
        self._error = ""
        position = heads.store.position
        if self._head is not None and position > self._head:
            self._written.add(now, position - self._head)
        elif self._head is not None and position < self._head:  # a restored backup: its positions come again
            for topic in self._topics.values():
                topic.received = min(topic.received, position)
        self._head = position
        for name, head in heads.topics.items():
            if self._only and name not in self._only:
                continue
            first = name not in self._topics
            topic = self._topic(name, now)
            topic.objects, topic.head = head.count, head.point.position
            if first:
                topic.received = topic.head
            self._judge(topic, now)
        for service in self._services.values():
            service.entry = None
        for entry in sorted(entries, key=lambda each: each.seconds_left):  # the last start of a name wins
            service = self._service(entry.service, now)
            service.entry, service.read_at = entry, now

    def failed(self, error: str) -> None:
        """The store could not be read."""
        self._error = error

    def received(self, rows: Iterable[ReceivedMessage], now: float) -> None:
        """Messages were received."""
        for row in rows:
            if self._only and row.topic not in self._only:
                continue
            service = self._service(row.service, now)
            service.holes += row.holes
            self._holes += row.holes
            if row.kind != LINK:
                if row.holes:
                    self._topic(row.topic, now).holes += row.holes
                continue
            service.messages.add(now, 1)
            service.latency = row.latency
            topic = self._topic(row.topic, now)
            topic.holes += row.holes
            topic.changes.add(now, row.changes)
            self._received.add(now, row.changes)
            topic.received = max(topic.received, row.position)
            self._judge(topic, now)

    def asked(self, nonces: Iterable[str]) -> None:
        """Hello requests were sent. A service that replies has read the store after the head that is known now."""
        self._rounds += 1
        for nonce in nonces:
            self._requests[nonce] = self._head or 0, self._rounds
            if len(self._requests) > MAX_REQUESTS:
                del self._requests[next(iter(self._requests))]

    def answered(self, service: str, nonce: str, position: int, now: float) -> None:
        """A service reported up to which position it has read the store."""
        request = self._requests.get(nonce)
        if request is None:
            return
        head, number = request
        found = self._service(service, now)
        found.replied_at = now
        if number >= found.answered:
            found.lag, found.answered = max(0, head - position), number

    def view(self, now: float) -> View:
        """The data to show now."""
        services = [self._service_row(name, service, now) for name, service in sorted(self._services.items())]
        topics = [self._topic_row(name, topic, now) for name, topic in self._topics.items()]
        topics.sort(key=lambda row: (-row.lag, -row.changes, row.topic))
        return View(
            head=self._head or 0,
            written=self._written.per_second(now),
            received=self._received.per_second(now),
            holes=self._holes,
            error=self._error,
            services=tuple(services),
            topics=tuple(topics),
            read=self._head is not None,
            some=bool(self._only),
        )

    def _judge(self, topic: _Topic, now: float) -> None:
        if topic.received >= topic.head:
            topic.behind_since = None
        elif topic.behind_since is None:
            topic.behind_since = now

    def _topic(self, name: str, now: float) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = _Topic(now)
        return found

    def _service(self, name: str, now: float) -> _Service:
        found = self._services.get(name)
        if found is None:
            found = self._services[name] = _Service(now)
        return found

    def _topic_row(self, name: str, topic: _Topic, now: float) -> TopicRow:
        lag = 0.0 if topic.behind_since is None else now - topic.behind_since
        return TopicRow(name, topic.objects, topic.head, topic.changes.per_second(now), lag, topic.holes)

    def _service_row(self, name: str, service: _Service, now: float) -> ServiceRow:
        entry = service.entry
        replies = now - service.replied_at <= self._patience
        return ServiceRow(
            service=name,
            address="" if entry is None else entry.address,
            lease_left=None if entry is None else entry.seconds_left - (now - service.read_at),
            messages=service.messages.per_second(now),
            latency=service.latency,
            lag=service.lag if replies else None,
            holes=service.holes,
        )
