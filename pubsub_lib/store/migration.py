"""Checks whether a database has this library's schema, and which revision; creates the schema, migrates an older one.

Alembic is imported only to create or migrate a schema; the usual opening is one query.
"""

import hashlib
import importlib.resources
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine, column, inspect, select, text
from sqlalchemy import table as table_clause
from sqlalchemy.exc import SQLAlchemyError

from pubsub_lib.errors import SchemaError, StoreBusy
from pubsub_lib.store import url
from pubsub_lib.store.schema import REVISION, VERSION_TABLE, metadata

KNOWN: Final = ("0001", "0002", "0003", "0004", "0005")
"""All revisions, oldest first."""
_LOCK_KEY: Final = 0x7075627375625F6C
"""PostgreSQL's advisory lock for creating and migrating (an arbitrary number of our own)."""
_PATIENT: Final = text(
    "SELECT set_config(name, CASE setting WHEN '0' THEN '0' ELSE GREATEST(CAST(setting AS integer), 120000)::text END, "
    "true) FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
)
"""Lets PostgreSQL wait for 120 s or longer for the next statement of a migration, in place of the store's idle timeout.
Between two statements Alembic is imported and works: on a busy host for longer than a writer may hold the counter.
"""
_IDLE: Final = text("SET SESSION idle_transaction_timeout = :seconds")


def check(connection: Connection) -> bool:
    """Whether the database has our current schema; False when it is empty (or its creation was interrupted).

    Raises SchemaError when it is older, newer, or holds foreign tables with our names.
    """
    present = set(inspect(connection).get_table_names())
    ours = sorted(present & set(metadata.tables))
    if VERSION_TABLE not in present:
        if ours:
            raise SchemaError(
                f"the database holds a table {ours[0]} that is not this library's; use another database or rename it"
            )
        return False
    versions = table_clause(VERSION_TABLE, column("version_num"))
    found = [str(revision) for revision in connection.execute(select(versions.c.version_num)).scalars()]
    if found == [REVISION]:
        missing = sorted(set(metadata.tables) - present)
        if missing:
            raise SchemaError(f"the database lacks the table {missing[0]}; restore it from a backup")
        return True
    if not found:
        return False
    if len(found) == 1 and found[0] in KNOWN:
        raise Older(f"the database has the schema {found[0]}, this library needs {REVISION}; run pubsub-db migrate")
    raise SchemaError(
        f"the database has the schema {', '.join(found)}, unknown to this library, which has {REVISION}; "
        "install a newer one"
    )


class Older(SchemaError):
    """The schema is this library's and older: migrate() upgrades it."""


def require(connection: Connection) -> None:
    """Reject a database without the current schema. Raises SchemaError."""
    if not check(connection):
        name = url.shown(connection.engine.url)
        raise SchemaError(
            f"the database {name} holds no tables of this library; correct the URL, or create them by pubsub-db init"
        )


def ensure(readers: Engine, writers: Engine, lock_seconds: float) -> None:
    """Create the schema in an empty database. Safe when several processes do so at once. Raises SchemaError.

    Checks by a reader first: opening an existing schema needs no right to write, and does not wait for writers.
    """
    try:
        with readers.connect() as connection:
            if check(connection):
                return
    except Older:
        # MariaDB and MySQL commit every statement of a migration by itself: another process may be between two of them.
        with writers.connect() as connection, _locked(connection, lock_seconds):
            require(connection)
        return
    upgrade(writers, lock_seconds)


def upgrade(engine: Engine, lock_seconds: float) -> None:
    """Bring an empty or older schema to the current revision, one process at a time."""
    _prepare_sqlite(engine)
    with engine.connect() as connection, _locked(connection, lock_seconds):
        try:
            if check(connection):
                return
        except Older:
            pass
        _run_alembic(connection)
        if connection.in_transaction():
            connection.commit()


def _run_alembic(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("path_separator", "os")
    with importlib.resources.as_file(importlib.resources.files("pubsub_lib.store") / "migrations") as folder:
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _prepare_sqlite(engine: Engine) -> None:
    """WAL is a property of the file, and cannot be set inside a transaction."""
    if engine.dialect.name != "sqlite":
        return
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        cursor.execute("PRAGMA journal_mode")
        row = cursor.fetchone()
        if row is None or row[0] != "wal":
            cursor.execute("PRAGMA journal_mode=WAL")
        cursor.close()
    finally:
        raw.close()


@contextmanager
def _locked(connection: Connection, lock_seconds: float) -> Iterator[None]:
    """One creator at a time. SQLite: the transaction itself is the lock; PostgreSQL: so is a lock bound to it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        connection.execute(_PATIENT)
        yield
    elif connection.dialect.name == "mysql":
        database = connection.execute(text("SELECT DATABASE()")).scalar_one()
        name = "pubsub_lib." + hashlib.sha256(str(database).encode()).hexdigest()[:40]
        got = connection.execute(text("SELECT GET_LOCK(:name, :seconds)"), {"name": name, "seconds": lock_seconds})
        if got.scalar_one() != 1:
            raise StoreBusy(f"another process is creating or migrating the schema for over {lock_seconds} s; try again")
        mariadb = getattr(connection.dialect, "is_mariadb", False)
        before = connection.execute(text("SELECT @@idle_transaction_timeout")).scalar_one() if mariadb else None
        if before:
            connection.execute(_IDLE, {"seconds": max(before, 120)})
        try:
            yield
        finally:
            try:
                connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name})
                if before:
                    connection.execute(_IDLE, {"seconds": before})
            except SQLAlchemyError:
                connection.invalidate()  # the server releases the lock; the error of the migration is raised
    else:
        yield
