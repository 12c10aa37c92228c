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
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pubsub_lib.api import Subscriber
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.effects import RequestHello, StartSync
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.interest import Interest
from pubsub_lib.core.model import ALL, Full, Point, SyncAnswer, Want
from pubsub_lib.core.replica_state import ReplicaState, StepResult
from pubsub_lib.core.topic_objects import Rot
from pubsub_lib.errors import PubSubError, StoreError, TransportError
from pubsub_lib.failpoints import hit
from pubsub_lib.logs import fields, logger
from pubsub_lib.replica.consistency_check import differences
from pubsub_lib.replica.discovery import Discovery
from pubsub_lib.replica.history_log import log_history_change
from pubsub_lib.replica.journaling import ReplicaJournal
from pubsub_lib.replica.status import unfit
from pubsub_lib.settings import Settings
from pubsub_lib.threads.periodic_thread import PeriodicThread

_log = logger(__name__)

NEVER_DUE = float("inf")


class SyncReader(Protocol):
    """The method of a store that a replica needs."""

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """Answer all wants in one consistent reading. Blocks; raises StoreError."""


class Engine:
    """The threads and the state of one replica. ``lock`` guards state and cache; hold it for every access to them.

    ``on_events`` is called with the lock held. Its arguments are a result that has events or a changed history, and
    whether they are of a first sync. It must only enqueue.
    """

    def __init__(
        self,
        settings: Settings,
        reader: SyncReader,
        subscriber: Subscriber,
        cache: Cache,
        on_events: Callable[[StepResult, bool], None],
        rng: random.Random,
        discovery: Discovery | None = None,
        now: Callable[[], float] = time.monotonic,
        journal: ReplicaJournal | None = None,
    ) -> None:
        self.now = now
        """The clock, in seconds, for all state; the threads themselves wait by ``time.monotonic``."""
        self._discovery = discovery
        self._reader = reader
        self._subscriber = subscriber
        self._on_events = on_events
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        """Notified after every step that may end a thread's wait."""
        self.watchers: tuple[Callable[[], None], ...] = ()
        """Called at the same times, with the lock held, so they must be quick. Replaced, never changed."""
        self.state = ReplicaState(settings.timing, settings.limits, rng, cache, self.now())
        self.state.witness = self._journal = journal
        self.last_error: PubSubError | None = None
        """The last sync's failure; None after a success."""
        self.failure: PubSubError | None = None
        """The failure of the consistency check (option ``paranoid``)."""
        self._incomplete: frozenset[str] = frozenset()
        """Indexes that were logged because they leave objects out."""
        self._mismatching: frozenset[str] = frozenset()
        """Topics that were logged because their objects do not match their digest."""
        self._paranoid = settings.paranoid
        self._restless = False
        self._job: StartSync | None = None
        self._closing = False
        self._topics_lock = threading.Lock()
        """Guards the driver's topics, the replica state's topics *and* their users, which must stay consistent."""
        self._interest = Interest()
        self._clock = PeriodicThread("clock", self._tick)
        self._syncs = PeriodicThread("sync", self._sync)

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, topics: Sequence[str]) -> None:
        """Start the threads and subscribe to these topics. Raises TransportError when the driver cannot start."""
        self._subscriber.initialize(self._on_envelope, self._on_connected)
        if self._journal is not None:
            self._journal.following(topics)  # before the first message can come
        for topic in topics:
            self._subscriber.register_topic(topic)
        self._subscriber.daemonize()
        if self._discovery is not None:
            self._discovery.start()
        self._start_threads()
        with self._topics_lock:
            self._begin_to_subscribe(topics)
            self._interest.add(topics)

    def close(self, until: float) -> None:
        """Stop, by ``until`` (of time.monotonic) at the latest. Any thread, also one of this engine's own. Idempotent,
        and allowed before ``start``.
        """
        with self.lock:
            self._closing = True
            self._announce()
        if self._discovery is not None:
            self._discovery.close(0.0)  # does not wait: a thread that reads now ends later, without effect
        self._subscriber.close()
        self._clock.close(until - time.monotonic())
        self._syncs.close(until - time.monotonic())

    def subscribe(self, topics: Sequence[str]) -> None:
        """Add a user to these topics, and subscribe to the new ones. Raises NotSubscribedError without any change."""
        with self._topics_lock:
            with self.lock:
                self.state.check_subscribe(topics)
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
            with self.lock:
                outcome = self.state.unsubscribe(topic)
                if self._journal is not None:
                    self._journal.dropping(topic)
                self._notify_handlers(outcome)
            self._subscriber.unregister_topic(topic)
            return True

    def _start_threads(self) -> None:
        self._clock.start()
        self._syncs.start()

    def resync(self, topics: Sequence[str]) -> None:
        """Read chains again (none named: all that are subscribed to). Raises NotSubscribedError."""
        with self.lock:
            self.state.resync(topics or tuple(self.state.tracker.topics), self.now())
        self._clock.wake()

    def _begin_to_subscribe(self, topics: Sequence[str]) -> None:
        with self.lock:
            outcome = self.state.subscribe(topics, self.now())
        self._carry_out(outcome)
        self._clock.wake()

    # -- the receiving thread -------------------------------------------------------------------------------------

    def _on_envelope(self, envelope: Envelope) -> None:
        with self.lock:
            if self._closing:
                return
            outcome = self.state.feed(envelope, self.now())
            self._notify_handlers(outcome)
            restless = self.state.tracker.restless
            # A hello may end a wait, or cause a hello request, before the clock thread's next deadline.
            wake = restless and (envelope.hello is not None or not self._restless)
            self._restless = restless
        if wake:
            self._clock.wake()

    def _on_connected(self) -> None:
        with self.lock:
            self.state.connected(self.now())
        self._clock.wake()

    # -- the clock thread -----------------------------------------------------------------------------------------

    def _tick(self, now: float) -> float:
        with self.lock:
            outcome = self.state.tick(now)
            self._notify_handlers(outcome)
            tracker = self.state.tracker
            self._restless = tracker.restless
            again = self.state.next_time()
        self._carry_out(outcome)
        self._log_rot(outcome.rotted)
        self.report_indexes()
        return again

    def _carry_out(self, outcome: StepResult) -> None:
        """Send the hello requests of a step and start its sync. Without the lock, because drivers have their own."""
        for request in outcome.hello_requests:
            self._request_hello(request)
        if outcome.sync is not None:
            with self.lock:
                self._job = outcome.sync
                if self._journal is not None:
                    self._journal.sync_begins(outcome.sync)
            self._syncs.wake()

    def _request_hello(self, request: RequestHello) -> None:
        if self._journal is not None:
            self._journal.asking(request)
        try:
            self._subscriber.request_hello(request.nonce, request.topics)
        # No retry: without a proof of freshness the replica polls the store.
        except TransportError as error:
            if not self._closing:
                _log.warning(
                    "cannot send hello requests to the publishers: %s", error, extra=fields(topics=len(request.topics))
                )
        except Exception:  # noqa: BLE001 - a driver's bug must not prevent the sync that follows
            _log.exception("internal error of the driver while sending hello requests; please report this")

    # -- the sync thread ------------------------------------------------------------------------------------------

    def _sync(self, now: float) -> float:
        with self.lock:
            job, self._job = self._job, None
        if job is None or self._closing:
            return NEVER_DUE
        try:
            answer = self._read(job)
        except Exception as error:  # noqa: BLE001 - after any error the tracker must be notified, so that it retries
            self._sync_failed(job, error)
            return self.now()
        with self.lock:
            first = not self.state.tracker.synced
            outcome = self.state.sync_done(job.number, answer, self.now())
            self.last_error = None
            mismatching = frozenset(self.state.tracker.mismatching)
            self._notify_handlers(outcome, first=first)
        self._carry_out(outcome)
        self._clock.wake()
        self._log_mismatching(mismatching)
        self.report_indexes()
        if self._paranoid:
            self._compare(tuple(job.wants))
        return self.now()

    def _read(self, job: StartSync) -> SyncAnswer:
        kinds = {want.after is None for want in job.wants.values()}
        for full in kinds:
            hit("sync.during_snapshot" if full else "sync.during_delta")
        answer = self._reader.read_sync(job.wants)
        missing = job.wants.keys() - answer.chains.keys()
        if missing:
            raise StoreError(f"the store's answer lacks {sorted(missing)[:5]}; it must contain all requested topics")
        return answer

    def _log_mismatching(self, mismatching: frozenset[str]) -> None:
        """Log each topic once. The number of its further reads is in the metrics."""
        for topic in sorted(mismatching - self._mismatching):
            _log.error("%s", unfit(topic), extra=fields(topic=topic))
        self._mismatching = mismatching

    def _log_rot(self, rotted: Sequence[Rot]) -> None:
        for rot in rotted:
            if self._journal is not None:
                self._journal.rotted(rot)
            named = ", ".join(f"{table} {key!r}" for table, key in rot.names) or "names unknown"
            _log.error(
                "%d objects of the topic %r were altered or lost in this process's memory (%s) and are read again; if "
                "this happens again, have the host's memory tested",
                rot.objects,
                rot.topic,
                named,
                extra=fields(topic=rot.topic, objects=rot.objects),
            )

    def report_indexes(self) -> None:
        """Log which indexes leave objects out: one line for each index, until that index is complete again."""
        if not self.state.cache.indexes():
            return
        with self.lock:
            failing = {index.name: index.status(1) for index in self.state.cache.indexes() if index.left_out}
            fresh = {name: status for name, status in failing.items() if name not in self._incomplete}
            self._incomplete = frozenset(failing)
        for name, status in fresh.items():
            key, error = next(iter(status.examples.items()))
            _log.error(
                "the index %r leaves out %d objects of the table %r, for example %r (%s); lookup does not find them",
                name,
                status.left_out,
                status.table,
                key,
                error,
                extra=fields(index=name, table=status.table, key=key, objects=status.left_out),
            )

    def _sync_failed(self, job: StartSync, error: Exception) -> None:
        foreign = not isinstance(error, PubSubError)
        with self.lock:
            repeated = self.last_error is not None and str(self.last_error) == str(error)
            self.last_error = error if isinstance(error, PubSubError) else PubSubError(f"internal error: {error!r}")
            self.state.sync_failed(job.number, self.now())
            if self._journal is not None:
                self._journal.sync_failed(job, type(error).__name__)
        self._clock.wake()
        if foreign:
            _log.error(
                "internal error in a sync, which will be retried; please report this",
                exc_info=error,
                extra=fields(topics=len(job.wants), error=type(error).__name__),
            )
        elif not repeated and not self._closing:
            _log.warning(
                "a sync failed and will be retried: %s",
                error,
                extra=fields(topics=len(job.wants), error=type(error).__name__),
            )

    def _compare(self, chains: Sequence[str]) -> None:
        """Option ``paranoid``: the synced topics must equal the store, object by object, unless they changed since."""
        try:
            answer = self._reader.read_sync({name: Want() for name in chains})
        except StoreError:
            return  # the next sync will report the failure
        with self.lock:
            for name, part in answer.chains.items():
                if isinstance(part, Full) and self._is_at(name, part.head):
                    found = differences(self.state.cache, name, part)
                    if found:
                        self.failure = PubSubError(f"after a sync the replica differs from the store: {found[0]}")
                        self._announce()

    def _is_at(self, name: str, head: Point) -> bool:
        tracker = self.state.tracker
        return name in tracker.topics and tracker.chain(name).known == head and not tracker.chain(name).frozen

    def list_objects(self, journal: ReplicaJournal) -> None:
        """Write all objects of every topic to the journal, so that an audit can compare them with the store."""
        with self.lock:
            tracker, cache = self.state.tracker, self.state.cache
            for name in tracker.topics:
                known = tracker.chain(name).known
                if known is not None and not tracker.chain(name).frozen:
                    for topic in cache.topics() if name == ALL else [name]:
                        records = cache.topic_records(topic)
                        # For a topic without any commit the store has no list to compare with.
                        if records or known.position:
                            journal.listing(topic, known, records)

    # -- all threads ----------------------------------------------------------------------------------------------

    def _notify_handlers(self, outcome: StepResult, *, first: bool = False) -> None:
        if outcome.history is not None:
            log_history_change(outcome.history)
        if outcome.events or outcome.history is not None:
            self._on_events(outcome, first)
        if outcome.then is not None:
            self._notify_handlers(outcome.then, first=first)
        self._announce()

    def _announce(self) -> None:
        """Notify the waiting threads after a step that may end their wait. With the lock held."""
        self.changed.notify_all()
        for watcher in self.watchers:
            watcher()
