"""Real errors of the databases become typed errors of this library with one clear sentence."""

import errno
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pymysql
import pytest
from psycopg import errors
from sqlalchemy import Engine, create_engine, exc, text

from pubsub_lib.core.model import ZERO
from pubsub_lib.errors import (
    ConfigError,
    PubSubError,
    SchemaError,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from pubsub_lib.store import Store, StoreSettings, error_mapping, retry
from tests.unit.store.conftest import Opener

IMPATIENT = StoreSettings(retry_attempts=2, lock_timeout=1.0, retry_max_seconds=5.0)


def write(store: Store, value: object = 1) -> None:
    with store.transaction() as tx:
        tx.set("t", "k", value)


def lock(engine: Engine) -> AbstractContextManager[object]:
    """Lock the counter, like a writer that has stopped."""
    context = engine.begin()
    return _Held(context)


class _Held:
    def __init__(self, context: AbstractContextManager[object]) -> None:
        self._context = context

    def __enter__(self) -> None:
        connection = self._context.__enter__()
        connection.execute(text("UPDATE pubsub_store SET nonce = nonce"))  # type: ignore[attr-defined]

    def __exit__(self, *exc_info: object) -> None:
        self._context.__exit__(None, None, None)


def test_locked_database_raises_store_busy_after_retries(open_store: Opener, database_url: str) -> None:
    store = open_store(settings=IMPATIENT)
    engine = create_engine(database_url)
    with lock(engine), pytest.raises(StoreBusy, match="try again"):
        write(store)
    write(store)
    engine.dispose()


def test_released_lock_is_waited_for(open_store: Opener, database_url: str) -> None:
    store = open_store()
    engine = create_engine(database_url)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock(engine):
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20)
    timer = threading.Timer(0.3, release.set)
    timer.start()
    write(store)
    thread.join()
    timer.join()
    engine.dispose()
    assert store.get("t", "k") == 1


def test_read_only_sqlite_file_raises_store_read_only(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        write(store)
    with Store(sqlite_url.replace("sqlite:///", "sqlite:///file:") + "?mode=ro&uri=true", settings=IMPATIENT) as store:
        assert store.get("t", "k") == 1
        with pytest.raises(StoreReadOnly, match=r"may not write .* mode in the URL"):
            write(store, 2)


@pytest.mark.parametrize(
    ("name", "kind", "advice"),
    [
        ("text", SchemaError, "not a SQLite database; correct the URL"),
        (".", StoreUnavailable, "cannot be opened; see its path, and the rights"),
        ("text/net.db", StoreUnavailable, "cannot be opened; see its path, and the rights"),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_invalid_database_file_is_named_with_advice(
    name: str, kind: type[PubSubError], advice: str, read_only: bool, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at. " * 50)
    with pytest.raises(kind, match=advice):
        Store(f"sqlite:///{tmp_path / name}", read_only=read_only).topics()


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailable, "see its path, and the rights"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, StoreReadOnly, "see the rights on both"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, StoreUnavailable, "see whether it has room"),  # a full disk, when opening
        (sqlite3.SQLITE_CORRUPT, StoreError, "restore it from a backup"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy, "try again"),
    ],
)
def test_file_error_has_no_advice_about_a_server(code: int, kind: type[PubSubError], advice: str) -> None:
    error = sqlite3.OperationalError("SQLite's own text")
    error.sqlite_errorcode = code
    got = error_mapping.translate(exc.OperationalError("SELECT 1", None, error), "reading")
    assert type(got) is kind
    assert advice in str(got)
    assert str(got).endswith(" (SQLite's own text)")


@pytest.mark.parametrize(
    "text",
    [
        "SSL error: certificate verify failed",
        'server certificate for "db" does not match host name "db2"',
        "server does not support SSL, but SSL was required",
        'root certificate file "/no/such" does not exist',
    ],
)
def test_refused_certificate_has_no_advice_about_a_server_that_does_not_run(text: str) -> None:
    got = error_mapping.translate(exc.OperationalError("", None, psycopg.OperationalError(text)), "opening it")
    assert str(got).startswith("opening it failed: the server is not verified; see the TLS options of the URL")
    assert str(got).endswith(f" ({text})")


def test_file_error_names_the_missing_rights() -> None:
    got = error_mapping.translate(PermissionError(errno.EACCES, "Permission denied", "/var/lib/net.db"), "opening it")
    assert type(got) is StoreUnavailable
    assert "see its path, and the rights" in str(got)
    assert "whether it runs" in str(error_mapping.translate(ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "x"))


def test_read_only_server_raises_store_read_only(postgres_url: str) -> None:
    with Store(postgres_url, settings=IMPATIENT) as store:
        with store._writers.connect() as connection:
            connection.execute(text("SET default_transaction_read_only = on"))
            connection.commit()
        with pytest.raises(StoreReadOnly):
            write(store)


def test_full_database_raises_store_full(sqlite_url: str) -> None:
    """On SQLite by its page limit; on the servers the same codes come from a full disk (docs)."""
    with Store(sqlite_url, settings=IMPATIENT) as store:
        write(store)
        with store._writers.connect() as connection:
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            connection.execute(text(f"PRAGMA max_page_count = {pages}"))
        before = store.read_heads([]).store
        with pytest.raises(StoreFull, match="free disk space first"):
            write(store, "x" * 100_000)
        assert store.read_heads([]).store == before
        assert store.get("t", "k") == 1


def _run(store: Store, query: str) -> None:
    with store._readers.connect() as connection:
        connection.execute(text(query)).all()


def test_statement_timeout_raises_store_unavailable(open_store: Opener) -> None:
    store = open_store(settings=StoreSettings(statement_timeout=1.5, retry_attempts=1))
    query = {"postgresql": "SELECT pg_sleep(20)", "mysql": "SELECT SLEEP(20) FROM pubsub_store"}.get(
        store._readers.dialect.name
    )
    if query is None:
        return  # SQLite has no statement timeout, and no statements of other clients to wait for
    with pytest.raises(StoreUnavailable, match="in time"), error_mapping.translated("sleeping"):
        _run(store, query)


def test_missing_tables_raise_schema_error(open_store: Opener, database_url: str) -> None:
    store = open_store()
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE pubsub_topics"))
    engine.dispose()
    with pytest.raises(PubSubError, match="reading heads"):
        store.topics()


def test_wrong_password_raises_config_error(mariadb_url: str) -> None:
    with pytest.raises(ConfigError, match="password") as caught:
        Store(mariadb_url.replace("root@", "stranger:secret-word@"))
    assert "secret-word" not in str(caught.value)


def test_server_that_accepts_and_never_answers_is_unavailable_after_retries() -> None:
    """As with a host whose packets are dropped: psycopg ends the attempt by its own timeout, without a SQLSTATE."""
    settings = StoreSettings(connect_timeout=2.0, retry_attempts=2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        store = Store(f"postgresql://user@127.0.0.1:{port}/net", settings=settings, create=False)
        with store, pytest.raises(StoreUnavailable, match="see whether it runs"):
            store.topics()
        server.setblocking(False)
        for _ in range(settings.retry_attempts):
            server.accept()[0].close()
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("number", [1040, 1047, 1203, 1226])
def test_limit_of_a_mysql_server_is_tried_again(number: int) -> None:
    """Too many connections of all, or of one user; a Galera node that is not ready."""
    error = exc.OperationalError("SELECT 1", None, pymysql.err.OperationalError(number, "the server's own text"))
    assert error_mapping.kind_of(error) is StoreUnavailable
    assert StoreUnavailable in retry.TRANSIENT


def test_connections_limit_of_a_mariadb_user_is_unavailable(mariadb_url: str) -> None:
    engine = create_engine(mariadb_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE USER limited@'127.0.0.1' WITH MAX_USER_CONNECTIONS 1"))
        connection.execute(text(f"GRANT ALL ON {engine.url.database}.* TO limited@'127.0.0.1'"))
    limited = create_engine(mariadb_url.replace("root@", "limited@"))
    try:
        with limited.connect(), pytest.raises(StoreUnavailable, match="max_user_connections"):
            Store(mariadb_url.replace("root@", "limited@"), settings=IMPATIENT)
    finally:
        limited.dispose()
        with engine.begin() as connection:
            connection.execute(text("DROP USER limited@'127.0.0.1'"))
        engine.dispose()


def test_lost_counter_row_is_named(open_store: Opener, database_url: str) -> None:
    store = open_store()
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM pubsub_store"))
    engine.dispose()
    actions: list[Callable[[], object]] = [lambda: write(store), store.topics, lambda: store.read_links(ZERO, 1)]
    for action in actions:
        with pytest.raises(StoreError, match="pubsub_store"):
            action()


def test_commit_with_unknown_outcome_is_in_doubt() -> None:
    """SQLSTATE 40003; after the other codes of its class the transaction is rolled back."""
    for original, kind, refused in (
        (errors.StatementCompletionUnknown(), StoreUnavailable, False),
        (errors.AdminShutdown(), StoreUnavailable, False),
        (errors.SerializationFailure(), StoreBusy, True),
        (errors.DeadlockDetected(), StoreBusy, True),
        (errors.UniqueViolation(), StoreBusy, True),
        (errors.NumericValueOutOfRange(), StoreError, True),
        (psycopg.OperationalError("the connection is closed"), StoreUnavailable, False),
        (errors.ConnectionTimeout("connection timeout expired"), StoreUnavailable, False),
        (pymysql.err.OperationalError(2013, "lost connection"), StoreUnavailable, False),
        (pymysql.err.OperationalError(1213, "deadlock"), StoreBusy, True),
        (pymysql.err.OperationalError(1180, "error during COMMIT"), StoreError, False),
        (sqlite3.OperationalError("disk I/O error"), StoreError, False),
    ):
        error = exc.DBAPIError("COMMIT", None, original)
        assert error_mapping.kind_of(error) is kind
        assert error_mapping.is_refused(error) is refused
    lost = exc.DBAPIError("COMMIT", None, errors.UniqueViolation(), connection_invalidated=True)
    assert not error_mapping.is_refused(lost)


def test_translated_lets_no_foreign_exception_out() -> None:
    for error in (exc.InvalidRequestError("x"), sqlite3.OperationalError("y"), OSError(5, "z"), exc.TimeoutError()):
        with pytest.raises(PubSubError) as caught, error_mapping.translated("testing"):
            raise error
        assert caught.value.__cause__ is error
        assert str(caught.value).startswith("testing failed: ")
