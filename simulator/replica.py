"""A replica: the production ``ReplicaState`` and ``HandlerQueue`` with the tasks of the threaded replica."""

import math
import random
from collections.abc import Collection, Generator
from typing import TYPE_CHECKING, ClassVar

from pubsub_lib.core.awaited import Awaited, HistoryQuery
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.handler_queue import HandlerPolicy, HandlerQueue
from pubsub_lib.core.history_change import is_barrier
from pubsub_lib.core.model import ALL, Point, SyncAnswer
from pubsub_lib.core.quarantine import QuarantineTimes
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.errors import HistoryChanged, OutcomeUnknown, StoreUnavailable
from simulator.directory import reader_of
from simulator.kernel import Await, LocalClock, Mailbox, Process, Signal, Sleep, Steps
from simulator.plan import FIRST_QUARANTINE, QUARANTINE, SPACING, ReplicaPlan
from simulator.publisher import PublisherTasks
from simulator.replica_core import Core
from simulator.store import Commit
from simulator.watched_state import WatchedReplicaState

if TYPE_CHECKING:
    from simulator.world import World

POLL_QUICK, POLL_SLOW = 0.05, 0.25
MAX_POLLED = 30


class Handler:
    """One handler's queue, and the results of its calls."""

    def __init__(self, limit: int) -> None:
        self.queue = HandlerQueue(HandlerPolicy(queue_limit=limit, tries=5, backoff=0.02, max_backoff=0.2))
        self.signal = Signal()
        self.values: dict[tuple[str, str], bytes] = {}
        self.versions: dict[tuple[str, str], int] = {}
        self.topics: dict[tuple[str, str], str] = {}
        """The topic of each object's last event."""
        self.notices = 0

class Replica:
    """One start of a replica: it begins empty."""

    reads_directory: ClassVar = True

    def __init__(self, world: "World", name: str, plan: ReplicaPlan, clock: LocalClock, rng: random.Random) -> None:
        self.world = world
        self.name = name
        self.plan = plan
        self.clock = clock
        self.process = Process(world.kernel, "replica", name, clock)
        self.replaced: list[str] = []
        self.subscriptions: dict[str, None] = {}
        self.inbox: Mailbox[Envelope] = Mailbox(world.plan.hwm)
        self._rng = rng
        self.nudge = Signal()
        self._connected = False
        self.cache = Cache()
        self.replica_state = self._new_state(rng)
        self.core: Core = self.replica_state
        # A run restores the store within seconds, before a replica has read it again: honest publishers are accused.
        lying = bool(world.plan.liars)
        times = QuarantineTimes(QUARANTINE if lying else 0.0, SPACING, FIRST_QUARANTINE)
        self.replica_state.quarantine.times = times
        self.replica_state.monitor = world.monitor
        self.replica_state.owner = self
        self.handlers = [Handler(plan.queue_limit)]
        self.polled: PublisherTasks | None = None
        world.monitor.started(self)
        if plan.polling:
            uuid = f"{rng.getrandbits(128):032x}"
            self.polled = PublisherTasks(world, self.process, uuid, self._receive_polled)
            self.process.spawn(self._polling(self.polled))
        self.directory = reader_of(self)
        self.process.spawn(self._receiving())
        self.process.spawn(self._following())
        self.process.spawn(self._reading_back(world.kernel.rng(f"{name} waits")))
        for handler in self.handlers:
            self.process.spawn(self._handling(handler))
        if plan.changes_topics:
            self.process.spawn(self._changing_topics())
        if plan.resyncs:
            self.process.spawn(self._resyncing(world.kernel.rng(f"{name} resyncs")))

    @property
    def topics(self) -> Collection[str]:
        """The followed topics."""
        return self.replica_state.tracker.topics

    def _new_state(self, rng: random.Random) -> WatchedReplicaState:
        plan = self.world.plan
        return WatchedReplicaState(plan.timing, plan.limits, rng, self.cache, self.clock.now())

    # -- in ----------------------------------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        """An envelope arrived from the wire."""
        if not self.inbox.put(envelope):
            self.world.count("overflow")

    def connected(self) -> None:
        """The driver has a connection to a service. A polling driver has none."""
        if self.polled is None:
            self._connected = True
            self.nudge.set()

    def _receive_polled(self, envelope: Envelope) -> None:
        if envelope.hello is not None or ALL in self.subscriptions or envelope.topic in self.subscriptions:
            self.receive(envelope)

    def _receiving(self) -> Steps:
        while True:
            yield Await("receive", self.inbox)
            while self.inbox.items:
                envelope = self.inbox.items.popleft()
                self.act(self.core.feed(envelope, self.clock.now()))
                yield Sleep("fed", self.world.slowness(self.name) * self._rng.random())

    def _following(self) -> Steps:
        for topic in self.plan.topics:
            self.subscriptions[topic] = None
        yield Sleep("subscribed", 0.001)
        self.act(self.core.subscribe(self.plan.topics, self.clock.now()))
        while True:
            if self._connected:
                self._connected = False
                self.world.monitor.connected(self, self.clock.now())
                self.replica_state.connected(self.clock.now())
            self.act(self.core.tick(self.clock.now()))
            self.nudge.is_set = False  # next_time() is read again right here
            due = self.clock.true(self.core.next_time())
            yield Await("tick", self.nudge, max(due - self.world.kernel.now, 0.0) + 1e-4)

    def _changing_topics(self) -> Steps:
        while True:
            yield Sleep("change topics", self._rng.uniform(1.0, 6.0))
            if self.world.calm_since <= self.world.kernel.now:
                return
            topic = self._rng.choice(self.world.plan.topics)
            if topic in self.topics:
                if len(self.topics) > 1:
                    self.subscriptions.pop(topic, None)
                    self.world.monitor.dropped(self, topic)
                    self.act(self.replica_state.unsubscribe(topic))
            else:
                self.subscriptions[topic] = None
                yield Sleep("subscribed", 0.001)
                self.act(self.core.subscribe((topic,), self.clock.now()))

    def _resyncing(self, rng: random.Random) -> Steps:
        """Request resyncs of topics, until the faults stop."""
        while True:
            yield Sleep("resync", rng.uniform(2.0, 8.0))
            if self.world.calm_since <= self.world.kernel.now:
                return
            if self.topics:
                topic = rng.choice(list(self.topics))
                self.world.monitor.resync_asked(self, topic)
                self.replica_state.resync((topic,), self.clock.now())
                self.nudge.set()

    # -- out ---------------------------------------------------------------------------------------------------------

    def act(self, outcome: StepResult) -> None:
        """Carry out the result of a step."""
        if outcome.events or outcome.history is not None:
            for handler in self.handlers:
                if outcome.history is not None:
                    handler.notices += 1
                    handler.queue.push(outcome.history.as_event(handler.notices), self.clock.now())
                for number, event in enumerate(outcome.events):
                    handler.queue.push(event, self.clock.now(), by_sync=number < outcome.by_sync)
                handler.signal.set()
        for request in outcome.hello_requests:
            ask = HelloRequest(request.nonce, request.topics)
            self.world.monitor.asked(self, ask, self.clock.now())
            if self.polled is not None:
                self.polled.asked(ask)
            else:
                self.world.network.ask(self, ask)
        if outcome.read_directory and self.directory is not None:
            self.directory.read()
        if outcome.sync is not None:
            self.world.monitor.sync_begun(self, outcome.sync, self.clock.now())
            self.process.spawn(self._sync(outcome.sync))
        self.world.monitor.acted(self, outcome)
        if outcome.then is not None:
            self.act(outcome.then)
        if self.replica_state.tracker.restless or self.replica_state.leased.next_time() < float("inf"):
            self.nudge.set()

    def _read(self, start: StartSync) -> Generator[Sleep | Await, None, SyncAnswer]:
        """The answer to a sync. Raises StoreUnavailable."""
        database = self.world.database
        pages = self._rng.choice((1, 3, 8, 20))
        return (yield from database.pages("sync", lambda: database.store.read_sync(start.wants), pages))

    def _sync(self, start: StartSync) -> Steps:
        trace = self.world.kernel.trace
        trace(self.name, "sync", start.number, dict(start.causes))
        try:
            answer = yield from self._read(start)
        except StoreUnavailable:
            trace(self.name, "sync failed", start.number)
            self.world.monitor.sync_failed(self, start.number)
            self.replica_state.sync_failed(start.number, self.clock.now())
        else:
            in_time = self.world.monitor.sync_answered(self, start, answer)
            syncs = self.replica_state.tracker.syncs
            running = syncs.number if syncs.running else 0
            outcome = self.core.sync_done(start.number, answer, self.clock.now())
            if not in_time:
                self.world.monitor.late_answer(self, running)
            self.act(outcome)
        self.nudge.set()

    def _reading_back(self, rng: random.Random) -> Steps:
        """Wait for a commit from time to time, like a program that reads its own write."""
        while True:
            yield Sleep("read back", rng.uniform(0.2, 2.0))
            if self.world.commits:
                recent = self.world.commits[-12:]
                yield from self._wait_for(recent[int(len(recent) * rng.random() ** 0.5)])

    def _wait_for(self, commit: Commit) -> Steps:
        database, monitor = self.world.database, self.world.monitor
        wait = Awaited(commit.point, self.clock.now())
        shown_since = self.world.kernel.now
        for _ in range(40):
            topics = self.replica_state.tracker.topics
            chains = [ALL] if ALL in topics else [link.topic for link in commit.links if link.topic in topics]
            if not chains:
                return
            found = wait.look(self.replica_state.tracker, chains)
            if found is True:
                monitor.waits.read_back(self, commit.point, chains)
                return
            shown_since = monitor.waits.looked(self, commit.point, chains, shown_since)
            if isinstance(found, HistoryQuery):
                query, asked = found, self.world.kernel.now
                try:
                    held = yield from database.query(
                        "place",
                        lambda: database.store.holds(query.chain, query.points),  # noqa: B023 - called at once
                    )
                    wait.answered(query, held)
                except StoreUnavailable:
                    wait.forget(query)
                except HistoryChanged:
                    monitor.waits.called_lost(self, commit.point, query.chain, asked)
                    return
                except OutcomeUnknown:
                    monitor.waits.called_unknown(self, commit.point)
                    return
            yield Sleep("waiting for a commit", 0.1)

    def _handling(self, handler: Handler) -> Steps:
        queue, clock = handler.queue, self.clock
        while True:
            event = queue.next(clock.now())
            if event is None:
                due = queue.next_time()
                wait = math.inf if due is None else max(clock.true(due) - self.world.kernel.now, 0.0) + 1e-6
                yield Await("handler idle", handler.signal, wait)
                continue
            yield Sleep("handling", self.world.slowness(self.name) * 2 * self._rng.random())
            if self.world.handler_fails():
                if queue.failed(clock.now(), RuntimeError("a simulated handler raised")) and is_barrier(event):
                    self.world.monitor.handled(self, handler, event)  # parked: later events come all the same
                continue
            self.world.monitor.handled(self, handler, event)
            queue.done(clock.now())

    def _polling(self, source: PublisherTasks) -> Steps:
        """The polling driver: follow the changelog, less often while it does not grow."""
        database = self.world.database
        after: Point | None = None
        interval = POLL_QUICK
        while True:
            yield Sleep("poll", interval)
            try:
                if after is None:
                    heads = yield from database.query("head", lambda: database.store.read_heads(()))
                    after = heads.store
                    continue
                known = after
                links, head, complete = yield from database.query(
                    "links",
                    lambda: database.store.read_links(known, MAX_POLLED),  # noqa: B023 - called at once
                )
            except StoreUnavailable:
                continue
            after = links[-1].point if complete and links else head
            interval = POLL_QUICK if links else min(interval * 1.5, POLL_SLOW)
            if links:
                source.out(source.publishing.publish(links, self.clock.now()))
