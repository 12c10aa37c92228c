"""Executes the statements of the commit sequence: here by the driver, in a transaction of the store's own.

This skips SQLAlchemy's work for each statement, which takes 50 times as long as SQLite's for the same statement. The
connection comes from SQLAlchemy's pool and returns there. A user's session: :mod:`.connection_executor`.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Self, cast

import msgspec
from sqlalchemy import Dialect, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from pubsub_lib.core.model import Head, Point
from pubsub_lib.store import absent, links, rows, schema, statements
from pubsub_lib.store.fork_safety import GatedPool
from pubsub_lib.store.prepared import Call, Prepared, Rows
from pubsub_lib.store.statements import Statements

if TYPE_CHECKING:
    from pubsub_lib.store.postgres_trip import Trips

Row = Mapping[str, Any]
_ENCODER: Final = msgspec.json.Encoder()


class Executor(ABC):
    """Statements on one connection, inside the transaction of its user. Belongs to one thread."""

    locks_at_begin = False
    """Whether a SQLite transaction is known to have locked the database when it began."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.made = statements.of(dialect)
        """The statements for this database."""

    @property
    @abstractmethod
    def info(self) -> MutableMapping[Any, Any]:
        """Notes that live as long as the connection to the server."""

    @abstractmethod
    def run(self, *calls: Call) -> list[Rows]:
        """Execute statements in order; the rows of each, none where it returns none. Raises SQLAlchemy's errors."""

    @abstractmethod
    def write(self, *calls: Call) -> None:
        """Execute statements whose effect may begin as late as at the COMMIT. Raises as ``run``."""

    def locked(self, by_table: Mapping[str, Sequence[str]]) -> Iterator[Sequence[Any]]:
        """Lock the objects with these tables and keys that exist; their rows. Tables and keys are in the order in which
        every writer locks them.
        """
        return chain.from_iterable(self.run(*self.of_objects(self.made.lock_objects, by_table)))

    def of_objects(self, make: Callable[[int], Prepared], by_table: Mapping[str, Sequence[str]]) -> list[Call]:
        """The calls of a statement for the objects with these tables and keys."""
        return [
            Call(make(len(part)), [{"table": table, **listed(self.made, "key", part)}])
            for table, keys in by_table.items()
            for part in _parts(keys)
        ]

    def advance(self, by: int, nonce: int, topics: Sequence[str], missing: absent.Absent = absent.NONE) -> links.Step:
        """Lock the counter, take ``by`` positions, and lock the heads of these topics. Raises as ``absent.check``."""
        made = self.made
        step = Call(made.advance, [{"by": by, "new_nonce": nonce}])
        lock = self._lock_heads(topics)
        again = self.of_objects(made.find_objects, absent.by_table(missing)) if missing else []
        if made.returning:
            counter, *found = self.run(step, *lock, *again)
        else:
            counter, *found = self.run(Call(made.read_counter), *lock, *again, step)
        if missing:
            absent.check(missing, found[len(lock) :])
        ((position, before, now, store_id),) = counter or rows.no_counter()
        position -= by if made.returning else 0
        last, point, heads = Point(position, before), Point(position + by, nonce), _by_topic(found[: len(lock)])
        return links.Step(last, point, int(now), heads, rows.store_id(store_id))

    def heads_of(self, topics: Sequence[str]) -> dict[str, Head]:
        """The heads of those of these topics that were ever written, locked."""
        return _by_topic(self.run(*self._lock_heads(topics)))

    def _lock_heads(self, topics: Sequence[str]) -> list[Call]:
        made = self.made
        return [Call(made.lock_heads(len(part)), [listed(made, "topic", part)]) for part in _parts(topics)]

    def write_rows(self, changed: links.Rows, head_rows: Sequence[Row], link_rows: Sequence[Row]) -> None:
        """Write transactions: rows of objects, of their topics' heads, and of their links.

        Raises StoreBusy when another writer created one of the objects.
        """
        made = self.made
        calls = [Call(made.create_objects, _listed_rows(made, changed.created))] if changed.created else []
        if changed.changed:
            calls.append(Call(made.replace_objects, _listed_rows(made, changed.changed)))
        by_table: dict[str, list[str]] = {}
        for table, key in changed.removed:
            by_table.setdefault(table, []).append(key)
        calls += self.of_objects(made.delete_objects, by_table)
        if made.json and len(link_rows) > 1:
            calls.append(Call(made.replace_heads, _listed_rows(made, head_rows)))
            calls.append(Call(made.insert_listed_links, _listed_rows(made, link_rows)))
        elif link_rows:
            calls += [Call(made.upsert(schema.topics), head_rows), Call(made.insert_links, link_rows)]
        self.write(*calls)


class OwnTransaction(Executor):
    """A context manager: begins a transaction; the user ends it in the block by :meth:`commit` or :meth:`rollback`.
    PostgreSQL executes the statements of one call in one round trip, the BEGIN together with the first ones, and the
    writes together with the COMMIT. SQLite is locked from the begin on.
    """

    locks_at_begin = True

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.dialect)
        self._engine = engine
        self._error = cast("type[Exception]", engine.dialect.loaded_dbapi.Error)
        assert isinstance(engine.pool, GatedPool)
        self._pool = engine.pool
        self._lent: ConnectionPoolEntry | None = None
        self._driver: Any = None
        self._cursor: Any = None
        self._ended = False
        self._in_trips = engine.dialect.name == "postgresql"
        self._trips: Trips | None = None
        self._unsent: list[Call] = []

    @property
    def info(self) -> MutableMapping[Any, Any]:
        """As the base class."""
        assert self._lent is not None, "the transaction has not begun"
        return self._lent.info

    def __enter__(self) -> Self:
        begin = self.made.begin
        try:
            self._lent = self._pool.lend()
            self._driver = self._lent.driver_connection
            if self._in_trips:
                from pubsub_lib.store.postgres_trip import trips_of  # needs psycopg, which other databases do not

                self._trips = trips_of(self._driver, self.info)
                self._trips.begin()
                self._unsent = [] if begin is None else [Call(begin)]
            else:
                self._cursor = self._driver.cursor()
                if begin is not None:
                    self._cursor.execute(begin.text)
        except self._error as error:
            wrapped = self._wrapped(error, "BEGIN")
            self.__exit__(type(error))
            raise wrapped from error
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises only an interrupt: the result of the transaction is known, or another exception is on its way."""
        if self._lent is None:
            return
        if self._in_trips and kind is not None:
            self._drop()
        try:
            if self._trips is not None:
                self._trips.end()
            elif self._driver is not None and self._lent.dbapi_connection is not None:
                self._close_cursor()
                if not self._ended:
                    self._driver.rollback()
        except BaseException as error:
            self._drop()  # its next user would get another mode, or find a transaction
            if not isinstance(error, self._error):
                raise
        finally:
            lent, self._lent = self._lent, None
            self._pool.take_back(lent)

    def run(self, *calls: Call) -> list[Rows]:
        """As the base class. A PostgreSQL connection on which a statement failed is not used again."""
        unsent, self._unsent = self._unsent, []
        try:
            return self._execute([*unsent, *calls])[len(unsent) :] if unsent else self._execute(calls)
        except self._error as error:
            raise self._wrapped(error, _text(calls)) from error

    def write(self, *calls: Call) -> None:
        """As the base class."""
        if self._in_trips:
            self._unsent += calls
        else:
            self.run(*calls)

    def commit(self) -> None:
        """Commit; raises SQLAlchemy's errors. A connection whose COMMIT failed is not used again."""
        calls = [*self._unsent, Call(self.made.commit)]
        try:
            if self._in_trips:
                self._execute(calls)
            else:
                self._driver.commit()
            self._ended = True
        except self._error as error:
            wrapped = self._wrapped(error, _text(calls))  # a dropped connection would look lost
            self._drop()
            raise wrapped from error
        except BaseException:
            self._drop()
            raise

    def rollback(self) -> None:
        """Undo the transaction. Raises SQLAlchemy's errors."""
        self._unsent = []
        try:
            if self._in_trips:
                self._execute([Call(self.made.rollback)])
            else:
                self._driver.rollback()
            self._ended = True
        except self._error as error:
            raise self._wrapped(error, "ROLLBACK") from error

    def _execute(self, calls: Sequence[Call]) -> list[Rows]:
        """Execute statements, on PostgreSQL in one trip. Raises the driver's errors."""
        if self._trips is not None:
            return self._trips.run(calls)
        found, cursor = list[Rows](), self._cursor
        for statement, many in calls:
            if statement.columns is not None:
                bound: Sequence[Any] = list(map(statement.columns, many))
            elif statement.only is not None:
                bound = [(values[statement.only],) for values in many]
            else:
                bound = [statement.bound(values) for values in many] if statement.binds else many
            if len(bound) > 1:
                cursor.executemany(statement.text, bound)
            else:
                cursor.execute(statement.text, bound[0])
            fetched = cursor.fetchall() if statement.returns else ()
            found.append(statement.converted(fetched) if statement.converts else fetched)
        return found

    def _drop(self, error: BaseException | None = None) -> None:
        """Do not use the connection again."""
        if self._lent is not None:
            self._close_cursor()
            self._lent.invalidate(error)

    def _close_cursor(self) -> None:
        """A cursor that stays open keeps a closed SQLite connection, and with it the lock of its transaction."""
        with contextlib.suppress(self._error):
            if self._cursor is not None:
                self._cursor.close()

    def _wrapped(self, raised: Exception, text: str) -> DBAPIError:
        """The error as SQLAlchemy raises it. After a lost connection the pool opens new ones."""
        error: Any = raised
        lost = self.dialect.is_disconnect(error, self._driver, None)
        if lost or self._in_trips:
            self._drop(error)
        if lost and self._driver is not None:
            self._engine.dispose()
        wrapped: DBAPIError = DBAPIError.instance(
            text, None, error, self._error, hide_parameters=True, connection_invalidated=lost, dialect=self.dialect
        )
        return wrapped


def _text(calls: Sequence[Call]) -> str:
    return "; ".join([call.statement.text for call in calls])


def listed(made: Statements, name: str, values: Sequence[str]) -> Row:
    """The values of a statement's list of this name."""
    if made.json:
        return {name: _ENCODER.encode(values).decode()}
    return {f"{name}_{number}": value for number, value in enumerate(values)}


def _listed_rows(made: Statements, many: Sequence[Row]) -> Sequence[Row]:
    """Rows as the values of a statement that creates or replaces them: of PostgreSQL one JSON text."""
    return [{"rows": _ENCODER.encode(many).decode()}] if made.json else many


def _parts(values: Sequence[str]) -> Sequence[Sequence[str]]:
    """The values in parts for one statement each: nearly always one part."""
    return list(rows.chunks(values)) if len(values) > rows.CHUNK else [values] if values else []


def _by_topic(found: Iterable[Sequence[Sequence[Any]]]) -> dict[str, Head]:
    return {row[0]: rows.head(row) for row in chain.from_iterable(found)}
