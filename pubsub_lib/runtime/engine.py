"""The threads of a replica around its sans-I/O :class:`~pubsub_lib.core.follower.Follower`.

Three threads, one lock:

- the driver's receiving thread brings envelopes (step 6 of the data path) and applies them (7 and 8);
- the *clock* thread ticks when the follower's next deadline comes, and asks for hellos;
- the *sync* thread reads from the store, so that nothing else waits for the database.

Events go to the handlers' own threads (step 9) while the lock is held, which only enqueues and keeps their order.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pubsub_lib.api import Subscriber
from pubsub_lib.core.actions import RequestHello, StartSync
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.events import Event
from pubsub_lib.core.follower import Follower, Outcome
from pubsub_lib.core.model import Full, Point, SyncAnswer, Want
from pubsub_lib.errors import PubSubError, StoreError, TransportError
from pubsub_lib.failpoints import hit
from pubsub_lib.runtime.discovery import Discovery
from pubsub_lib.runtime.paranoia import differences
from pubsub_lib.settings import Settings

_log = logging.getLogger(__name__)

MOST_SLEEP = 3600.0
"""Seconds; a wait without a deadline still looks up once in a while."""


class SyncReader(Protocol):
    """What a replica needs of a store."""

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """Answer these in one consistent reading. Blocks; raises StoreError."""


class Engine:
    """One replica's running machinery. ``lock`` guards follower and cache; hold it around every look at them.

    ``on_events`` is called with the lock held, with events in chain order and whether they are of a first sync; it
    must only enqueue.
    """

    def __init__(
        self,
        settings: Settings,
        reader: SyncReader,
        subscriber: Subscriber,
        cache: Cache,
        on_events: Callable[[Sequence[Event], bool], None],
        rng: random.Random,
        discovery: Discovery | None = None,
    ) -> None:
        self._discovery = discovery
        self._reader = reader
        self._subscriber = subscriber
        self._on_events = on_events
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        """Notified after every step that may end somebody's wait."""
        self.follower = Follower(settings.timing, settings.limits, rng, cache, time.monotonic())
        self.last_error: PubSubError | None = None
        """The last sync's failure; None after a success."""
        self.failure: PubSubError | None = None
        """Why the replica must not be trusted any more (a paranoid check failed)."""
        self._paranoid = settings.paranoid
        self._wake = threading.Event()
        self._restless = False
        self._job: StartSync | None = None
        self._job_ready = threading.Condition()
        self._closing = False
        self._threads: list[threading.Thread] = []

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, topics: Sequence[str]) -> None:
        """Start the threads and follow these topics. Raises TransportError when the driver cannot start."""
        self._subscriber.initialize(self._on_envelope)
        for topic in topics:
            self._subscriber.register_topic(topic)
        self._subscriber.daemonize()
        if self._discovery is not None:
            self._discovery.start()
        for name, run in (("clock", self._run_clock), ("sync", self._run_syncs)):
            thread = threading.Thread(target=run, name=f"pubsub-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        with self.lock:
            outcome = self.follower.follow(topics, time.monotonic())
        self._carry_out(outcome)
        self._wake.set()

    def close(self, timeout: float) -> None:
        """Stop. Any thread, also one of this engine's own; a sync that runs is not waited for longer than told."""
        with self.lock:
            self._closing = True
            self.changed.notify_all()
        self._wake.set()
        with self._job_ready:
            self._job_ready.notify_all()
        until = time.monotonic() + timeout
        if self._discovery is not None:
            self._discovery.close(0.0)  # it may be reading: the thread ends by itself, and finds a closed subscriber
        self._subscriber.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))

    @property
    def closing(self) -> bool:
        """True once ``close`` was called."""
        return self._closing

    def follow(self, topics: Sequence[str]) -> None:
        """Follow more topics."""
        for topic in topics:
            self._subscriber.register_topic(topic)
        with self.lock:
            outcome = self.follower.follow(topics, time.monotonic())
        self._carry_out(outcome)
        self._wake.set()

    def unfollow(self, topic: str) -> None:
        """Drop a topic."""
        with self.lock:
            outcome = self.follower.unfollow(topic)
            self._tell(outcome)
        self._subscriber.unregister_topic(topic)

    # -- the receiving thread -------------------------------------------------------------------------------------

    def _on_envelope(self, envelope: Envelope) -> None:
        with self.lock:
            if self._closing:
                return
            outcome = self.follower.feed(envelope, time.monotonic())
            self._tell(outcome)
            restless = self.follower.tracker.restless
            wake = restless and not self._restless
            self._restless = restless
        if wake:
            self._wake.set()

    # -- the clock thread -----------------------------------------------------------------------------------------

    def _run_clock(self) -> None:
        while True:
            with self.lock:
                if self._closing:
                    return
                now = time.monotonic()
                outcome = self.follower.tick(now)
                self._tell(outcome)
                tracker = self.follower.tracker
                self._restless = tracker.restless
                wait = tracker.next_time() - now
            self._carry_out(outcome)
            self._wake.wait(min(max(wait, 0.0), MOST_SLEEP))
            self._wake.clear()

    def _carry_out(self, outcome: Outcome) -> None:
        """Do what a step asks for; without the lock, because drivers have locks of their own."""
        for question in outcome.questions:
            self._ask(question)
        if outcome.sync is not None:
            with self._job_ready:
                self._job = outcome.sync
                self._job_ready.notify_all()

    def _ask(self, question: RequestHello) -> None:
        try:
            self._subscriber.request_hello(question.nonce, question.topics)
        except TransportError as error:
            # Silence has its own cure: without a proof of freshness the replica polls the store.
            if not self._closing:
                _log.warning("cannot ask the publishers how fresh they are: %s", error)

    # -- the sync thread ------------------------------------------------------------------------------------------

    def _run_syncs(self) -> None:
        while True:
            job = self._next_job()
            if job is None:
                return
            try:
                answer = self._read(job)
            except Exception as error:  # noqa: BLE001 - whatever happens, this thread lives: it is the cure for everything else
                self._sync_failed(job, error)
                continue
            with self.lock:
                first = not self.follower.tracker.synced
                outcome = self.follower.sync_done(job.number, answer, time.monotonic())
                self.last_error = None
                self._tell(outcome, first=first)
            self._carry_out(outcome)
            self._wake.set()
            if self._paranoid:
                self._compare(tuple(job.wants))

    def _next_job(self) -> StartSync | None:
        with self._job_ready:
            while self._job is None and not self._closing:
                self._job_ready.wait()
            job, self._job = self._job, None
        return None if self._closing else job

    def _read(self, job: StartSync) -> SyncAnswer:
        kinds = {want.after is None for want in job.wants.values()}
        for full in kinds:
            hit("sync.during_snapshot" if full else "sync.during_delta")
        return self._reader.read_sync(job.wants)

    def _sync_failed(self, job: StartSync, error: Exception) -> None:
        foreign = not isinstance(error, PubSubError)
        with self.lock:
            repeated = self.last_error is not None and str(self.last_error) == str(error)
            self.last_error = error if isinstance(error, PubSubError) else PubSubError(f"a sync broke: {error!r}")
            self.follower.sync_failed(job.number, time.monotonic())
            self.changed.notify_all()
        self._wake.set()
        if foreign:
            _log.error("a sync broke and will be tried again; please report this", exc_info=error)
        elif not repeated and not self._closing:
            _log.warning("a sync failed and will be tried again: %s", error)

    def _compare(self, chains: Sequence[str]) -> None:
        """Paranoid mode: what was just synced must equal the store, object by object, unless it moved since."""
        try:
            answer = self._reader.read_sync({name: Want() for name in chains})
        except StoreError:
            return  # nothing to compare with; the next sync will tell of it
        with self.lock:
            for name, part in answer.chains.items():
                if isinstance(part, Full) and self._stands_at(name, part.head):
                    found = differences(self.follower.cache, name, part)
                    if found:
                        self.failure = PubSubError(f"after a sync the replica differs from the store: {found[0]}")
                        self.changed.notify_all()

    def _stands_at(self, name: str, head: Point) -> bool:
        tracker = self.follower.tracker
        return name in tracker.topics and tracker.chain(name).known == head and not tracker.chain(name).frozen

    # -- all threads ----------------------------------------------------------------------------------------------

    def _tell(self, outcome: Outcome, *, first: bool = False) -> None:
        if outcome.events:
            self._on_events(outcome.events, first)
        self.changed.notify_all()

