"""Executes prepared statements, here through SQLAlchemy: in a user's session, and for maintenance.

A user's session keeps its events (for example those of tracing). The store's own transactions are executed by the
driver (:mod:`.own_transaction`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Dialect

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


class ConnectionExecutor(Executor):
    """Statements in the transaction of a SQLAlchemy connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.dialect)
        self._connection = connection

    @property
    def info(self) -> MutableMapping[Any, Any]:
        """As the base class."""
        return self._connection.connection.info

    def run(self, *calls: Call) -> list[Rows]:
        """As the base class."""
        found: list[Rows] = []
        for statement, many in calls:
            bound = [statement.bound(values) for values in many]
            result = self._connection.exec_driver_sql(statement.text, bound if len(bound) > 1 else bound[0])
            found.append(statement.converted(result.all()) if statement.returns else ())
        return found

    def write(self, *calls: Call) -> None:
        """As the base class, at once."""
        self.run(*calls)
