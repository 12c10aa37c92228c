"""Drivers, a store and a journal for scenarios: they take virtual time, let others run, and check their arguments.

A call of a double is a synchronisation point. It checks the contract of the callers with the real object.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from pubsub_lib.api import OnConnected, OnEnvelope, OnHelloRequest, Publisher, Subscriber
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.model import ALL, EMPTY, Heads, Link, Point, SyncAnswer, Want
from pubsub_lib.errors import StoreUnavailable, TransportError
from tests.scheduler.explore import World
from tests.unit.core.builders import History, Write

T = TypeVar("T")


class StoreDouble:
    """A database: commits one at a time, and readings that take ``latency`` seconds. Records the times of commits."""

    def __init__(self, world: World, latency: float = 0.0) -> None:
        self.world = world
        self.latency = latency
        self.history = History()
        self.committed: dict[int, float] = {}
        """Position → time of its commit."""
        self.failures: list[Exception] = []
        """Raised by the next readings."""
        self.readings = 0
        self._lock = world.threading.Lock()
        self._callbacks: tuple[Callable[[Sequence[Link]], None], ...] = ()

    @property
    def listeners(self) -> int:
        """Number of callbacks at a commit."""
        return len(self._callbacks)

    def commit(self, *writes: Write) -> list[Link]:
        """One transaction, then the callbacks, as in the real store: in this thread, also if another one raised."""
        with self._lock:
            links = self.history.commit(*(writes or (("t", "k", "1"),)))
            self.committed[self.history.point.position] = self.world.now
            callbacks = self._callbacks
        self.world.scheduler.point("has committed")
        for callback in callbacks:
            try:
                callback(links)
            except Exception:  # noqa: BLE001 - the real store logs it: the commit is done
                pass
        return links

    @property
    def store_id(self) -> bytes:
        return self.history.store_id

    def on_commit(
        self, callback: Callable[[Sequence[Link]], None], *, after_fork: bool = False, unless_published: bool = False
    ) -> Callable[[], None]:
        self.world.scheduler.point("registers a callback")
        self._callbacks = (*self._callbacks, callback)

        def stop() -> None:
            self.world.scheduler.point("removes a callback")
            self._callbacks = tuple(each for each in self._callbacks if each is not callback)

        return stop

    def read_heads(self, topics: Collection[str], /) -> Heads:
        def read() -> Heads:
            heads = self.history.reading()
            asked = {topic: EMPTY for topic in topics if topic != ALL}  # also topics that were never written
            return Heads(heads.store, {**asked, **heads.topics})

        return self._read(read)

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        return self._read(lambda: self.history.answer(wants))

    def read_links(self, after: Any, maximum: int, max_bytes: int | None = None, /) -> tuple[list[Link], Any, bool]:
        def read() -> tuple[list[Link], Any, bool]:
            history = self.history
            links = [link for link in history.links if after is None or link.point.position > after.position]
            complete = after is None or after.position >= history.floor
            return links[:maximum] if complete else [], history.point, complete

        return self._read(read)

    def holds_each(self, asked: Sequence[tuple[str, Point]]) -> Sequence[bool | None]:
        def read() -> list[bool | None]:
            held = {(topic, link.point) for link in self.history.links for topic in (ALL, link.topic)}
            return [name in held for name in asked]

        return self._read(read)

    def holds(self, topic: str, points: Sequence[Point]) -> Sequence[bool | None]:
        return self.holds_each([(topic, point) for point in points])

    def behind(self, position: int, at: float) -> float:
        """Seconds, at this time, since the oldest commit beyond the position; 0.0 when there is none."""
        return max((at - committed for beyond, committed in self.committed.items() if beyond > position), default=0.0)

    def close(self) -> None:
        pass

    def _read(self, read: Callable[[], T]) -> T:
        self.readings += 1
        self.world.sleep(self.latency / 2)
        if self.failures:
            raise self.failures.pop(0)
        found = read()
        self.world.sleep(self.latency / 2)
        return found


def out_of_order(world: World, sent: Sequence[Envelope], envelope: Envelope) -> str:
    """The reason why an envelope must not be the next one; "" without one."""
    last = {each.topic: each.sequence + len(each.messages) - 1 for each in sent if each.messages}
    if envelope.hello is None:
        expected = last.get(envelope.topic, 0) + 1
        if envelope.sequence != expected:
            return f"sequence {envelope.sequence} of {envelope.topic!r} is sent as number {expected}"
        return ""
    for topic, claimed in envelope.hello.sequences.items():
        if claimed > last.get(topic, 0):
            return f"a hello has sequence {claimed} of {topic!r}; the last one sent is {last.get(topic, 0)}"
    return ""


class PublisherDouble(Publisher):
    """Keeps the sent envelopes in order, and checks them: see ``send_event``."""

    def __init__(self, world: World, store: StoreDouble | None = None, journal: "JournalDouble | None" = None) -> None:
        self.world = world
        self.store = store
        self.journal = journal
        self.sent: list[Envelope] = []
        self.refusing = 0.0
        """Seconds after which each send is refused; 0.0: none is refused."""
        self.initialized = self.closed = False
        self.on_hello_request: OnHelloRequest = lambda ask: None
        self.on_connected: OnConnected = lambda: None

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        self.world.scheduler.point("initializes the driver")
        self.world.check(not self.initialized, "initialize() twice")
        if self.closed:
            raise TransportError("closed")
        self.initialized = True
        self.on_hello_request, self.on_connected = on_hello_request, on_connected

    def send_event(self, envelope: Envelope) -> None:
        self.world.scheduler.point(f"sends {'a hello' if envelope.hello else envelope.sequence} of {envelope.topic!r}")
        if not self.initialized or self.closed:
            raise TransportError("not initialized, or closed")
        if self.refusing:
            self.world.sleep(self.refusing)
            raise TransportError("refused")
        self.world.check(not self.goodbye, "an envelope is sent after the goodbye")
        wrong = out_of_order(self.world, self.sent, envelope)
        self.world.check(not wrong, wrong)
        if envelope.hello is not None and self.store is not None:
            self._check_hello(envelope.hello, self.store)
        if self.journal is not None and envelope.messages:
            self.world.check(
                not self.journal.lacks("sent", envelope.topic, envelope.sequence),
                f"sequence {envelope.sequence} of {envelope.topic!r} is sent before the journal has it",
            )
        self.sent.append(envelope)

    @property
    def goodbye(self) -> bool:
        """Whether the goodbye was sent."""
        return any(envelope.hello is not None and envelope.hello.goodbye for envelope in self.sent)

    @property
    def positions(self) -> list[int]:
        """Positions of the sent links, in order."""
        return [message.link.point.position for envelope in self.sent for message in envelope.messages]

    def counters(self) -> Mapping[str, int]:
        return {"sent": len(self.sent)}

    def close(self) -> None:
        self.world.scheduler.point("closes the driver")
        self.closed = True

    def _check_hello(self, hello: Hello, store: StoreDouble) -> None:
        if hello.store is None:
            return
        # A commit more than ``age`` ago that is not in the reading: the reading is older than its age.
        behind = store.behind(hello.store.position, self.world.now)
        self.world.check(
            behind <= hello.age + 1e-9,
            f"a hello has the age {hello.age:g} s; a commit of {behind:g} s ago is not in its reading",
        )


class SubscriberDouble(Subscriber):
    """A driver whose receiving thread is the scenario's: ``deliver`` and ``connect`` are called in it."""

    def __init__(self, world: World, journal: "JournalDouble | None" = None) -> None:
        self.world = world
        self.journal = journal
        self.topics: set[str] = set()
        self.asked: list[HelloRequest] = []
        self.running = self.closed = False
        self.on_envelope: OnEnvelope = lambda envelope: None
        self.on_connected: OnConnected = lambda: None

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        self._point("initializes the driver")
        self.on_envelope, self.on_connected = on_envelope, on_connected

    def register_topic(self, topic: str) -> None:
        self._point(f"subscribes to {topic!r}")
        if self.journal is not None:
            self.world.check(
                not self.journal.lacks("interest", topic), f"subscribes to {topic!r} before the journal has it"
            )
        self.topics.add(topic)

    def unregister_topic(self, topic: str) -> None:
        self._point(f"unsubscribes from {topic!r}")
        self.topics.discard(topic)

    def register_listen_address(self, address: str) -> None:
        self._point(f"listens to {address}")

    def unregister_listen_address(self, address: str) -> None:
        self._point(f"listens no more to {address}")

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        self._point(f"requests a hello about {sorted(topics)}")
        self.world.check(self.running, "requests a hello before the receiving thread runs")
        for topic in topics:
            subscribed = topic in self.topics or ALL in self.topics
            self.world.check(subscribed, f"requests a hello about {topic!r} before it subscribes to it")
        if self.journal is not None:
            self.world.check(not self.journal.lacks("ask", nonce), f"requests {nonce} before the journal has it")
        self.asked.append(HelloRequest(nonce, tuple(topics)))

    def daemonize(self) -> None:
        self._point("starts receiving")
        self.running = True

    def counters(self) -> Mapping[str, int]:
        return {"received": 0}

    def close(self) -> None:
        self.world.scheduler.point("closes the driver")
        self.closed = True
        self.running = False

    def deliver(self, envelope: Envelope) -> None:
        """An envelope arrives, when its topic is subscribed to."""
        self.world.scheduler.point(f"receives {envelope.topic!r}")
        wanted = envelope.hello is not None or {envelope.topic, ALL} & self.topics
        if self.running and wanted:
            self.on_envelope(envelope)

    def connect(self) -> None:
        """A connection is made."""
        self.world.scheduler.point("is connected")
        if self.running:
            self.on_connected()

    def _point(self, what: str) -> None:
        self.world.scheduler.point(what)
        if self.closed:
            raise TransportError("closed")


class JournalDouble:
    """In place of :class:`pubsub_lib.journal.Journal`: ``entries`` in the order in which they were written."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: list[tuple[Any, ...]] = []
        self.closed = False
        self.error = ""

    def note(self, kind: str, **given: Any) -> None:
        self._write((kind, given.get("topic") or given.get("peer", "")))

    def links(self, outcome: str, links: Sequence[Link], cause: str = "") -> None:
        for link in links:
            self._write((outcome, link.topic, link.point.position))

    def messages(self, outcomes: Sequence[str], envelope: Envelope, cause: str = "") -> None:
        several = outcomes if len(outcomes) > 1 else list(outcomes) * len(envelope.messages)
        for index, (outcome, message) in enumerate(zip(several, envelope.messages, strict=True)):
            number = envelope.sequence + index if outcome == "sent" else message.link.point.position
            self._write((outcome, envelope.topic, number))

    def listing(self, number: int, topic: str, point: Any, objects: Sequence[Any]) -> None:
        self._write(("listing", topic, point.position))

    def watch(self, rejected: Callable[[], Mapping[str, int]]) -> None:
        pass

    def of_store(self, store_id: bytes) -> None:
        pass

    def counters(self) -> Mapping[str, int]:
        return {"written": len(self.entries), "lost": 0}

    def close(self) -> None:
        self.world.scheduler.point("closes the journal")
        self.closed = True

    def _write(self, entry: tuple[Any, ...]) -> None:
        self.world.scheduler.point(f"writes {entry}")
        if not self.closed:
            self.entries.append(entry)

    def lacks(self, *entry: Any) -> bool:
        """True when the journal is open and this entry was not written."""
        return not self.closed and entry not in self.entries


def unavailable() -> StoreUnavailable:
    """The error of a database that does not answer."""
    return StoreUnavailable("out")
