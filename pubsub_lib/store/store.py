"""The facade: one object for all operations of a program on the database."""

import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from sqlalchemy import URL, Connection, Engine, event

from pubsub_lib.arguments import check_function, check_kind
from pubsub_lib.core.contents import ReadObjects
from pubsub_lib.core.limits import Limits, check_key, check_name
from pubsub_lib.core.model import ALL, EMPTY, NO_STORE, Head, Heads, Link, Point, SyncAnswer, Want
from pubsub_lib.core.objects import Object
from pubsub_lib.core.table import Declared, Table
from pubsub_lib.errors import ClosedError, ConfigError, NotFound, StoreReadOnly
from pubsub_lib.settings import Settings
from pubsub_lib.store import (
    accepting,
    counters,
    engine,
    error_mapping,
    following,
    fork_safety,
    host_commit,
    migration,
    repair,
    repair_plan,
    retry,
    rows,
    snapshot,
    sqlite,
    trimming,
    url,
)
from pubsub_lib.store.before_write import BeforeWrite, WriteHooks
from pubsub_lib.store.commit import Committer, dropped_on_error
from pubsub_lib.store.commit_callbacks import CommitCallbacks, OnCommit
from pubsub_lib.store.connection_executor import commit_or_drop
from pubsub_lib.store.directory import Directory
from pubsub_lib.store.group_commit import Announce, Attempt
from pubsub_lib.store.inspection import Inspection
from pubsub_lib.store.settings import StoreSettings, checked
from pubsub_lib.store.tables import Tables
from pubsub_lib.store.transaction import Transaction, new_nonce
from pubsub_lib.store.verbs import Identity, Stored
from pubsub_lib.store.writer import Work, is_committed

if TYPE_CHECKING:
    from pubsub_lib.store.session import AnySession, SessionRecorder

T = TypeVar("T")


class Store:
    """The database of a writer or of a replica. All methods may be called from any thread, and in a forked child.

    A fork waits, with SQLite for at most ``lock_timeout``, until no thread uses the store: otherwise the child could
    find the file locked for ever. The fork does not wait at all when the forking thread itself is reading or writing
    this store, and it does not wait for a program's own SQLAlchemy connections: do not fork then.

    Every method may block for the configured timeouts (:class:`StoreSettings`) and raises, besides the errors that it
    names itself: StoreUnavailable, StoreBusy, SchemaError, ConfigError, and ClosedError after :meth:`close`.
    """

    @overload
    def __init__(
        self,
        database: Settings,
        *,
        tables: Declared | None = None,
        origin: str | None = None,
        read_only: bool = False,
        create: bool = True,
        bulk: bool = False,
    ) -> None: ...

    @overload
    def __init__(
        self,
        database: str,
        *,
        settings: StoreSettings | None = None,
        limits: Limits | None = None,
        tables: Declared | None = None,
        origin: str | None = None,
        read_only: bool = False,
        create: bool = True,
        bulk: bool = False,
    ) -> None: ...

    def __init__(
        self,
        database: Settings | str,
        *,
        settings: StoreSettings | None = None,
        limits: Limits | None = None,
        tables: Declared | None = None,
        origin: str | None = None,
        read_only: bool = False,
        create: bool = True,
        bulk: bool = False,
    ) -> None:
        """Open a database; an empty one gets the schema at once (safe between processes).

        ``database``: the :class:`~pubsub_lib.Settings` of the program, which contain the URL, limits, pool, timeouts,
        and the origin (``settings.service_name``). A script without settings gives a SQLAlchemy URL (sqlite,
        postgresql, mysql, mariadb), and may give ``settings`` and ``limits``; otherwise their defaults apply.
        ``tables``: handles (:class:`~pubsub_lib.Table`), or names with types; when some are given, only those tables
        exist. ``origin``: the service that publishes the changes written here ("": none).
        ``read_only``: never writes, and accepts a standby; for the command line and the audit, not for replicas.
        ``create`` False: for replicas, which may be started before the database exists. Creates neither a SQLite file
        nor tables; a call raises StoreUnavailable (no file, no server) or SchemaError (no tables) until they exist.
        ``bulk``: for many large transactions; on SQLite, a log of up to 64 MB and a cache of up to 8 MB.
        Raises ConfigError (URL, tables, settings, limits), SchemaError (older: run :func:`migrate`; newer; foreign
        tables), StoreUnavailable, StoreReadOnly (a standby, without ``read_only``).
        """
        given = database
        if isinstance(database, Settings):
            if settings is not None or limits is not None:
                raise ConfigError(
                    "a store that is given Settings takes its settings and limits from there; replace them in the "
                    "Settings, or give a URL in place of the Settings"
                )
            settings, limits = database.store, database.limits
            origin = database.service_name if origin is None else origin
            database = database.store_url
        self._url = url.parse(database)
        self._settings = settings = checked("settings", settings or StoreSettings())
        self._limits = limits = checked("limits", limits or Limits())
        self._tables = Tables(tables or {}, limits)
        self._origin = check_name("service", origin) if origin else ""
        self._read_only = read_only
        self._found = False  # the schema; checked at the first use when it is not checked here
        self._bulk = bulk
        self._writers, self._readers = self._engines()
        self._pid = os.getpid()
        self._abandoned: list[object] = []
        self._closed = False
        self._callbacks = CommitCallbacks()
        self.store_id = NO_STORE
        """The id of the store (rule S12), as this object last read or wrote it. With ``create`` False it is
        ``NO_STORE`` until the first reading.
        """
        self._hooks = WriteHooks(self._tables)
        host = host_commit.opened(given, self._url, self._tables.is_typed)
        self._committer = Committer(self._writer_engine, settings, limits, self._tables.encode, self._hooks, host)
        self.directory = Directory(self._read, self._write)
        """Services and leases."""
        self.inspect = Inspection(self._read, settings.page_size)
        """Inspection of changelog and topics, for operators."""
        try:
            if create or read_only:
                self._open_schema()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({url.shown(self._url)!r})"

    @property
    def settings(self) -> StoreSettings:
        """The given settings."""
        return self._settings

    @property
    def limits(self) -> Limits:
        """The given limits."""
        return self._limits

    @property
    def origin(self) -> str:
        """The service that publishes the changes written here, unless a transaction names another one; "": none."""
        return self._origin

    def close(self) -> None:
        """Close all connections; a connection in use by another thread is closed when it is returned. Idempotent."""
        self._closed = True
        here = self._pid == os.getpid()
        self._committer.close(here=here)
        for each in (self._writers, self._readers):
            if here:
                # A disposed pool would keep returned connections until it is garbage collected.
                event.listen(each.pool, "checkin", lambda _, returned: returned.close())
            each.dispose(close=here)

    # -- writing -------------------------------------------------------------------------------------------------

    def transaction(self, *, origin: str | None = None) -> AbstractContextManager[Transaction]:
        """Record verbs in the block; at its end all are executed and committed together, retried where that is safe.

        After an exception in the block nothing is written. After the block, ``tx.commit`` is the :class:`Commit`, or
        None when nothing changed. ``origin`` overrides the store's. Raises at the end of the block: ConditionFailed,
        InvalidValueError, StoreReadOnly, StoreFull (nothing is written), OutcomeUnknown; and, with a worker that has
        ``when_full = raise``, HandoffRejectedError, although the transaction is committed.
        """
        return Block(lambda: self._begin(origin), self._commit)

    def write(self, fn: Callable[[Transaction], T], *, origin: str | None = None) -> T:
        """Run ``fn`` in a transaction and return its result; run it again when an object that it read with ``tx.get``
        was changed before the commit. ``fn`` must have no other effects. Raises as :meth:`transaction`."""
        check_function("fn", fn, "one argument, the transaction")

        def once() -> T:
            with self.transaction(origin=origin) as transaction:
                return fn(transaction)

        return retry.attempt_reads(self._settings, once)

    def commit_group(self, works: Sequence[Work], announce: Announce) -> list[Attempt]:
        """For the publisher service: as :meth:`.Committer.run_group`. ``on_commit`` is not called."""
        attempts = self._committer.run_group(works, announce)
        for each in attempts:
            if each.commit is not None:
                self.store_id = each.commit.store_id
        return attempts

    def on_commit(
        self, callback: OnCommit, *, after_fork: bool = False, unless_published: bool = False
    ) -> Callable[[], None]:
        """Call ``callback`` with the links of every transaction, after its COMMIT, in the writer's thread.

        Its exceptions are counted (``callback_errors``) and logged, and undo nothing; HandoffRejectedError is not
        logged but raised to the writer after all callbacks were called (in a program's own session it is logged).
        Returns a function that removes the callback. ``after_fork``: a forked child inherits the callback; set it for
        one that opens its connections again in the child. ``unless_published``: it is not called for transactions that
        the publisher service commits and publishes (``group_commit = host``).
        """
        self._adopt()
        return self._callbacks.add(callback, after_fork, unless_published)

    def before_write(self, hook: BeforeWrite, *, table: str | Table[Any] | None = None) -> Callable[[], None]:
        """Run ``hook`` on each object that a transaction of this store is about to write (``table``: of this table).

        The hook is given a :class:`ProposedWrite`: action, table, key, topic, the stored and the merged value. It may
        return another value to write, or raise: then the transaction writes nothing, and the exception is raised to the
        writer at the end of its block (of a session: from ``session.commit()``). InvalidValueError is the error for a
        value that a rule of the program forbids.

        Hooks run in the order in which they were added, inside the transaction: the objects are locked, the store's
        counter is not yet. A hook must be quick, must not use this store, and must have no other effects, because a
        transaction runs again after a deadlock. A verb that changes nothing is not shown. The hooks belong to this
        ``Store`` object, forked children included: other programs have their own. Returns a function that removes the
        hook. Raises InvalidValueError for an invalid table.
        """
        self._adopt()
        return self._hooks.add(hook, table)

    def session(self, session: "AnySession", *, bind_arguments: Mapping[str, Any] | None = None) -> "SessionRecorder":
        """Record changes in a program's own SQLAlchemy session: they commit and roll back with it, savepoints included.

        Call it once per session and keep the recorder; it serves all transactions of the session. A ``scoped_session``
        stands for its current session: call it for each of them. For a session with several engines, ``bind_arguments``
        selects this store's database. See :class:`SessionRecorder`.
        """
        # A program with a session has loaded the ORM; for other programs it would be a fifth of the import time.
        from sqlalchemy.orm import Session, scoped_session

        from pubsub_lib.store.session import SessionRecorder

        check_kind("session", session, (Session, scoped_session), "a SQLAlchemy Session")
        self._check_writable()
        return SessionRecorder(
            session,
            self._tables,
            self.get_record,
            self._origin,
            self._limits,
            self._hooks.review,
            self._writers.dialect.name,
            bind_arguments,
            self._hand_over,
        )

    def unique_id(self, name: str) -> int:
        """The next number of a named counter, from 1: never the same twice; gaps are possible."""
        check_name("counter", name)
        return self._write("taking a unique id", lambda connection: counters.next_value(connection, name))

    def trim(self, *, keep_links: int | None = None, keep_seconds: float | None = None) -> int:
        """Remove the changelog's oldest links, whole transactions, until every given bound holds; returns how many.

        ``keep_links``: minimum number of newest links to keep. ``keep_seconds``: keep links younger than this, by the
        database's clock. Runs in short transactions: writers go on. Readers that fell behind do a full sync.
        Raises InvalidValueError.
        """
        return sum(self.trim_batches(keep_links=keep_links, keep_seconds=keep_seconds))

    def trim_batches(self, *, keep_links: int | None = None, keep_seconds: float | None = None) -> Iterator[int]:
        """The same, one short transaction for each item of the iterator: the number of links that it removed."""
        return trimming.batches(self._read, self._write, keep_links, keep_seconds)

    @property
    def callback_errors(self) -> int:
        """How often a callback of :meth:`on_commit` raised."""
        return self._callbacks.errors

    # -- reading -------------------------------------------------------------------------------------------------

    @overload
    def get(self, table: Table[T], key: str) -> T | None: ...
    @overload
    def get(self, table: str, key: str) -> Any: ...
    def get(self, table: str | Table[Any], key: str) -> Any:
        """The value of an object (as its table's type), or None."""
        record = self.get_record(table, key)
        return None if record is None else self._tables.decode(record.table, record.value)

    @overload
    def record(self, table: Table[T], key: str) -> Object[T] | None: ...
    @overload
    def record(self, table: str, key: str) -> Object[Any] | None: ...
    def record(self, table: str | Table[Any], key: str) -> Object[Any] | None:
        """The object with its topic, version and value, as a replica's ``record`` gives it; or None."""
        found = self.get_record(table, key)
        return None if found is None else self._shown(found)

    @overload
    def records(self, table: Table[T], *, topic: str | None = None) -> Iterator[Object[T]]: ...
    @overload
    def records(self, table: str | None = None, *, topic: str | None = None) -> Iterator[Object[Any]]: ...
    def records(self, table: str | Table[Any] | None = None, *, topic: str | None = None) -> Iterator[Object[Any]]:
        """All objects, or those of a table or of a topic, of one consistent reading: as a replica's ``records`` gives
        them, but as an iterator, in pages. Raises and blocks as :meth:`objects`.

        Values are decoded when ``value`` is read, so an object that does not match its table's type raises only there.
        """
        return map(self._shown, self.objects(topic=topic, table=table))

    def _shown(self, stored: Stored) -> Object[Any]:
        return Object(stored.table, stored.key, stored.topic, stored.version, stored.value, self._decode)

    def _decode(self, found: Object[Any]) -> Any:
        return self._tables.decode(found.table, found.json)

    def get_record(self, table: str | Table[Any], key: str) -> Stored | None:
        """The object as stored in its row, for tools that copy or compare bytes: with its value as canonical JSON, and
        its fingerprint; or None. Programs use :meth:`record`.
        """
        name = self._tables.check(table)
        check_key(key)
        query = rows.select_objects(name, [key])
        row = self._read("reading an object", lambda connection: connection.execute(query).one_or_none())
        return None if row is None else rows.stored(row)

    def objects(self, *, topic: str | None = None, table: str | Table[Any] | None = None) -> Iterator[Stored]:
        """All objects of one consistent reading as stored in their rows, like ``get_record``, in pages; a connection is
        in use until the iterator ends. Programs use :meth:`records`.

        Not retried: a connection lost in the middle raises StoreUnavailable. Raises InvalidValueError for a table that
        is not declared where some are.
        """
        if topic is not None:
            check_kind("topic", topic, str, "a string, or None")
        name = None if table is None else self._tables.check(table)
        with error_mapping.translated("reading objects"), self._reader_engine().connect() as connection:
            yield from snapshot.objects(connection, self._settings.page_size, topic=topic, table=name)

    def topics(self) -> Mapping[str, Head]:
        """The heads of all topics that were ever written."""
        return self.read_heads([ALL]).topics

    def read_heads(self, topics: Collection[str]) -> Heads:
        """The store's point and the heads of these topics (with ``ALL`` among them: of all topics), in one snapshot."""
        heads = self._read("reading heads", lambda connection: snapshot.read_heads(connection, topics))
        self.store_id = heads.store_id
        return heads

    def read_sync(self, wants: Mapping[str, Want], read: ReadObjects | None = None) -> SyncAnswer:
        """Answer every want from one read-only snapshot, read in pages.

        A delta that the changelog no longer covers, whose point is not in this history, or that is longer than
        ``settings.max_delta_links`` is :class:`Incomplete`. The chain ``ALL`` follows the transactions' points; its
        bucket digests are those of all objects together. ``read`` makes the objects; by default in the form in which a
        replica uses them.
        """
        answer = self._read("syncing", lambda connection: snapshot.read_sync(connection, wants, self._settings, read))
        self.store_id = answer.store_id
        return answer

    def read_links(self, after: Point | None, maximum: int, max_bytes: int = 0) -> tuple[list[Link], Point, bool]:
        """Follow the changelog: (links in commit order after a transaction's point, the store's head, complete).

        About ``maximum`` links, and ``max_bytes`` of changes (0: any number), but always whole transactions, at
        least one if one exists. ``after`` None: from the very first. Not complete: the point is not in this history, or
        trimmed; then the links are the remaining ones. The cost grows with the links, not with the objects.
        """

        def read() -> following.Reading:
            with error_mapping.translated("following the changelog"):
                return following.read(self._reader_engine(), after, max(maximum, 1), max_bytes or None)

        reading = retry.attempt(self._settings, read)
        self.store_id = reading.store_id
        return reading.links, reading.head, reading.complete

    def committed(self, nonce: int, position: int | None = None) -> bool:
        """Whether the transaction with this nonce is committed; waits for one that is still being committed.

        The answer is certain with the ``position`` that OutcomeUnknown has; raises OutcomeUnknown when the changelog
        was trimmed past it. Without a position False is certain only as long as the changelog has all links since the
        attempts (``keep_links``, ``keep_time``); later a commit is found until others have written to all its topics.
        Ask the database that was written to: a read-only copy may lag.
        """
        check_kind("nonce", nonce, int, "an integer, as tx.commit and OutcomeUnknown have it")
        if position is not None:
            check_kind("position", position, int, "an integer, as OutcomeUnknown has it, or None")
        run = self._read if self._read_only else self._write
        lock = not self._read_only
        return run("looking up a transaction", lambda each: is_committed(each, nonce, position, lock=lock))

    def holds(self, topic: str, points: Sequence[Point]) -> list[bool | None]:
        """For each point, whether it is in the history of a topic (``ALL``: of the store), all in one snapshot.

        None: the changelog no longer reaches back to the point, so it is unknown.
        """
        return self.holds_each([(topic, point) for point in points])

    def holds_each(self, asked: Sequence[tuple[str, Point]]) -> list[bool | None]:
        """As ``holds``, for pairs of topic and point, all in one snapshot."""
        return self._read("looking for a commit", lambda connection: snapshot.holds(connection, asked))

    def recount(self, topic: str) -> Head:
        """The topic's point with count and digest computed again from its objects (to check the stored ones)."""
        return self._read(
            "recounting", lambda connection: snapshot.recount(connection, topic, self._settings.page_size)
        )

    def bucket_digests(self, topic: str) -> dict[int, int]:
        """Digest per non-empty bucket of a topic."""
        return self._read("reading digests", lambda connection: snapshot.bucket_digests(connection, topic))

    # -- proving -------------------------------------------------------------------------------------------------

    def look_at_rows(self, after: repair_plan.Cursor | None, maximum: int) -> repair_plan.Page:
        """The next rows, in an internal order, and those of them whose version or value does not match the row's
        fingerprint. ``after`` None: from the first one. Rows written meanwhile may be included or not.
        """
        return self._read("recounting objects", lambda connection: repair_plan.page(connection, after, maximum))

    def unfit(self, topics: Collection[str]) -> list[str]:
        """Those of these topics whose rows, by their number and fingerprints, do not sum up to the topic's head. One
        snapshot; the database reads every row of these topics, and sends none.
        """
        return self._read("summing fingerprints", lambda connection: repair_plan.unfit(connection, topics))

    def repair(self, topic: str, suspects: Collection[tuple[str, str]] = ()) -> repair.Repaired:
        """Repair the rows of a topic that were altered, lost or added without the library.

        An object is repaired if the changelog contains its right value, and if the row's fingerprint, the topic's head
        or the complete changelog proves it. No version changes and nothing is published: correct replicas do not
        change. ``suspects``: (table, key) of objects that do not match their fingerprint; without suspects, only damage
        that shows in the topic's head is found.
        """
        return repair.repair(self._read, self._write, topic, suspects)

    def accept(self, topic: str) -> accepting.Accepted:
        """Accept the current rows of a topic where the changelog does not contain the right values: for an operator.

        Provable damage is repaired first. Rows whose table or key the library rejects are deleted without a change: no
        replica ever received them. Then each object that does not match its fingerprint is written again with its
        current value and a new version, or deleted when the library rejects its value; the head is set to the rows.
        These changes are published like any change, and replicas that differ repair by buckets. Lost rows stay lost.
        Runs in short transactions. Writes nothing without damage. Raises InvalidValueError, StoreReadOnly, NotFound (a
        topic never written).
        """
        check_name("topic", topic)
        self._check_writable()

        def damaged() -> accepting.Damaged:
            page = self._settings.page_size
            return self._read("searching for altered rows", lambda at: accepting.damaged(at, page, topic))

        def change(part: Sequence[Identity], doing: str, fn: accepting.Batch) -> int:
            return self._write(doing, lambda at: fn(at, topic, part))

        def in_batches(idents: Sequence[Identity], doing: str, fn: accepting.Batch) -> int:
            return sum(change(part, doing, fn) for part in rows.chunks(idents, accepting.BATCH))

        found = damaged()
        repaired = in_batches(found.misplaced, "placing objects in their buckets", accepting.place)
        repaired += self.repair(topic, found.objects).repaired
        still = damaged()
        deleted = in_batches(still.refused, "deleting rows with refused names", accepting.discard)
        left = still.objects
        rewritten = 0
        position = None
        while left or self.unfit([topic]):
            batch, left = left[: accepting.BATCH], left[accepting.BATCH :]
            nonce = new_nonce()
            write = functools.partial(
                accepting.write, topic=topic, idents=batch, nonce=nonce, origin=self._origin, limits=self._limits
            )
            done = self._write("accepting rows", write)
            left = [*done.postponed, *left]
            rewritten, deleted = rewritten + done.rewritten, deleted + done.deleted
            if done.link is not None:
                position = done.link.point.position
                self._hand_over([done.link], self.read_heads([]).store_id)
        head = self.read_heads([topic]).topics[topic]
        if head == EMPTY and not deleted:
            raise NotFound(f"nothing was ever written to the topic {topic!r}; see pubsub-db topics")
        return accepting.Accepted(topic, head.count, repaired, rewritten, deleted, position)

    # -- inside --------------------------------------------------------------------------------------------------

    def _begin(self, origin: str | None) -> Transaction:
        self._check_writable()
        if origin:
            check_name("service", origin)
        nonce = new_nonce()
        return Transaction(self._tables, self.get_record, nonce, self._origin if origin is None else origin)

    def _commit(self, transaction: Transaction) -> None:
        self._adopt()
        commit = transaction.commit = self._committer.run(transaction._end(self._callbacks.publish))
        if commit is not None:
            self.store_id = commit.store_id
            self._callbacks.notify_or_raise(commit)

    def _hand_over(self, links: Sequence[Link], store_id: bytes) -> None:
        self._adopt()  # a session's recorder may have been inherited
        self.store_id = store_id
        self._callbacks.notify_without_error(links)

    def _open_schema(self) -> None:
        def opened() -> None:
            with error_mapping.translated(f"opening {url.shown(self._url)}"):
                if self._read_only:
                    self._require_schema()
                else:
                    _create_file(self._url)
                    migration.ensure(self._readers, self._writers, self._settings.lock_timeout)
                    self._found = True
                with self._readers.connect() as connection:
                    self.store_id = snapshot.identity(connection)[1]

        retry.attempt_busy(self._settings, opened)

    def _require_schema(self) -> None:
        with self._readers.connect() as connection:
            migration.require(connection)
        self._found = True

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise StoreReadOnly("the store was opened with read_only=True; open it without read_only to write")

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the store was closed; open another one")
        self._adopt()

    def _adopt(self) -> None:
        """In a forked child: take new connections and locks, and drop the callbacks without ``after_fork``."""
        if self._pid != os.getpid():
            with fork_safety.adoption():
                if self._pid != os.getpid():  # another thread of the child may have been first
                    self._abandoned += [self._writers, self._readers]
                    self._writers, self._readers = self._engines()
                    self._hooks.after_fork()
                    self._committer.after_fork()
                    self._callbacks.after_fork()
                    self._pid = os.getpid()

    def _engines(self) -> tuple[Engine, Engine]:
        return engine.pair(self._url, self._settings, primary=not self._read_only, bulk=self._bulk)

    def _writer_engine(self) -> Engine:
        self._check_writable()
        if not self._found:
            self._require_schema()
        return self._writers

    def _reader_engine(self) -> Engine:
        self._check_open()
        if not self._found:
            self._require_schema()
        return self._readers

    def _read(self, doing: str, fn: Callable[[Connection], T]) -> T:
        def once() -> T:
            with error_mapping.translated(doing), self._reader_engine().connect() as connection:
                return dropped_on_error(connection, fn)

        return retry.attempt(self._settings, once)

    def _write(self, doing: str, fn: Callable[[Connection], T]) -> T:
        """For operations that may run twice: directory, counters, trimming, look-ups."""

        def once() -> T:
            with error_mapping.translated(doing), self._writer_engine().connect() as connection:
                result = dropped_on_error(connection, fn)
                commit_or_drop(connection)
                return result

        return retry.attempt(self._settings, once)


class Block:
    """A ``with`` block that begins a transaction and commits it at its end; after an exception nothing is written."""

    def __init__(self, begin: Callable[[], Transaction], commit: Callable[[Transaction], None]) -> None:
        self._begin = begin
        self._commit = commit
        self._transaction: Transaction | None = None

    def __enter__(self) -> Transaction:
        if self._transaction is not None:
            raise ClosedError("the block of a transaction is used once; call transaction() again")
        self._transaction = self._begin()
        return self._transaction

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._transaction is not None
        if kind is None:
            self._commit(self._transaction)
        else:
            self._transaction._end()


def _create_file(database: URL) -> None:
    if database.get_backend_name() == "sqlite":
        sqlite.create(database)
