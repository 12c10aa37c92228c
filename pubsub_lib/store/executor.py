"""Executes prepared statements: through SQLAlchemy in a user's session, directly through the driver in the store's own.

A user's session keeps its events (for example those of tracing). The store's own transactions skip SQLAlchemy's work
for each statement, which takes 50 times as long as SQLite's for the same statement.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import Any, NamedTuple, Self, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from pubsub_lib.store import statements
from pubsub_lib.store.prepared import NOTHING, Prepared, Rows


def commit_or_drop(connection: Connection) -> None:
    """Commit; a connection whose COMMIT failed is not used again.

    SQLAlchemy would return the connection to its pool unchanged. The transaction may still be open there: the look-up
    whether it is committed would run inside that transaction, and would always find it.
    """
    try:
        connection.commit()
    except BaseException:
        connection.invalidate()
        raise


class Call(NamedTuple):
    """A statement, executed once for each of ``many`` values; a statement that returns rows has one."""

    statement: Prepared
    many: Sequence[Mapping[str, Any]] = (NOTHING,)


class Executor:
    """Statements on one connection, inside the transaction of its user. Belongs to one thread."""

    locks_at_begin = False
    """Whether a SQLite transaction is known to have locked the database when it began."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.made = statements.of(connection)
        """The statements for this database."""

    def run(self, *calls: Call) -> list[Rows]:
        """Execute statements in order; the rows of each, none where it returns none. Raises SQLAlchemy's errors."""
        found: list[Rows] = []
        for statement, many in calls:
            bound = [statement.bound(values) for values in many]
            result = self.connection.exec_driver_sql(statement.text, bound if len(bound) > 1 else bound[0])
            found.append(statement.converted(result.all()) if statement.returns else ())
        return found

    def write(self, *calls: Call) -> None:
        """Execute statements whose effect may begin as late as at the COMMIT. Raises as ``run``."""
        self.run(*calls)


class DriverExecutor(Executor):
    """The same without SQLAlchemy's events. PostgreSQL executes the statements of one call in one round trip, the BEGIN
    together with the first ones, and the writes together with the COMMIT.

    A context manager that must be left before the connection returns to its pool. Inside, SQLAlchemy cannot execute
    statements on a PostgreSQL connection.
    """

    locks_at_begin = True

    def __init__(self, connection: Connection) -> None:
        """Begins a transaction; the user ends it in the block, by :meth:`commit` or the connection's ``rollback``."""
        super().__init__(connection)
        begun = connection.in_transaction()
        if not begun:
            connection.begin()
        self._driver = cast("Any", connection.connection.driver_connection)
        self._pipelined = connection.dialect.name == "postgresql"
        self._sends_begin = self._pipelined and not begun
        self._block = self._driver.pipeline() if self._pipelined else nullcontext()
        self._pipeline: Any = None
        self._writes: list[Call] = []

    def __enter__(self) -> Self:
        try:
            with self._wrapped("BEGIN"):
                if self._sends_begin:
                    self._driver.autocommit = True  # psycopg's own BEGIN waits for its answer
                self._pipeline = self._block.__enter__()
                if self._sends_begin:
                    self._driver.execute(self.made.begin.text)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises only an interrupt: the result of the transaction is known, or another exception is on its way."""
        if self._pipelined and kind is not None:
            self.connection.invalidate()  # first, because the end of a pipeline waits for the server
        try:
            self._leave()
            if self._sends_begin:
                self._driver.autocommit = False
        except BaseException as error:
            self.connection.invalidate()  # its next user would get another mode
            if not isinstance(error, self.connection.dialect.loaded_dbapi.Error):
                raise

    def run(self, *calls: Call) -> list[Rows]:
        """As the base class. A PostgreSQL connection on which a statement failed is not used again."""
        with self._sent(calls) as cursors:
            if self._pipeline is not None:
                # Before any fetch, which would send a flush: after a flush the server does not end the transaction of
                # a client that stops (idle_in_transaction_session_timeout).
                self._pipeline.sync()
            return [
                call.statement.converted(cursor.fetchall()) if call.statement.returns else ()
                for cursor, call in zip(cursors, calls, strict=True)
            ]

    def write(self, *calls: Call) -> None:
        """As the base class."""
        if self._pipelined:
            self._writes += calls
        else:
            self.run(*calls)

    def commit(self) -> None:
        """Commit, as :func:`commit_or_drop`. Raises SQLAlchemy's errors."""
        if self._pipelined:
            with self._sent([*self._writes, Call(self.made.commit)]):
                self._leave()
        commit_or_drop(self.connection)  # after a pipeline the transaction has ended, and nothing is sent

    @contextmanager
    def _sent(self, calls: Sequence[Call]) -> Iterator[list[Any]]:
        """The cursors of statements that the driver has executed or, in a pipeline, sent."""
        with self._wrapped("; ".join([call.statement.text for call in calls])), ExitStack() as opened:
            cursors = [opened.enter_context(closing(self._driver.cursor())) for _ in calls]
            for cursor, (statement, many) in zip(cursors, calls, strict=True):
                if len(many) > 1:
                    cursor.executemany(statement.text, [statement.bound(values) for values in many])
                else:
                    cursor.execute(statement.text, statement.bound(many[0]))
            yield cursors

    def _leave(self) -> None:
        """End the pipeline, which waits for the results of everything that was sent. Raises the driver's errors."""
        block, self._block, self._pipeline = self._block, nullcontext(), None
        # Without an exception, which psycopg would log.
        block.__exit__(None, None, None)

    @contextmanager
    def _wrapped(self, text: str) -> Iterator[None]:
        """Raise the driver's errors as SQLAlchemy does. After a lost connection the pool opens new ones."""
        dialect = self.connection.dialect
        driver = dialect.loaded_dbapi
        try:
            yield
        except driver.Error as raised:
            error: Any = raised
            if self._pipelined and isinstance(raised, driver.errors.PipelineAborted):
                # The end of a pipeline raises what followed from the first error.
                error = raised.__context__ if isinstance(raised.__context__, driver.Error) else raised
            lost = dialect.is_disconnect(error, self._driver, None)
            if lost or self._pipelined:
                self.connection.invalidate(error)
            if lost:
                self.connection.engine.dispose()
            raise DBAPIError.instance(
                text, None, error, driver.Error, hide_parameters=True, connection_invalidated=lost, dialect=dialect
            ) from error
