"""A model of the store, and a bench around one tracker: the basis of the core's tests.

No sockets, no threads, no clock: each test sets the time.
"""

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from pubsub_lib.core.digest import add, bucket_of, fingerprint, subtract
from pubsub_lib.core.effects import Apply, Effect, Replace, RequestHello, StartSync
from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import (
    ALL,
    EMPTY,
    ZERO,
    Change,
    Delta,
    Full,
    Head,
    Heads,
    Incomplete,
    Link,
    Point,
    Record,
    Recorded,
    SyncAnswer,
    TopicSnapshot,
    Want,
)
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.core.transitions import State
from simulator.judged_point import recorded

UUID = "00112233445566778899aabbccddeeff"
STORE = bytes.fromhex("0f" * 16)
"""The id of the store of a history, and of the builders' messages."""
CALM = Timing(sync_jitter=0.0, sync_interval=0.0, verify_interval=0.0)
"""Default times, but syncs start at once, and no sync verifies what publishers sent."""

Write = tuple[str, str, str | None]
"""(topic, key, new value or None to delete)"""
Objects = dict[tuple[str, str], Record]


class History:
    """A store: transactions in, links, heads, deltas and snapshots out."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self.store_id = STORE
        self.point = ZERO
        self.links: list[Link] = []
        self.floor = 0
        self.heads: dict[str, Head] = {}
        self.objects: dict[str, Objects] = {}

    def commit(self, *writes: Write) -> list[Link]:
        """One transaction; its links in the order of their first change."""
        first = self.point.position + 1
        point = Point(first + len(writes) - 1, self._rng.getrandbits(62))
        changes: dict[str, list[Change]] = {}
        for version, (topic, key, value) in enumerate(writes, first):
            changes.setdefault(topic, []).append(self._write(topic, key, value, version))
        links = []
        for topic, own in changes.items():
            before = self.heads.get(topic, EMPTY)
            objects = self.objects[topic].values()
            digest = 0
            for record in objects:
                digest = add(digest, fingerprint(record.table, record.key, record.version, record.value))
            self.heads[topic] = Head(point, len(objects), digest)
            links.append(
                Link(topic, before.point, point, own, len(objects), digest, self.point, len(changes), "api-1", 1.0)
            )
        self.point = point
        self.links.extend(links)
        return links

    def one(self, topic: str = "t", key: str = "k", value: str | None = "1") -> Link:
        """A transaction of one change."""
        return self.commit((topic, key, value))[0]

    def some(self, number: int, topic: str = "t") -> list[Link]:
        """A number of transactions with one change each, on one topic."""
        return [self.one(topic, f"k{index}") for index in range(number)]

    def restored(self, position: int, seed: int = 1) -> "History":
        """This history as in a backup taken at ``position``; commits from then on differ."""
        copy = History(seed)
        for link in self.links:
            if link.point.position > position:
                break
            for change in link.changes:
                value = None if change.value is None else change.value.decode()
                copy._write(link.topic, change.key, value, change.version)
            copy.heads[link.topic] = Head(link.point, link.count, link.digest)
            copy.point = link.point
            copy.links.append(link)
        return copy

    def trim(self, position: int) -> None:
        """Forget the links up to a position."""
        self.floor = position

    def head(self, chain: str) -> Point:
        """The head of a topic or, for ``ALL``, of the store."""
        return self.point if chain == ALL else self.heads.get(chain, EMPTY).point

    def reading(self) -> Heads:
        """A publisher's reading."""
        return Heads(self.point, dict(self.heads), self.store_id)

    def answer(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """The answer to a sync, from one snapshot."""
        chains = {chain: self._part(chain, want) for chain, want in wants.items()}
        return SyncAnswer(self.point, chains, self.store_id)

    def _part(self, chain: str, want: Want) -> Delta | Incomplete | Full:
        if want.after is not None:
            return self._delta(chain, want.after)
        topics = list(self.heads) if chain == ALL else [chain]
        contains = None if want.known is None else self.holds(chain, want.known)
        topics_of = {topic: self._snapshot(topic, want.buckets) for topic in topics}
        return Full(topics_of, self.head(chain), contains, want.judged and self._recorded(*want.judged))

    def _recorded(self, topic: str, point: Point) -> Recorded | None:
        kept = [link for link in self.links if link.point.position > self.floor]
        return recorded(topic, point, self.holds(topic, point), self.heads.get(topic, EMPTY), kept)

    def holds(self, chain: str, point: Point) -> bool | None:
        """Whether a chain's history contains a point; None: it was trimmed."""
        if point in (ZERO, self.head(chain)):
            return True
        if point.position <= self.floor:
            return None
        return any(link.point == point for link in self.links if chain in (ALL, link.topic))

    def _delta(self, chain: str, after: Point) -> Delta | Incomplete:
        links = [
            link
            for link in self.links
            if chain in (ALL, link.topic) and link.point.position > max(after.position, self.floor)
        ]
        head = self.head(chain)
        begins = (links[0].tx_prev if chain == ALL else links[0].prev) if links else head
        heads = dict(self.heads) if chain == ALL else {chain: self.heads.get(chain, EMPTY)}
        return Delta(links, head, heads) if begins == after else Incomplete()

    def _snapshot(self, topic: str, buckets: Mapping[int, int] | None) -> TopicSnapshot:
        head = self.heads.get(topic, EMPTY)
        records = list(self.objects.get(topic, {}).values())
        if buckets is None:
            return TopicSnapshot(head, records)
        differing = dict(buckets)
        for record in records:
            bucket = bucket_of(record.table, record.key)
            print_ = fingerprint(record.table, record.key, record.version, record.value)
            differing[bucket] = subtract(differing.get(bucket, 0), print_)
        chosen = frozenset(bucket for bucket, rest in differing.items() if rest)
        return TopicSnapshot(head, [row for row in records if bucket_of(row.table, row.key) in chosen], chosen)

    def _write(self, topic: str, key: str, value: str | None, version: int) -> Change:
        objects = self.objects.setdefault(topic, {})
        existed = objects.pop(("port", key), None) is not None
        if value is None:
            return Change("port", key, "delete", version, None)
        objects["port", key] = Record("port", key, version, value.encode())
        return Change("port", key, "set" if existed else "create", version, value.encode())


def run_of(link: Link, parts: int) -> list[Message]:
    """A link as a run of messages, as a publisher sends a large one."""
    ends = [len(link.changes) * part // parts for part in range(parts + 1)]
    cuts = [link.changes[start:end] for start, end in pairwise(ends)]
    return [Message(msgspec.structs.replace(link, changes=cut), part, parts) for part, cut in enumerate(cuts, 1)]


def envelope(
    *messages: Message | Link, sequence: int = 1, service: str = "api-1", uuid: str = UUID, store_id: bytes = STORE
) -> Envelope:
    """Messages, or links as messages of one part, of one topic."""
    held = [item if isinstance(item, Message) else Message(item) for item in messages]
    return Envelope(service, uuid, held[0].link.topic, sequence, held, None, store_id)


def hello(
    heads: Heads | None,
    *,
    nonce: str = "",
    age: float = 0.0,
    sequences: Mapping[str, int] | None = None,
    store_id: bytes = STORE,
    uuid: str = UUID,
) -> Envelope:
    """A publisher's hello about the topics of a reading."""
    topics = {} if heads is None else heads.topics
    store = None if heads is None else heads.store
    return Envelope("api-1", uuid, ALL, 0, (), Hello(sequences or {}, topics, store, age, nonce), store_id)


class Bench:
    """One tracker, and its effects. ``now`` is the virtual time."""

    def __init__(
        self,
        history: History,
        topics: Sequence[str] = ("t",),
        *,
        known: Mapping[str, Point] | None = None,
        timing: Timing = CALM,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self.history = history
        self.now = 100.0
        self.timing = timing
        self.tracker = Tracker(timing, limits, random.Random(0), self.now)
        self.applied: list[Link] = []
        self.replaced: list[Replace] = []
        self.requests: list[RequestHello] = []
        self.sync: StartSync | None = None
        self.syncs: list[StartSync] = []
        self.began = self.now
        self.do(self.tracker.subscribe(topics, self.now, known))

    # -- input

    def feed(self, *messages: Message | Link) -> list[Link]:
        """Messages arrive, each in its own envelope; returns the links that were applied."""
        before = len(self.applied)
        for message in messages:
            self.do(self.tracker.feed(envelope(message), self.now))
        return self.applied[before:]

    def receive(self, heads: Heads | None, *, nonce: str = "", age: float = 0.0) -> None:
        """A hello arrives."""
        self.do(self.tracker.feed(hello(heads, nonce=nonce, age=age), self.now))

    def ask(self) -> RequestHello:
        """The last hello request, after time passed to the next round."""
        asked = len(self.requests)
        while len(self.requests) == asked:
            self.wait(self.timing.max_idle_time)
        return self.requests[-1]

    def wait(self, seconds: float = 0.0) -> None:
        """Time passes, with one tick at its end."""
        self.now += seconds
        self.do(self.tracker.tick(self.now))

    def answer(self, answer: SyncAnswer | None = None) -> list[Link]:
        """The store answers the running sync: from its current contents, or as given. Returns the applied links."""
        before = len(self.applied)
        sync = self.running
        self.sync = None
        self.do(self.tracker.sync_done(sync.number, answer or self.history.answer(sync.wants), self.now))
        return self.applied[before:]

    def fail(self) -> None:
        """The store does not answer the running sync."""
        number = self.running.number
        self.sync = None
        self.tracker.sync_failed(number, self.now)

    def synced(self) -> "Bench":
        """Greet, complete the first sync, and continue until no sync is due or runs."""
        self.receive(self.history.reading(), nonce=self.requests[-1].nonce)
        while self.tracker.syncs.waits or self.sync is not None:
            if self.sync is None:
                self.wait(max(0.0, self.tracker.syncs.next_time() - self.now))
            self.answer()
        self.wait(0.25)
        return self

    def do(self, effects: Sequence[Effect]) -> None:
        """Record the tracker's effects."""
        for effect in effects:
            match effect:
                case Apply(links):
                    self.applied.extend(links)
                case Replace():
                    self.replaced.append(effect)
                case RequestHello():
                    self.requests.append(effect)
                case StartSync():
                    late = self.now - self.began >= self.timing.sync_timeout
                    assert self.sync is None or late, "one sync at a time"
                    self.sync = effect
                    self.began = self.now
                    self.syncs.append(effect)

    # -- results

    @property
    def running(self) -> StartSync:
        """The running sync."""
        assert self.sync is not None, "no sync runs"
        return self.sync

    def state(self, chain: str = "t") -> State:
        """The state of a chain."""
        return self.tracker.chain(chain).state

    def known(self, chain: str = "t") -> Point | None:
        """A chain's known."""
        return self.tracker.chain(chain).known

    def is_syncing(self) -> bool:
        """A sync runs."""
        return self.sync is not None

    def is_synced(self) -> bool:
        """Every chain was synced once."""
        return self.tracker.synced

    def staleness(self) -> float:
        """The staleness now."""
        return self.tracker.staleness(self.now)
