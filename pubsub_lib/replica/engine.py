"""The threads of a replica around :class:`~pubsub_lib.core.replica_state.ReplicaState`, which has no I/O.

Three threads, one lock:

- the driver's receiving thread receives envelopes (step 6 of the data path) and applies them (7 and 8);
- the *clock* thread runs at the replica state's next deadline, and sends hello requests;
- the *sync* thread reads from the store, so that no other thread waits for the database.

Events are passed to the handlers' threads (step 9) under the lock, to keep their order. This only enqueues them.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from pubsub_lib.api import Subscriber
from pubsub_lib.closing import close_all
from pubsub_lib.core.cache import Cache, Read
from pubsub_lib.core.effects import RequestHello, StartSync
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.index import Extract
from pubsub_lib.core.interest import Interest
from pubsub_lib.core.leased_publishers import NEVER_DUE
from pubsub_lib.core.objects import Object
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.tracker_counters import Counters
from pubsub_lib.errors import PubSubError, WaitTimeout
from pubsub_lib.replica.consistency_check import found_differences, read_whole
from pubsub_lib.replica.core import Core
from pubsub_lib.replica.discovery import Discovery
from pubsub_lib.replica.fault_log import FaultLog, log_failed_sync, log_step, report_rot
from pubsub_lib.replica.handlers import Handlers
from pubsub_lib.replica.hello_requests import send_hello_request
from pubsub_lib.replica.journaling import ReplicaJournal
from pubsub_lib.replica.scheduling import Scheduler
from pubsub_lib.replica.sync_failures import SyncFailures
from pubsub_lib.replica.sync_reader import SyncReader, interrupt, read_all
from pubsub_lib.settings import Settings
from pubsub_lib.sync.client import Busy

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Engine:
    """The state of one replica, and the threads that change it.

    The engine owns the replica's lock: its own methods take it, and no other module does. Others reach state and cache
    only in a function that they give to ``read`` or ``wait``. Handlers and watchers are notified with it; they enqueue.
    """

    def __init__(
        self,
        settings: Settings,
        cache: Cache,
        reader: SyncReader,
        subscriber: Subscriber,
        handlers: Handlers,
        scheduler: Scheduler,
        rng: random.Random,
        discovery: Discovery | None = None,
        journal: ReplicaJournal | None = None,
    ) -> None:
        self.now = scheduler.now
        """The clock, in seconds, for all state."""
        self.failure: PubSubError | None = None
        """The failure of the consistency check (option ``paranoid``). Only the engine sets it."""
        self._discovery = discovery
        self._reader = reader
        self._subscriber = subscriber
        self._handlers = handlers
        self._lock = threading.RLock()
        """Guards state and cache."""
        self._changed = scheduler.condition(self._lock)
        """Notified after every step that may end a thread's wait."""
        self._watchers: tuple[Callable[[], None], ...] = ()
        """Called at the same times. Replaced, never changed."""
        self._state, self._core = self._make_state(settings, rng, cache)
        self.sync_failures = SyncFailures(self._state.tracker.syncs)
        self._state.tracker.freshness.poll_delay = settings.timing.parent_wait if settings.parents else 0.0
        self._state.contradictions.has_parents = bool(settings.parents)
        self._state.listens = handlers.listening
        self._state.witness = self._journal = journal
        self._faults, self._paranoid = FaultLog(), settings.paranoid
        self._closing, self._restless = False, 0.0
        self._job: StartSync | None = None
        self._topics_lock = threading.Lock()
        """Guards the driver's topics, the replica state's topics *and* their users, which must stay consistent."""
        self._interest = Interest()
        self.clock = scheduler.loop("clock", self._tick, self._tick_due)
        self._syncs = scheduler.loop("sync", self._sync, self._sync_due)

    def _make_state(self, settings: Settings, rng: random.Random, cache: Cache) -> tuple[ReplicaState, Core]:
        return (state := ReplicaState(settings.timing, settings.limits, rng, cache, self.now())), state

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, topics: Sequence[str]) -> None:
        """Start the threads and subscribe to these topics. Raises TransportError when the driver cannot start."""
        self._subscriber.initialize(self.on_envelope, self._on_connected)
        if self._journal is not None:
            self._journal.following(topics)  # before the first message can come
        for topic in topics:
            self._subscriber.register_topic(topic)
        self._subscriber.daemonize()
        if self._discovery is not None:
            self._discovery.start(self.on_directory)
        self.clock.start()
        self._syncs.start()
        with self._topics_lock:
            self._begin_to_subscribe(topics)
            self._interest.add(topics)

    def close(self, until: float) -> None:
        """Stop, by ``until`` (time.monotonic) at the latest. Any thread, also its own; idempotent, also unstarted."""
        with self._lock:
            self._closing = True
            self._announce()
        close_all(
            partial(interrupt, self._reader),
            None if self._discovery is None else partial(self._discovery.close, 0.0),  # a running reading ends later
            self._subscriber.close,
            lambda: self.clock.close(until - time.monotonic()),
            lambda: self._syncs.close(until - time.monotonic()),
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        """Add a user to these topics, and subscribe to the new ones. Raises NotSubscribedError without any change."""
        with self._topics_lock:
            with self._lock:
                self._state.check_subscribe(topics)
            fresh = self._interest.without_users(topics)
            if fresh:
                if self._journal is not None:
                    self._journal.following(fresh)
                for topic in fresh:
                    self._subscriber.register_topic(topic)
                self._begin_to_subscribe(fresh)
            self._interest.add(topics)

    def unsubscribe(self, topic: str) -> bool:
        """Remove a user of a topic. True: it was the last one, and the topic is dropped. Raises NotSubscribedError."""
        with self._topics_lock:
            if self._interest.leave(topic):
                return False
            with self._lock:
                outcome = self._state.unsubscribe(topic)
                if self._journal is not None:
                    self._journal.dropping(topic)
                self._notify_handlers(outcome)
            self._subscriber.unregister_topic(topic)
            return True

    def resync(self, topics: Sequence[str]) -> None:
        """Read chains again (none named: all that are subscribed to). Raises NotSubscribedError."""
        with self._lock:
            self._state.resync(topics or tuple(self._state.tracker.topics), self.now())
        self.clock.wake()

    def _begin_to_subscribe(self, topics: Sequence[str]) -> None:
        with self._lock:
            outcome = self._core.subscribe(topics, self.now())
        self._carry_out(outcome)
        self.clock.wake()

    # -- for other threads ---------------------------------------------------------------------------------------

    def read(self, look: Callable[[ReplicaState, *Ts], T], *args: *Ts) -> T:
        """Call ``look`` with the state and these arguments, with the lock held; it must be quick. Any thread."""
        with self._lock:
            return look(self._state, *args)

    def shown(self, table: str, key: str, decode: Read) -> Object[Any] | None:
        """One visible object: the most frequent ``read``, without its further call."""
        with self._lock:
            return self._state.cache.shown(table, key, decode)

    def call_if_free(self, fn: Callable[[], T]) -> tuple[T] | None:
        """Call ``fn``, whose own reads then do not block, and return (its result,). None, without a call: another
        thread holds the lock now.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return (fn(),)
        finally:
            self._lock.release()

    def wait(self, done: Callable[[ReplicaState], bool], until: float | None, what: str) -> None:
        """Block until ``done``, which is called as by ``read``, after each step. Raises WaitTimeout after ``until``
        (None: never), which names ``what``; and every exception of ``done``.
        """
        with self._lock:
            while not done(self._state):
                left = None if until is None else until - self.now()
                if left is not None and left <= 0:
                    raise WaitTimeout(f"timed out waiting for {what}{self.sync_failures.why()}")
                self._changed.wait(left)

    def pause(self, seconds: float) -> None:
        """Block for ``seconds``, or until the replica is closed."""
        until = self.now() + seconds
        with self._lock:
            while not self._closing and (left := until - self.now()) > 0.0:
                self._changed.wait(left)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher``, which must be quick, after every step that may end a wait. Before ``start``."""
        self._watchers = (*self._watchers, watcher)

    def counters(self) -> Counters:
        """The tracker's counters, which go on counting. Without the lock: each is one number."""
        return self._state.tracker.counters

    def add_index(self, name: str, table: str, by: Extract) -> None:
        """See :meth:`.Replica.add_index`."""
        with self._lock:
            self._state.cache.add_index(name, table, by)
        self._report_indexes()

    def on_envelope(self, envelope: Envelope) -> None:
        """A message arrived. The driver's receiving thread; waits for the replica's lock."""
        with self._lock:
            if self._closing:
                return
            leased, read_at = self._state.leased, self._state.leased.read_at
            outcome = self._core.feed(envelope, self.now())
            self._notify_handlers(outcome)
            restless = self._state.tracker.restless + (leased.read_at != NEVER_DUE)
            # These may be due before the clock thread's next deadline: a hello request, the end of a wait, a reading.
            wake = restless and (envelope.hello is not None or restless > self._restless or leased.read_at < read_at)
            self._restless = restless
        if wake:
            self.clock.wake()

    def _on_connected(self) -> None:
        with self._lock:
            self._state.connected(self.now())
        self.clock.wake()

    def on_directory(self, uuids: Sequence[str]) -> None:
        """The directory was read: the publishers with a live lease. Any thread; waits for the replica's lock."""
        with self._lock:
            for outcome in () if self._closing else self._core.directory_read(uuids, self.now()):
                self._notify_handlers(outcome)
        self.clock.wake()

    # -- the clock thread -----------------------------------------------------------------------------------------

    def _tick_due(self) -> float:
        with self._lock:
            return self._core.next_time()

    def _tick(self, now: float) -> float:
        with self._lock:
            outcome = self._core.tick(now)
            failed = self.sync_failures.found()
            self._notify_handlers(outcome)
            self._restless = self._state.tracker.restless
            again = self._core.next_time()
        self._carry_out(outcome)
        log_failed_sync(None, failed, logged=self._closing)
        report_rot(outcome.rotted, self._journal)
        self._report_indexes()
        return again

    def _carry_out(self, outcome: StepResult) -> None:
        """Send the hello requests of a step and start its sync. Without the lock, because drivers have their own."""
        for request in outcome.hello_requests:
            self.request_hello(request)
        if outcome.read_directory and self._discovery is not None:
            self._discovery.wake()
        if outcome.sync is not None:
            with self._lock:
                self._job = outcome.sync
                if self._journal is not None:
                    self._journal.sync_begins(outcome.sync)
            self._syncs.wake()

    def request_hello(self, request: RequestHello) -> None:
        """Send a hello request. Any thread, without the lock."""
        if self._journal is not None:
            self._journal.asking(request)
        send_hello_request(self._subscriber, request, lambda: self._closing)

    # -- the sync thread ------------------------------------------------------------------------------------------

    def _sync_due(self) -> float:
        return NEVER_DUE if self._job is None else -NEVER_DUE

    def _sync(self, now: float) -> float:
        with self._lock:
            job, self._job = self._job, None
        if job is None or self._closing:
            return NEVER_DUE
        try:
            answer = read_all(self._reader, job)
        except Exception as error:  # noqa: BLE001 - after any error the tracker must be notified, so that it retries
            self._sync_failed(job, error)
            return self.now()
        with self._lock:
            first = not self._state.tracker.synced
            outcome = self._core.sync_done(job.number, answer, self.now())
            failed = self.sync_failures.answered()
            mismatching = frozenset(self._state.tracker.mismatching)
            self._notify_handlers(outcome, first=first)
        self._carry_out(outcome)
        self.clock.wake()
        self._faults.log_mismatching(mismatching)
        log_failed_sync(job, failed, logged=self._closing)
        self._report_indexes()
        if self._paranoid:
            self._compare(tuple(job.wants))
        return self.now()

    def _report_indexes(self) -> None:
        """Log which indexes leave objects out: one line for each index, until that index is complete again."""
        if indexes := self._state.cache.indexes():
            with self._lock:
                fresh = self._faults.new_incomplete(indexes)
            self._faults.log_incomplete(fresh)

    def _sync_failed(self, job: StartSync, error: Exception) -> None:
        with self._lock:
            repeated = self.sync_failures.raised(error)
            self._core.sync_failed(job.number, self.now(), error.seconds if isinstance(error, Busy) else None)
            if self._journal is not None:
                self._journal.sync_failed(job, type(error).__name__)
        self.clock.wake()
        log_failed_sync(job, error, logged=repeated or self._closing)

    def _compare(self, chains: Sequence[str]) -> None:
        """Option ``paranoid``: the synced topics must equal the store, object by object, unless they changed since."""
        answer = read_whole(self._reader, chains)
        with self._lock:
            for difference in () if answer is None else found_differences(self._state, answer):
                self.failure = PubSubError(f"after a sync the replica differs from the store: {difference}")
                self._announce()

    # -- all threads ----------------------------------------------------------------------------------------------

    def _notify_handlers(self, outcome: StepResult, *, first: bool = False) -> None:
        self._announce()  # with the lock held, so that no waiting thread sees a state without the events below
        if outcome.history is not None:
            if self._journal is not None:
                self._journal.history_changed(outcome.history)
            self._handlers.push_history(outcome.history)
        if outcome.events:
            self._handlers.push(outcome.events, initial=first, by_sync=outcome.by_sync)
        if outcome.history is not None or outcome.foreign is not None or outcome.quarantined:
            log_step(outcome, self._journal)  # last: handlers do not wait for a line
        if outcome.then is not None:
            self._notify_handlers(outcome.then, first=first)

    def _announce(self) -> None:
        """Notify the waiting threads after a step that may end their wait. With the lock held."""
        self._changed.notify_all()
        for watcher in self._watchers:
            watcher()
