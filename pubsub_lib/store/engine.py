"""The two engines of a store, writers' and readers', with isolation and timeouts set on every connection.

Rule S4: writers READ COMMITTED with row locks, readers one read-only REPEATABLE READ snapshot a transaction. SQLite:
WAL; writers ``BEGIN IMMEDIATE``, readers on an engine of their own, because an IMMEDIATE reader locks writers out.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection, ExecutionContext

from pubsub_lib.errors import ConfigError, StoreReadOnly
from pubsub_lib.store import sqlite
from pubsub_lib.store.fork_safety import ForkGate, GatedPool
from pubsub_lib.store.settings import StoreSettings

_BULK: Final = ("PRAGMA wal_autocheckpoint=16000", "PRAGMA cache_size=-8000")
"""For a program that writes many large transactions to SQLite: a log of 64 MB, a cache of 8 MB.

By default SQLite copies its log into the file, and syncs both, after each 1,000 pages (4 MB), and reads most pages
again, because its cache has 2 MB: a bulk load then takes half as long again. For small transactions the short log is
better: SQLite overwrites it sooner, and a write that does not lengthen a file is synced faster."""

_IN_INDEX_ORDER: Final = {"enable_sort": "off", "enable_bitmapscan": "off", "jit": "off"}
"""For readers on PostgreSQL, whose pages an index has in their order. After a bulk load the server lacks statistics; it
then takes all rows behind a page's begin for a few, reads and sorts them for each page, and so reads a topic of 30,000
objects seven times. A sort that no index replaces gets an enormous cost, for which the server would compile the
statement."""

_ONE_SNAPSHOT: Final = {"default_transaction_isolation": "repeatable read"}
"""For readers on PostgreSQL: the statements of one round trip are a transaction without a BEGIN (:mod:`.following`)."""


_BINARY: Final = "pubsub_binary_result"
BINARY_RESULT: Final[Mapping[str, Any]] = MappingProxyType({_BINARY: True})
"""An execution option for statements that read values: PostgreSQL sends the rows as bytes. As text, which is psycopg's
default, each byte of a value takes two. Without effect on other databases."""
_PYMYSQL_EXTRAS: Final = {"'cryptography' package": "PyMySQL[rsa]", "'pynacl' package": "PyMySQL[ed25519]"}
"""What to install, by a part of the error."""
_READERS_IDLE: Final = 3600.0
"""Seconds. A program, a slow disk or a pipe may delay a reading between two pages, and no writer waits for it. But a
reading that a program forgets keeps the server from removing old rows."""
_STANDBY: Final = (
    "{} is a standby, which can only be read; use the primary, or set role = standby in [publisher_service] if this is "
    "a service that is to answer syncs alone"
)


def pair(url: URL, settings: StoreSettings, *, primary: bool, bulk: bool = False) -> tuple[Engine, Engine]:
    """The engines of the writers and of the readers of one store, not connected yet. ``bulk``: for many large
    transactions.
    """
    gate = ForkGate(settings.lock_timeout)
    return (
        make(url, settings, writes=True, primary=primary, gate=gate, bulk=bulk),
        make(url, settings, writes=False, primary=primary, gate=gate),
    )


def make(
    url: URL, settings: StoreSettings, *, writes: bool, primary: bool, gate: ForkGate | None = None, bulk: bool = False
) -> Engine:
    """An engine that is not connected yet. ``writes``: for writers; ``primary``: refuse a PostgreSQL standby.

    ``gate``: the store's gate for all its SQLite connections; by default a new one.
    """
    backend = url.get_backend_name()
    if backend == "sqlite":
        return _sqlite(url, settings, writes, gate or ForkGate(settings.lock_timeout), _BULK if bulk else ())
    if backend == "postgresql":
        return _postgresql(url, settings, writes, primary)
    return _mysql(url, settings, writes)


def _create(url: URL, settings: StoreSettings, **more: Any) -> Engine:
    return create_engine(
        url,
        poolclass=GatedPool,
        pool_timeout=settings.lock_timeout,
        # Our errors name the failure; values of the users do not belong into logs.
        hide_parameters=True,
        **more,
    )


def _sqlite(url: URL, settings: StoreSettings, writes: bool, gate: ForkGate, more: Sequence[str]) -> Engine:
    # One connection for all writing threads of a process: they queue here fairly, instead of polling the file.
    size = {"pool_size": 1, "max_overflow": 0} if writes else _pool(settings)
    arguments = {"timeout": settings.lock_timeout, "check_same_thread": False}
    engine = _create(url, settings, connect_args=arguments, **size)
    assert isinstance(engine.pool, GatedPool)
    engine.pool.join(gate)
    sqlite.watch(engine)

    @event.listens_for(engine, "connect")
    def _connected(dbapi: DBAPIConnection, _record: object) -> None:
        dbapi.isolation_level = None  # the driver must not begin by itself
        cursor = dbapi.cursor()
        cursor.execute("PRAGMA synchronous=FULL")
        for each in more if writes else ("PRAGMA query_only=ON",):
            cursor.execute(each)
        cursor.close()

    begin = "BEGIN IMMEDIATE" if writes else "BEGIN"

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # By the driver itself: SQLAlchemy's own way takes 30 times as long.
        connection.connection.cursor().execute(begin)

    return engine


def _postgresql(url: URL, settings: StoreSettings, writes: bool, primary: bool) -> Engine:
    from psycopg.pq import Format  # other databases do not need psycopg

    engine = _create(
        url,
        settings,
        isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
        connect_args={
            "connect_timeout": max(2, math.ceil(settings.connect_timeout)),
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": math.ceil(settings.statement_timeout * 1000),
            "application_name": "pubsub_lib",
        },
        **_pool(settings),
    )
    options = {
        "statement_timeout": math.ceil(settings.statement_timeout * 1000),
        "lock_timeout": math.ceil(settings.lock_timeout * 1000),
        "idle_in_transaction_session_timeout": math.ceil(_idle_timeout(settings, writes) * 1000),
        "default_transaction_read_only": "off" if writes else "on",
        **({} if writes else _IN_INDEX_ORDER | _ONE_SNAPSHOT),
    }

    @event.listens_for(engine, "connect")
    def _connected(dbapi: DBAPIConnection, _record: object) -> None:
        if writes:
            dbapi.prepare_threshold = None  # psycopg would also deallocate the statements of postgres_trip
        before = dbapi.autocommit
        dbapi.autocommit = True
        cursor = dbapi.cursor()
        cursor.execute("; ".join(f"SET {name} = '{value}'" for name, value in options.items()))
        cursor.execute("SELECT pg_is_in_recovery(), current_setting('server_encoding')")
        row = cursor.fetchone()
        cursor.close()
        dbapi.autocommit = before
        if row is not None and row[1] != "UTF8":
            raise ConfigError(f"the database {url.database} has the encoding {row[1]}; create it with ENCODING 'UTF8'")
        if primary and row is not None and row[0]:
            raise StoreReadOnly(_STANDBY.format(url.host))

    @event.listens_for(engine, "before_cursor_execute")
    def _choose_format(
        _connection: object, cursor: Any, _statement: str, _values: object, context: ExecutionContext, _many: bool
    ) -> None:
        if context.execution_options.get(_BINARY):
            cursor.format = Format.BINARY

    return engine


def _mysql(url: URL, settings: StoreSettings, writes: bool) -> Engine:
    grace = math.ceil(settings.statement_timeout) + 5  # the server's own timeout should be received first
    engine = _create(
        url,
        settings,
        isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
        connect_args={
            "connect_timeout": math.ceil(settings.connect_timeout),
            "read_timeout": grace,
            "write_timeout": grace,
        },
        **_pool(settings),
    )

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]) -> DBAPIConnection:
        try:
            return dialect.connect(*arguments, **options)
        except RuntimeError as error:
            # pymysql's error for a user whose authentication needs another package; it is no error of the database.
            extra = next((extra for package, extra in _PYMYSQL_EXTRAS.items() if package in str(error)), None)
            if extra is None:
                raise
            raise ConfigError(
                f"cannot log in to {url.host} as {url.username}: {error}; run pip install '{extra}'"
            ) from error

    @event.listens_for(engine, "connect")
    def _connected(dbapi: DBAPIConnection, _record: object) -> None:
        cursor = dbapi.cursor()
        cursor.execute("SELECT VERSION()")
        row = cursor.fetchone()
        mariadb = row is not None and "mariadb" in str(row[0]).lower()
        # Without strict mode MySQL truncates a value that is too long, without an error.
        wanted: list[str] = [
            "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
            f"innodb_lock_wait_timeout = {math.ceil(settings.lock_timeout)}",
        ]
        if mariadb:
            wanted.append(f"max_statement_time = {settings.statement_timeout}")
            wanted.append(f"idle_transaction_timeout = {math.ceil(_idle_timeout(settings, writes))}")
        else:
            wanted.append(f"max_execution_time = {math.ceil(settings.statement_timeout * 1000)}")
        cursor.execute("SET " + ", ".join(f"SESSION {setting}" for setting in wanted))
        if not writes:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")
        cursor.close()

    return engine


def _idle_timeout(settings: StoreSettings, writes: bool) -> float:
    """Seconds for which a transaction may be idle."""
    own = settings.idle_in_transaction_timeout
    return own if writes else max(own, _READERS_IDLE)


def _pool(settings: StoreSettings) -> dict[str, int]:
    return {"pool_size": settings.pool_size, "max_overflow": settings.pool_size}
