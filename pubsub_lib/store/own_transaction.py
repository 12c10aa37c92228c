"""One transaction of the store's own, executed by the driver.

It skips SQLAlchemy's work for each statement, which takes 50 times as long as SQLite's for the same statement. The
connection comes from SQLAlchemy's pool and returns there.
"""

from collections.abc import MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, cast

from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError

from pubsub_lib.store.executor import Call, Executor
from pubsub_lib.store.prepared import Rows


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
        self._pipelined = engine.dialect.name == "postgresql"
        self._pooled: PoolProxiedConnection | None = None
        self._driver: Any = None
        self._block: AbstractContextManager[Any] = nullcontext()
        self._pipeline: Any = None
        self._writes: list[Call] = []

    @property
    def info(self) -> MutableMapping[Any, Any]:
        """As the base class."""
        assert self._pooled is not None, "the transaction has not begun"
        return self._pooled.info

    def __enter__(self) -> Self:
        begin = self.made.begin
        try:
            self._pooled = self._engine.raw_connection()
            self._driver = self._pooled.driver_connection
            if self._pipelined:
                self._driver.autocommit = True  # psycopg's own BEGIN waits for its answer
                self._block = self._driver.pipeline()
                self._pipeline = self._block.__enter__()
            if begin is not None:
                self._driver.execute(begin.text)
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
        if self._pipelined and kind is not None:
            self._drop()  # first, because the end of a pipeline waits for the server
        try:
            if self._pipelined:
                self._leave()
                if self._driver is not None:
                    self._driver.autocommit = False
        except BaseException as error:
            self._drop()  # its next user would get another mode
            if not isinstance(error, self._error):
                raise
        finally:
            if self._pooled is not None and self._pooled.is_valid:
                self._pooled.close()

    def run(self, *calls: Call) -> list[Rows]:
        """As the base class. A PostgreSQL connection on which a statement failed is not used again."""
        cursors: list[Any] = []
        try:
            self._send(calls, cursors)
            if self._pipeline is not None:
                # Before any fetch, which would send a flush: after a flush the server does not end the transaction of
                # a client that stops (idle_in_transaction_session_timeout).
                self._pipeline.sync()
            return [
                call.statement.converted(cursor.fetchall()) if call.statement.returns else ()
                for cursor, call in zip(cursors, calls, strict=True)
            ]
        except self._error as error:
            raise self._wrapped(error, _text(calls)) from error
        finally:
            for cursor in cursors:
                cursor.close()

    def write(self, *calls: Call) -> None:
        """As the base class."""
        if self._pipelined:
            self._writes += calls
        else:
            self.run(*calls)

    def commit(self) -> None:
        """Commit; a connection whose COMMIT failed is not used again (see :func:`.commit_or_drop`).

        Raises SQLAlchemy's errors.
        """
        cursors: list[Any] = []
        try:
            if self._pipelined:
                self._writes.append(Call(self.made.commit))
                self._send(self._writes, cursors)
                self._leave()
            else:
                self._driver.commit()
        except self._error as error:
            wrapped = self._wrapped(error, _text(self._writes) or "COMMIT")  # a dropped connection would look lost
            self._drop()
            raise wrapped from error
        except BaseException:
            self._drop()
            raise
        finally:
            for cursor in cursors:
                cursor.close()

    def rollback(self) -> None:
        """Undo the transaction. Raises SQLAlchemy's errors."""
        try:
            self._driver.rollback()
        except self._error as error:
            raise self._wrapped(error, "ROLLBACK") from error

    def _send(self, calls: Sequence[Call], cursors: list[Any]) -> None:
        """Execute statements, or send them in a pipeline; ``cursors`` gets the cursor of each."""
        for statement, many in calls:
            cursor = self._driver.cursor()
            cursors.append(cursor)
            if len(many) > 1:
                cursor.executemany(statement.text, [statement.bound(values) for values in many])
            else:
                cursor.execute(statement.text, statement.bound(many[0]))

    def _leave(self) -> None:
        """End the pipeline, which waits for the results of everything that was sent. Raises the driver's errors."""
        block, self._block, self._pipeline = self._block, nullcontext(), None
        # Without an exception, which psycopg would log.
        block.__exit__(None, None, None)

    def _drop(self, error: BaseException | None = None) -> None:
        """Do not use the connection again."""
        if self._pooled is not None and self._pooled.is_valid:
            self._pooled.invalidate(error)

    def _wrapped(self, raised: Exception, text: str) -> DBAPIError:
        """The error as SQLAlchemy raises it. After a lost connection the pool opens new ones."""
        error: Any = raised
        if self._pipelined and isinstance(raised, self.dialect.loaded_dbapi.errors.PipelineAborted):
            # The end of a pipeline raises what followed from the first error.
            error = raised.__context__ if isinstance(raised.__context__, self._error) else raised
        lost = self.dialect.is_disconnect(error, self._driver, None)
        if lost or self._pipelined:
            self._drop(error)
        if lost and self._driver is not None:
            self._engine.dispose()
        wrapped: DBAPIError = DBAPIError.instance(
            text, None, error, self._error, hide_parameters=True, connection_invalidated=lost, dialect=self.dialect
        )
        return wrapped


def _text(calls: Sequence[Call]) -> str:
    return "; ".join([call.statement.text for call in calls])
