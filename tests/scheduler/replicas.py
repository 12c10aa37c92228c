"""A real replica (Replica, Engine, Handlers) around doubles, with its invariants at any moment."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pubsub_lib import Replica, Settings, Timing
from pubsub_lib.api import Subscriber
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.events import Event
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.model import ALL, EMPTY, Heads, Link, SyncAnswer, Want
from pubsub_lib.journal import Journal
from pubsub_lib.replica.engine import Engine
from pubsub_lib.replica.handlers import Handlers
from pubsub_lib.replica.journaling import ReplicaJournal
from pubsub_lib.replica.scheduling import Scheduler, Threads
from pubsub_lib.replica.sync_reader import SyncReader
from pubsub_lib.threads.periodic_thread import PeriodicThread
from tests.scheduler.doubles import JournalDouble, StoreDouble, SubscriberDouble
from tests.scheduler.explore import World
from tests.unit.core.builders import envelope, hello

SLOW_TICKS = Timing(
    max_idle_time=1000.0,
    message_delay_window=1.0,
    hello_wait=1.0,
    reading_age=1.0,
    round_trip=1.0,
    poll_interval=500.0,
    sync_jitter=0.0,
    sync_interval=0.0,
    sync_backoff=1.0,
    max_sync_backoff=4.0,
    sync_timeout=600.0,
)
"""The next regular tick is minutes away: an effect that depends on it comes far too late."""
PUBLIC = ("apply_run", "bucket_digests", "copy", "drop", "get", "iterate", "lookup", "present", "prove", "record",
          "replace", "topic_records", "topics", "walk")  # fmt: skip
"""Methods of the cache that read or write objects."""


class WatchedReplica(Replica):
    """A replica on the virtual clock. Its cache and its events are checked against the lock and the journal."""

    def __init__(
        self,
        world: World,
        store: StoreDouble,
        topics: Sequence[str],
        timing: Timing,
        journal: bool,
        driver: Subscriber | None = None,
    ) -> None:
        self.world = world
        self.entries = JournalDouble(world) if journal else None
        self.driver = SubscriberDouble(world, self.entries)
        self.versions: dict[tuple[str, str], int | None] = {}
        """The version of the last queued event of each object."""
        self.stopped = False
        """``close`` has returned."""
        settings = Settings(store_url="sqlite://", timing=timing)
        rng = random.Random(world.scheduler.chooser.seed)
        super().__init__(settings, topics, store=store, subscriber=driver or self.driver, rng=rng)
        self.tracker = self._engine.read(lambda state: state.tracker)
        """For conditions of the scheduler, which must not take a lock. One controlled thread runs at a time."""

    def _make_scheduler(self) -> "WatchedThreads":
        self.threads = WatchedThreads(self.world)
        return self.threads

    def _make_handlers(self, settings: Settings, scheduler: Scheduler) -> "WatchedHandlers":
        return WatchedHandlers(self, settings.handling, scheduler.now, condition=scheduler.condition)

    def _make_engine(self, settings: Settings, scheduler: Scheduler, rng: random.Random) -> Engine:
        world, reader, cache = self.world, self._sources.reader, Cache({})
        if self.entries is not None:
            self._journal = ReplicaJournal(cast("Journal", self.entries), polls=False)
            reader = JournalledReader(world, reader, self.entries)
        guard(world, cache, self.threads, self.entries)
        return Engine(settings, cache, reader, self._subscriber, self._handlers, scheduler, rng, journal=self._journal)

    def known(self, topic: str) -> int:
        """Position up to which the replica has everything of a topic."""
        tracker = self.tracker
        point = tracker.chain(topic).known if topic in tracker.topics else None
        return 0 if point is None else point.position

    def check_staleness(self, store: StoreDouble, topic: str) -> None:
        """The reported staleness is never too small."""
        claimed, truth = self._engine.read(
            lambda state: (self.staleness(), store.behind(self.known(topic), self.world.now))
        )
        self.world.check(
            claimed >= truth - 1e-9, f"staleness {claimed:g} s; the oldest missing change is {truth:g} s old"
        )

    def stop(self) -> None:
        """Close; no event may come afterwards."""
        self.close()
        self.stopped = True


class WatchedThreads(Threads):
    """The threads of one replica on the virtual clock, and its lock for a look at who holds it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.loops: dict[str, PeriodicThread] = {}
        self._lock: Any = None

    @property
    def now(self) -> Callable[[], float]:
        return lambda: self._world.now

    @property
    def hold_the_lock(self) -> bool:
        """Whether the running thread holds the replica's lock."""
        return bool(self._lock.is_mine)

    def condition(self, lock: "threading.RLock | None" = None) -> threading.Condition:
        self._lock = self._lock or lock
        return super().condition(lock)

    def loop(self, name: str, step: Callable[[float], float], due: Callable[[], float]) -> PeriodicThread:
        return self.loops.setdefault(name, PeriodicThread(name, step))


class WatchedHandlers(Handlers):
    """Checks each event that is queued."""

    def __init__(self, owner: WatchedReplica, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._replica = owner

    def push_history(self, change: HistoryChange) -> None:
        self._check()
        super().push_history(change)

    def push(self, events: Sequence[Event], *, initial: bool = False, by_sync: int = 0) -> None:
        self._check()
        world, versions = self._replica.world, self._replica.versions
        for event in events if self.listening() else ():
            ident = event.table, event.key
            shown = versions.get(ident, event.old_version)
            world.check(event.old_version == shown, f"{ident}: an event from {event.old_version} after {shown}")
            versions[ident] = event.version if event.new_value is not None else None
        super().push(events, initial=initial, by_sync=by_sync)

    def _check(self) -> None:
        world = self._replica.world
        world.check(self._replica.threads.hold_the_lock, "events are queued without the lock")
        world.check(not self._replica.stopped, "events come after close()")


class JournalledReader:
    """Checks that the journal has a sync before the store is read."""

    def __init__(self, world: World, reader: SyncReader, journal: JournalDouble) -> None:
        self._world = world
        self._reader = reader
        self._journal = journal
        self._begun: Counter[tuple[str, str]] = Counter()

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        for topic in wants:
            entry = "sync_begin", topic
            self._begun[entry] += 1
            written = self._journal.entries.count(entry)
            known = self._journal.closed or written >= self._begun[entry]
            self._world.check(known, f"sync {self._begun[entry]} of {topic!r} reads before the journal has it")
        return self._reader.read_sync(wants)


def guard(world: World, cache: Cache, threads: WatchedThreads, journal: JournalDouble | None) -> None:
    """Every access to the cache checks that the engine's lock is held, and every change that the journal has it."""

    def guarded(name: str) -> None:
        method = getattr(cache, name)

        def call(*given: Any, **named: Any) -> Any:
            world.check(threads.hold_the_lock, f"the cache's {name}() is called without the lock")
            if journal is not None and name == "apply_run":
                for link in cast("Sequence[Link]", given[0]):
                    lacks = journal.lacks("applied", link.topic, link.point.position)
                    world.check(not lacks, f"{link.point} is not in the journal when it is applied")
            return method(*given, **named)

        setattr(cache, name, call)

    for name in PUBLIC:
        guarded(name)


def replica_of(
    world: World,
    store: StoreDouble,
    topics: Sequence[str] = ("t",),
    *,
    timing: Timing = SLOW_TICKS,
    journal: bool = False,
    driver: Subscriber | None = None,
) -> WatchedReplica:
    """A replica that is not started yet. ``driver``: a real one, in place of the double."""
    return WatchedReplica(world, store, topics, timing, journal, driver)


def synced(world: World, replica: WatchedReplica) -> WatchedReplica:
    """Start it, and wait for its first sync."""
    with world.calm():
        replica.start()
        tracker = replica.tracker
        world.until(lambda: tracker.topics and tracker.synced, "the first sync", 5.0)
        world.sleep(0.1)
    return replica


def deliver(replica: WatchedReplica, *links: Link) -> None:
    """Let these links arrive, each in its own envelope."""
    for link in links:
        replica.driver.deliver(envelope(link))


def answer(replica: WatchedReplica, store: StoreDouble, *, takes: float = 0.0) -> None:
    """A publisher answers the last hello request, with a reading of this duration."""
    asked = replica.driver.asked[-1]
    began = replica.world.now
    heads = store.history.reading()
    replica.world.sleep(takes)
    named = [topic for topic in asked.topics if topic != ALL]
    heads = Heads(heads.store, {topic: heads.topics.get(topic, EMPTY) for topic in named})
    replica.driver.deliver(hello(heads, nonce=asked.nonce, age=replica.world.now - began))
