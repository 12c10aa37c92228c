"""Executes prepared statements through SQLAlchemy: in a user's session, and for maintenance.

A user's session keeps its events (for example those of tracing).
"""

from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Dialect

from pubsub_lib.store import absent, links
from pubsub_lib.store.executor import Executor
from pubsub_lib.store.prepared import Call, Rows


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


def dialect_of(connection: Connection) -> Dialect:
    """The dialect for which this library writes its statements. SQLAlchemy has another one for MariaDB, by the URL
    alone; the statements and types here know the dialect of MySQL, which the store's own engines use for both servers.
    """
    dialect = connection.dialect
    return _mariadb(dialect.paramstyle) if dialect.name == "mariadb" else dialect


@cache
def _mariadb(style: str) -> Dialect:
    """One for each style of parameters, so that its statements are prepared once."""
    from sqlalchemy.dialects import mysql  # other databases do not need it

    return mysql.dialect(paramstyle=style, is_mariadb=True)


def commits_each_statement(connection: Connection) -> bool:
    """Whether the driver commits each statement alone (SQLAlchemy's level AUTOCOMMIT, or a setting of the driver)."""
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite":
        # Without isolation level the driver does not begin by itself, but a listener of the engine may have begun.
        native: Any = connection.connection.driver_connection
        return driver.isolation_level is None and not native.in_transaction
    asks = getattr(driver, "get_autocommit", None)  # MySQL's drivers, whose autocommit is a function that sets it
    if asks is not None:
        return bool(asks())
    return not callable(driver.autocommit) and bool(driver.autocommit)  # some adapters of SQLAlchemy cannot be asked


class ConnectionExecutor(Executor):
    """Statements in the transaction of a SQLAlchemy connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(dialect_of(connection))
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

    def advance(self, by: int, nonce: int, topics: Sequence[str], missing: absent.Absent = absent.NONE) -> links.Step:
        """As the base class. An error for one of the ``missing`` objects leaves the counter as it was: a program that
        commits its session in spite of the error would otherwise write a counter without a link.
        """
        if missing:
            made = self.made
            # InnoDB's REPEATABLE READ would show an old state. PostgreSQL's fails at the counter, after another commit.
            find = made.lock_objects if self.dialect.name == "mysql" else made.find_objects
            found = self.run(Call(made.read_counter), *self.of_objects(find, absent.by_table(missing)))
            absent.check(missing, found[1:])
        return super().advance(by, nonce, topics)

    def write(self, *calls: Call) -> None:
        """As the base class, at once."""
        self.run(*calls)
