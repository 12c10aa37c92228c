"""The replica: a local copy of chosen topics of the database, which receives every change and knows its staleness."""

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

import msgspec

from pubsub_lib.api import Subscriber
from pubsub_lib.arguments import check_kind, check_timeout
from pubsub_lib.closing import close_all
from pubsub_lib.constructor_checks import check_settings, check_store
from pubsub_lib.core.events import Decode, Event, decoded, decoder_of, plain
from pubsub_lib.core.handler_queue import selector
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.index import Extract
from pubsub_lib.core.limits import check_key, check_name
from pubsub_lib.core.model import ALL, DEFAULT_TOPIC
from pubsub_lib.core.objects import Object
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.table import Declared, Table, TableTypes
from pubsub_lib.errors import (
    ClosedError,
    ConfigError,
    InvalidValueError,
    NotStarted,
    NotSubscribedError,
    PubSubError,
    UsageError,
)
from pubsub_lib.replica import inspection_routes
from pubsub_lib.replica.discovery import Discovery, discovery_of
from pubsub_lib.replica.engine import Engine
from pubsub_lib.replica.handlers import Handle, Handlers
from pubsub_lib.replica.inspection_routes import Contents
from pubsub_lib.replica.journaling import journal_of
from pubsub_lib.replica.measured_cache import applied_latencies, cache_of
from pubsub_lib.replica.parent_subscriber import unheard
from pubsub_lib.replica.readback import Committed, Readback, check_position, pause_after
from pubsub_lib.replica.receiving_half import receiving_half
from pubsub_lib.replica.scheduling import Scheduler, Threads
from pubsub_lib.replica.sources import Sources
from pubsub_lib.replica.status import ParkedObject, Status, chain_status, parked_objects, problems, rejected
from pubsub_lib.replica.sync_reader import SyncReader
from pubsub_lib.replica.unreadable import Unreadable
from pubsub_lib.settings import Settings

if TYPE_CHECKING:
    from pubsub_lib.http_endpoint import Endpoint

NOT_STARTED = "this replica was not started, so it is still empty; call start() first, or use it in a with statement"
NOT_SUBSCRIBED = "no topic is subscribed to any more, so there is nothing to wait for; call subscribe()"

T = TypeVar("T")
Order = Sequence[str | Table[Any]]
"""Several tables, by names or handles."""
OnError = Literal["raise", "skip"]
"""How ``iterate`` treats an object that cannot be decoded."""
MAX_EXAMPLES: Final = 5
"""Maximum number of left-out objects that ``status()`` names for each index."""

CLOSE_TIMEOUT = 5.0
"""Maximum seconds that ``close`` waits for a running sync or handler."""
MAX_CLOSE: Final = CLOSE_TIMEOUT + 2.0 + 1.0
"""Maximum seconds that ``close`` takes: also for the driver, and for the last announcement."""


class Replica:
    """A local copy of ``topics`` (``None``: the settings' topics, or all topics when the settings name none).

    A context manager; ``start`` and ``close`` do the same by hand. All methods may be called from any thread, handlers
    included, and do not block unless they document it. After a fork the replica belongs to the parent: the child makes
    a new one.

    A replica of named topics also subscribes to ``DEFAULT_TOPIC``, because objects without a topic are for all
    replicas; ``default_topic`` False (by default ``settings.default_topic``) leaves it out.
    ``tables`` declares tables and the types (msgspec Structs) of their values, by handles
    (``tables=[Table("lport", Port)]``) or as a mapping of names to types. Values are decoded into these types. Every
    method that takes a table then refuses an undeclared table (InvalidValueError).
    ``store`` and ``subscriber`` replace those of the settings; ``rng`` makes jitter and nonces repeatable.
    Raises ConfigError or DriverError for invalid settings, UsageError for another argument of a wrong type.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[str] | None = None,
        *,
        tables: Declared | None = None,
        default_topic: bool | None = None,
        store: SyncReader | None = None,
        subscriber: Subscriber | None = None,
        rng: random.Random | None = None,
    ) -> None:
        check_settings(settings)
        if store is not None:
            check_store(store, "read_sync")
        if rng is not None:
            check_kind("rng", rng, random.Random, "a random.Random")
        named = _checked_topics(settings.topics or (ALL,) if topics is None else topics)
        self._topics = with_default(named, settings.default_topic if default_topic is None else default_topic)
        self._tables = TableTypes(tables)
        self._decoders: dict[str, Decode] = {name: decoder_of(kind) for name, kind in self._tables.types.items()}
        self._unreadable = Unreadable()
        half = receiving_half(settings, subscriber)
        self._subscriber, self._parents = half.subscriber, half.parents
        self._sources = Sources(settings, store, self._parents)
        self._discovery: Discovery | None = None
        if half.binds and settings.discovery_interval > 0 and self._sources.store is not None:
            self._discovery = discovery_of(settings, self._sources.store.directory.live, self._subscriber)
        self._timing = settings.timing
        self._endpoint = _endpoint(settings, self) if settings.replica_metrics_port else None
        scheduler = self._make_scheduler()
        self._handlers = self._make_handlers(settings, scheduler)
        name = settings.replica_name or socket.gethostname()
        self._journal = journal_of(settings, name, polls=half.polls)
        self._engine = self._make_engine(settings, scheduler, rng if rng is not None else random.SystemRandom())
        if self._parents is not None:
            self._parents.judge_by(lambda now, readable: self._engine.read(unheard, now, readable))
            self._parents.record_by(self._journal)
            if self._parents.reads_channel:
                self._parents.notify_by(self._source_changed)
        self._pid = os.getpid()
        self._state_lock = threading.Lock()
        self._started = False
        self._has_subscribed = False
        """True when ``start`` has subscribed, so that the tracker's topics are the replica's topics."""
        self._closed = False
        self._ended = threading.Event()

    def _source_changed(self) -> None:
        self._engine.read(lambda state: state.tracker.syncs.source_changed(self._engine.now()))
        self._engine.clock.wake()

    def _make_scheduler(self) -> Scheduler:
        return Threads()

    def _make_handlers(self, settings: Settings, scheduler: Scheduler) -> Handlers:
        return Handlers(
            settings.handling, scheduler.now, threaded=scheduler.threaded, condition=scheduler.condition,
            measured=bool(settings.replica_metrics_port),
        )  # fmt: skip

    def _make_engine(self, settings: Settings, scheduler: Scheduler, rng: random.Random) -> Engine:
        return Engine(
            settings, cache_of(self._decoders, measured=bool(settings.replica_metrics_port)), self._sources.reader,
            self._subscriber, self._handlers, scheduler, rng, self._discovery, self._journal,
        )  # fmt: skip

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Subscribe, and sync in the background. Raises TransportError when the driver cannot start, or when the
        configured endpoint for metrics cannot bind its port; ClosedError when the replica is closed meanwhile.
        """
        with self._state_lock:
            self._check()
            if self._started:
                raise UsageError("this replica was started already; make a new one for a second run")
            self._started = True
        try:
            self._engine.start(self._topics)
            self._has_subscribed = True
            if self._endpoint is not None:
                self._endpoint.start()  # last: its answers need a replica that has subscribed
            self._sources.announce(self._engine, self._parents, self._discovery)
            if self._journal is not None:
                self._journal.watch(self._rejected, self._engine)
        except BaseException as error:
            closed = self._closed
            self.close()  # __exit__ is not called when __enter__ raises
            if closed and isinstance(error, PubSubError):  # of a part that another thread has closed
                raise ClosedError("this replica was closed while it started; make a new one") from error
            raise

    def close(self) -> None:
        """Stop every thread and release everything, within ``CLOSE_TIMEOUT``, the driver's 2 s, and 1 s for the last
        announcement. Idempotent (a later call waits for the first), from any thread; called by a handler, it does not
        wait for that handler. A sync or handler call that still runs then ends by itself. Objects cannot be read
        afterwards. An exception (Ctrl-C, or one of a driver) is raised after everything else was released.
        """
        if os.getpid() != self._pid:
            return
        until = time.monotonic() + CLOSE_TIMEOUT
        with self._state_lock:
            first, self._closed = not self._closed, True
        if not first:
            if not self._handlers.in_handler():
                self._ended.wait(MAX_CLOSE)
            return
        endpoint, journal = self._endpoint, self._journal
        close_all(
            None if endpoint is None else endpoint.close,
            partial(self._engine.close, until),
            None if journal is None else partial(self._engine.read, journal.list_objects),
            None if journal is None else journal.close,
            lambda: self._handlers.close(max(0.0, until - time.monotonic())),
            self._sources.close,
            self._ended.set,
        )

    def __enter__(self) -> "Replica":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is None and self._engine.failure is not None:
            raise self._engine.failure

    # -- topics --------------------------------------------------------------------------------------------------

    def subscribe(self, *topics: str) -> None:
        """Add a user to each of these topics, and subscribe to the new ones.

        Users are counted: each call adds one user to each topic that it names; the constructor's ``topics`` have one
        user. A topic stays subscribed until ``unsubscribe`` was called once for each user. Raises InvalidValueError for
        an invalid name, NotSubscribedError when the replica is subscribed to everything already, NotStarted.
        """
        self._check_started()
        self._engine.subscribe(_checked_topics(topics))

    def unsubscribe(self, topic: str) -> bool:
        """Remove one user of a topic. After the last one the topic is dropped: its objects are removed, and handlers
        are called with the deletes; then it returns True, else False. Raises NotSubscribedError, NotStarted.
        """
        self._check_started()
        check_kind("topic", topic, str, "a string")
        return self._engine.unsubscribe(topic)

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscribed topics; ``("",)`` is everything. Raises NotStarted."""
        self._check_started()
        return self._engine.read(lambda state: tuple(state.tracker.topics))

    @property
    def publishers(self) -> tuple[str, ...]:
        """Addresses from the directory, without configured ones; with parents the current one. Raises NotStarted."""
        self._check_started()
        if self._parents is not None:
            return (self._parents.current,)
        return () if self._discovery is None else self._discovery.addresses

    # -- reading -------------------------------------------------------------------------------------------------

    @overload
    def get(self, table: Table[T], key: str) -> T | None: ...
    @overload
    def get(self, table: str, key: str) -> Any: ...
    def get(self, table: str | Table[Any], key: str) -> Any:
        """The value of an object, decoded again at each call, or None. Raises InvalidValueError when the value does not
        fit the table's declared type (``status().unreadable`` then lists the object) and for a table that is not
        declared, NotStarted.
        """
        found = self.record(table, key)
        return None if found is None else found.value

    @overload
    def record(self, table: Table[T], key: str) -> Object[T] | None: ...
    @overload
    def record(self, table: str, key: str) -> Object[Any] | None: ...
    def record(self, table: str | Table[Any], key: str) -> Object[Any] | None:
        """The object with its topic, version and value; or None. Raises InvalidValueError for a table that is not
        declared, NotStarted.
        """
        self._check_started()
        name = self._tables.name(table)
        return self._engine.shown(name, key, self._decode)

    @overload
    def iterate(
        self, table: Table[T], *, topic: str | None = None, on_error: OnError = "raise"
    ) -> Iterator[tuple[str, T]]: ...
    @overload
    def iterate(
        self, table: str, *, topic: str | None = None, on_error: OnError = "raise"
    ) -> Iterator[tuple[str, Any]]: ...
    def iterate(
        self, table: str | Table[Any], *, topic: str | None = None, on_error: OnError = "raise"
    ) -> Iterator[tuple[str, Any]]:
        """(key, value) of all objects of a table, as they are at this moment: later changes are not seen.

        ``on_error``: the treatment of an object whose value does not fit the table's declared type. ``"raise"`` raises
        InvalidValueError and ends the iteration; ``"skip"`` leaves the object out and continues. Both add the object to
        ``status().unreadable``. Raises NotSubscribedError for a topic that is not subscribed to, InvalidValueError for
        a table that is not declared, UsageError, NotStarted.
        """
        if on_error not in ("raise", "skip"):
            raise UsageError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
        return _values(self.records(table, topic=topic), skip=on_error == "skip")

    @overload
    def records(self, table: Table[T], *, topic: str | None = None) -> list[Object[T]]: ...
    @overload
    def records(self, table: str | None = None, *, topic: str | None = None) -> list[Object[Any]]: ...
    def records(self, table: str | Table[Any] | None = None, *, topic: str | None = None) -> list[Object[Any]]:
        """All objects, or those of a table or of a topic, at one moment: each with its topic, version and value.

        Values are decoded when ``value`` is read, so an object that does not fit its table's type raises only then.
        Raises NotSubscribedError for a topic that is not subscribed to, InvalidValueError for a table that is not
        declared, NotStarted.
        """
        self._check_started()
        name = None if table is None else self._tables.name(table)
        return self._engine.read(lambda state: state.cache.objects(name, self._only(state, topic), self._decode))

    @overload
    def add_index(self, name: str, table: Table[T], by: Callable[[T], Any] | str) -> None: ...
    @overload
    def add_index(self, name: str, table: str, by: Extract) -> None: ...
    def add_index(self, name: str, table: str | Table[Any], by: Extract) -> None:
        """Index a table by a field path (``"switch"``, ``"a.b"``) or a function of the value.

        An object whose value does not fit the table's type, or on which the function raises, is left out of the index:
        ``lookup`` does not find it, ``status().indexes`` counts and names it, and one line is logged. Raises UsageError
        when the index's name is taken, InvalidValueError for a table that is not declared.
        """
        self._check()
        self._engine.add_index(name, self._tables.name(table), by)

    def lookup(self, index: str, value: object) -> list[tuple[str, Any]]:
        """(key, value) of every object that the index has under ``value``; see :meth:`add_index` for those that it
        leaves out. Raises NotSubscribedError for an unknown index, NotStarted.
        """
        self._check_started()
        check_kind("index", index, str, "a string, the index's name")
        table, found = self._engine.read(
            lambda state: (state.cache.index(index).table, state.cache.lookup(index, value))
        )
        decode = self._decoders.get(table, plain)
        return [(key, decoded(decode, table, key, raw)) for key, raw in found]

    # -- handlers ------------------------------------------------------------------------------------------------

    def on(
        self,
        table: str | Table[Any] | Order | None,
        handler: Callable[[Event], object],
        *,
        topic: str | None = None,
        key: str | None = None,
        order: Order = (),
        on_history_changed: Callable[[HistoryChange], object] | None = None,
    ) -> Handle:
        """Call ``handler`` with every change of a table, of several tables, or of all (None), a topic or a key.

        The handler is called on its own thread, first with the existing objects (as creates), then with every change in
        chain order. A slow handler gets only the latest change per key. After an exception the call is retried, and the
        change is parked after ``settings.handling.tries`` attempts. ``remove()`` of the returned handle ends it.

        One handler of several tables is called for all of them in chain order; between two handlers there is no order.
        ``order`` names tables, referenced tables first. The changes that a full sync finds (at the start or later), or
        that an unsubscribe causes, are then passed as creates and sets in this order, followed by deletes in reverse.
        ``on_history_changed`` is called on the handler's thread when a reading shows that the store's history changed
        (a restored backup, a fail-over, acknowledged commits lost): after every change of the old history and before
        the first one of the new history, in which versions may go back. It is called once for each reading that finds
        topics of another history, with the points of these topics. When it raises, it is retried like a change, and
        later changes wait until it returns or is parked. Raises UsageError, NotSubscribedError for the topic,
        InvalidValueError for a table that is not declared, ClosedError.
        """
        self._check()
        if key is not None:
            check_key(key)
        tables, order = self._names(table), self._order(order)

        def add(state: ReplicaState) -> Handle:
            chosen = selector(tables, self._only(state, topic), key, order)
            present = state.cache.present(chosen.tables, chosen.topic, chosen.key)
            return self._handlers.add(chosen, handler, present, on_history_changed)

        return self._engine.read(add)

    # -- waiting -------------------------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """True when every subscribed topic was synced and the handlers have handled (or parked) the objects of that
        sync. False before ``start``, and while no topic is subscribed to. Raises ClosedError.
        """
        self._check()
        return self._engine.read(lambda state: state.tracker.synced and self._handlers.initial_done)

    def staleness(self) -> float:
        """Seconds: the replica has every change that was committed longer ago. Infinite before ``start``, before the
        first sync, and while no topic is subscribed to. Raises ClosedError.
        """
        self._check()
        return self._engine.read(lambda state: state.tracker.staleness(self._engine.now()))

    def wait_synced(self, timeout: float | None = None) -> None:
        """Block until ``synced``. Raises WaitTimeout (with the reason, when the store cannot be read), ClosedError,
        NotStarted, NotSubscribedError when no topic is subscribed to (any more), and UsageError when called by a
        handler, which would wait for itself.
        """
        self._check_started()
        until = self._deadline(timeout)
        self._handlers.refuse_handlers("wait_synced")
        self._wait(self._is_synced, until, "the first sync")
        self._handlers.wait_initial(self._left(until))

    def wait_for(
        self, position: int | Committed | None, timeout: float | None = None, *, topics: Sequence[str] | None = None
    ) -> None:
        """Block until everything up to ``position`` is applied: read your own write.

        Given ``tx.commit``, the call waits only for the topics that the transaction wrote to, which is fastest. None
        (the commit of a transaction that changed nothing) does not wait. Given a number, it waits for all subscribed
        topics (or ``topics``): a topic without a change reaches the position only at its next hello, poll or sync, and
        a number does not identify a history. If a full sync may have passed over the commit, or it wrote to none of
        ``topics``, the store is queried, which may exceed the timeout by one query, and waits for the database.

        Raises WaitTimeout, ClosedError, NotStarted, NotSubscribedError (also when one of the topics is dropped
        meanwhile), and UsageError for topics that are not a list of names. Given a commit also HistoryChanged when the
        store lost it, and OutcomeUnknown when the changelog was trimmed beyond it, or there is no database to query.
        """
        until = self._deadline(timeout)
        if position is None:
            self._check_wait(topics)
            return
        readback = self._readback(position, topics)
        while not self._read_back(readback, until):
            error = readback.ask()
            if error is not None:
                self._engine.pause(pause_after(error, self._left(until)))

    def wait_handled(
        self, position: int | Committed | None, timeout: float | None = None, *, topics: Sequence[str] | None = None
    ) -> None:
        """Block as ``wait_for``, and until every handler has handled (or parked) the changes up to ``position``. Raises
        as ``wait_for``, and UsageError when called by a handler.
        """
        self._check_started()
        until = self._deadline(timeout)
        check_position(position)
        self._handlers.refuse_handlers("wait_handled")
        self.wait_for(position, self._left(until), topics=topics)
        if position is None:
            return
        number = position if isinstance(position, int) else position.point.position
        self._handlers.wait_handled(number, self._left(until))

    def status(self) -> Status:
        """The replica's metrics, and the reasons why it is not ready (before ``start`` it is not). Takes the replica's
        lock for a short time. Raises ClosedError.
        """
        self._check()
        return self._engine.read(self._status, parked_objects(self._handlers.parked()), self._subscriber.counters())

    def _status(self, state: ReplicaState, parked: Sequence[ParkedObject], driver: Mapping[str, int]) -> Status:
        now = self._engine.now()
        tracker, cache = state.tracker, state.cache
        chains = {name: chain_status(tracker, name, now) for name in tracker.topics}
        error, handled, staleness = self._engine.sync_failures.last, self._handlers.initial_done, tracker.staleness(now)
        return Status(
            synced=tracker.synced and handled,
            staleness=staleness,
            polling=tracker.freshness.is_polling(now),
            chains=chains,
            counters=msgspec.structs.replace(
                tracker.counters, deltas=dict(tracker.counters.deltas), fulls=dict(tracker.counters.fulls)
            ),
            sequences=msgspec.structs.replace(tracker.gaps.tally),
            faults=msgspec.structs.replace(state.faults),
            commit_to_applied=applied_latencies(cache),
            driver=driver,
            handlers=self._handlers.counters(),
            parked=parked,
            problems=problems(
                self._timing,
                synced=tracker.synced,
                staleness=staleness,
                last_error=error,
                failure=self._engine.failure,
                mismatching=tracker.mismatching,
                started=self._started,
                subscribed=bool(tracker.topics) or not self._has_subscribed,
                handled=handled,
            ),
            last_error="" if error is None else str(error),
            indexes={index.name: index.status(MAX_EXAMPLES) for index in cache.indexes()},
            unreadable=self._unreadable.current(cache),
            unreadable_reads=self._unreadable.reads,
            store_id=state.stores.own.hex(),
            journal={} if self._journal is None else self._journal.counters(),
            journal_error="" if self._journal is None else self._journal.error,
            quarantined=state.quarantine.excluded(now),
            announcements=self._sources.announcements(),
        )

    def _rejected(self) -> Mapping[str, int]:
        return rejected(self._subscriber.counters(), self._engine.counters())

    # -- comparing with the store ----------------------------------------------------------------------------------

    def contents(self, topic: str) -> Contents:
        """A topic's own chain at one moment: its state and all its objects. Holds the replica's lock while it makes the
        list. Raises NotSubscribedError, InvalidValueError, NotStarted.
        """
        self._check_started()
        check_name("topic", topic)
        return self._engine.read(self._contents, topic)

    def _contents(self, state: ReplicaState, topic: str) -> Contents:
        subscribed = state.tracker.topics
        chain = ALL if ALL in subscribed else topic
        if chain not in subscribed:
            raise NotSubscribedError(
                f"the replica is not subscribed to the topic {topic!r}; its topics are {sorted(subscribed)[:5]}"
            )
        status = chain_status(state.tracker, chain, self._engine.now())
        return Contents(topic, status.state, status.known, status.staleness, state.cache.topic_records(topic))

    def resync(self, *topics: str) -> None:
        """Read these topics again (none: all that are subscribed to), as soon as ``sync_interval`` allows. Handlers are
        called for differences. Not needed in operation, because a replica finds and repairs a wrong digest by itself.
        A replica of everything reads everything. Does not wait. Raises NotSubscribedError, NotStarted.
        """
        self._check_started()
        for topic in topics:
            check_kind("topic", topic, str, "a string")
        everything = self._engine.read(lambda state: ALL in state.tracker.topics)
        self._engine.resync(() if everything else topics)

    # -- small things ----------------------------------------------------------------------------------------------

    def _awaited(
        self, state: ReplicaState, position: int | Committed, topics: Sequence[str] | None
    ) -> Sequence[str] | None:
        """The topics of a wait (None: all that are subscribed to). Called at every check: a wait for a topic that was
        unsubscribed meanwhile must raise, because it cannot succeed any more.
        """
        subscribed = self._subscribed(state)
        if topics is not None:
            for topic in topics:
                self._check_subscribed(state, topic)
            return topics
        if not subscribed:
            raise NotSubscribedError(NOT_SUBSCRIBED)
        if isinstance(position, int) or ALL in subscribed:
            return None
        names = [link.topic for link in position.links if link.topic in subscribed]
        if not names:
            wrote = sorted(link.topic for link in position.links)
            raise NotSubscribedError(f"the transaction wrote to {wrote[:5]} and none of these is subscribed to")
        return names

    def _is_synced(self, state: ReplicaState) -> bool:
        if not self._subscribed(state):
            raise NotSubscribedError(NOT_SUBSCRIBED)
        return state.tracker.synced

    def _readback(self, target: int | Committed, topics: Sequence[str] | None) -> Readback:
        self._check_wait(topics)
        check_position(target)
        return Readback(target, topics, self._sources.history, self._engine.now())

    def _check_wait(self, topics: Sequence[str] | None) -> None:
        self._check_started()
        if topics is not None:
            _check_list(topics, "wait for all that are subscribed to")

    def _read_back(self, readback: Readback, until: float | None) -> bool:
        """Wait. True: the position is applied; False: the store must be queried first."""

        def ready(state: ReplicaState) -> bool:
            readback.topics = self._awaited(state, readback.target, readback.topics)
            return readback.look(state.tracker) or readback.question is not None

        self._wait(ready, until, f"position {readback.number}")
        return readback.question is None

    def _wait(self, done: Callable[[ReplicaState], bool], until: float | None, what: str) -> None:
        def ready(state: ReplicaState) -> bool:
            self._check()
            if self._engine.failure is not None:
                raise self._engine.failure
            return done(state)

        self._engine.wait(ready, until, what)

    def _deadline(self, timeout: float | None) -> float | None:
        check_timeout(timeout)
        return None if timeout is None else self._engine.now() + timeout

    def _left(self, until: float | None) -> float | None:
        return None if until is None else until - self._engine.now()

    def _subscribed(self, state: ReplicaState) -> Collection[str]:
        """The subscribed topics; before ``start`` also those of the constructor, because a handler may be registered
        before ``start``."""
        subscribed = state.tracker.topics
        return subscribed if self._has_subscribed else {*self._topics, *subscribed}

    def _only(self, state: ReplicaState, topic: str | None) -> str | None:
        """The topic that restricts a read. ``ALL`` means no restriction, because no object has the topic ``ALL``."""
        if topic is not None:
            self._check_subscribed(state, topic)
        return None if topic == ALL else topic

    def _check_subscribed(self, state: ReplicaState, topic: str) -> None:
        subscribed = self._subscribed(state)
        check_kind("topic", topic, str, "a string")
        if topic not in subscribed and ALL not in subscribed:
            raise NotSubscribedError(
                f"the replica is not subscribed to the topic {topic!r}; its topics are {sorted(subscribed)[:5]}"
            )

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError("this replica belongs to the process before the fork; make a new one in this process")
        if self._closed:
            raise ClosedError("this replica is closed; make a new one")

    def _check_started(self) -> None:
        self._check()
        if not self._started:
            raise NotStarted(NOT_STARTED)

    def _decode(self, found: Object[Any]) -> Any:
        try:
            return decoded(self._decoders.get(found.table, plain), found.table, found.key, found.json)
        except InvalidValueError as error:
            self._unreadable.note(found, error, self._engine.read)
            raise

    def _names(self, tables: str | Table[Any] | Order | None) -> str | list[str] | None:
        if tables is None or isinstance(tables, str | Table):
            return None if tables is None else self._tables.name(tables)
        check_kind("table", tables, Iterable, "a table, a list of tables, or None for all")
        return [self._tables.name(each) for each in tables]

    def _order(self, order: Order) -> Sequence[str]:
        check_kind("order", order, Iterable, "a list of tables")
        return order if isinstance(order, str) else [self._tables.name(each) for each in order]


def _values(objects: Sequence[Object[Any]], *, skip: bool) -> Iterator[tuple[str, Any]]:
    for each in objects:
        try:
            value = each.value
        except InvalidValueError:  # already added to ``unreadable``
            if not skip:
                raise
            continue
        yield each.key, value


def _endpoint(settings: Settings, replica: Replica) -> "Endpoint":
    """The HTTP endpoint. Imported only here, so that a replica without an endpoint does not need its dependencies."""
    try:
        from pubsub_lib.replica import metrics
    except ImportError as error:
        raise ConfigError(
            f"the endpoint for metrics lacks a dependency ({error}); run: pip install pubsub-lib[metrics], "
            "or set replica_metrics_port = 0"
        ) from error
    return metrics.endpoint_of(settings, replica.status, inspection_routes.routes(replica))


def _check_list(topics: Sequence[str], all_of_them: str) -> None:
    if isinstance(topics, str):
        raise UsageError(f"topics must be a list of names, not the string {topics!r}; write [{topics!r}]")
    check_kind("topics", topics, Collection, "a list of names")
    if not topics:
        raise UsageError(f"the list of topics is empty; leave the topics out, or give None, to {all_of_them}")


def with_default(topics: tuple[str, ...], wanted: bool) -> tuple[str, ...]:
    """These topics, followed by the default topic when it is ``wanted`` and not among them already."""
    return (*topics, DEFAULT_TOPIC) if wanted and not {ALL, DEFAULT_TOPIC}.intersection(topics) else topics


def _checked_topics(topics: Sequence[str]) -> tuple[str, ...]:
    _check_list(topics, "subscribe to everything")
    if tuple(topics) == (ALL,):
        return (ALL,)
    return tuple(check_name("topic", topic) for topic in topics)
