"""The options of every connection (rule S4): isolation, timeouts, read-only readers."""

import sqlite3
import time
from typing import Any

import pymysql
import pytest
from psycopg.pq import Format
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError

from pubsub_lib.core.model import ZERO, Full, Want
from pubsub_lib.errors import ConfigError
from pubsub_lib.store import Store, StoreSettings, schema
from tests.unit.store.conftest import Opener

SETTINGS = StoreSettings(statement_timeout=7.0, lock_timeout=3.0, idle_in_transaction_timeout=4.0, pool_size=2)


def ask(engine: Engine, *queries: str) -> list[str]:
    with engine.connect() as connection:
        return [str(connection.execute(text(query)).scalar_one()) for query in queries]


@pytest.mark.parametrize("which", ["_writers", "_readers"])
def test_isolation_timeouts_are_set(which: str, open_store: Opener) -> None:
    engine: Engine = getattr(open_store(settings=SETTINGS), which)
    writes = which == "_writers"
    idle = 4 if writes else 3600
    match engine.dialect.name:
        case "postgresql":
            names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
            assert ask(engine, *(f"SHOW {name}" for name in names)) == ["7s", "3s", "4s" if writes else "1h"]
        case "mysql":
            names = ("max_statement_time", "innodb_lock_wait_timeout", "idle_transaction_timeout")
            assert [float(each) for each in ask(engine, *(f"SELECT @@{name}" for name in names))] == [7, 3, idle]
            assert "STRICT_ALL_TABLES" in ask(engine, "SELECT @@sql_mode")[0]
        case _:
            assert ask(engine, "PRAGMA busy_timeout", "PRAGMA synchronous") == ["3000", "2"]


def test_readers_idle_timeout_is_never_shorter_than_the_writers(postgres_url: str) -> None:
    with Store(postgres_url, settings=StoreSettings(idle_in_transaction_timeout=7200.0)) as store:
        for engine in (store._writers, store._readers):
            assert ask(engine, "SHOW idle_in_transaction_session_timeout") == ["2h"]


def test_program_may_be_slow_between_the_pages_of_a_reading(open_store: Opener) -> None:
    """The timeout of an idle transaction is for writers, whose locks block others."""
    store = open_store(settings=StoreSettings(page_size=1, idle_in_transaction_timeout=0.5))
    with store.transaction() as tx:
        tx.set("t", "a", 1)
        tx.set("t", "b", 2)
    found = []
    for each in store.records("t"):
        time.sleep(1.5)
        found.append(each.key)
    assert sorted(found) == ["a", "b"]


@pytest.mark.parametrize(("bulk", "pages"), [(False, "1000"), (True, "16000")])
def test_bulk_writer_of_sqlite_copies_its_log_less_often(bulk: bool, pages: str, sqlite_url: str) -> None:
    with Store(sqlite_url, bulk=bulk) as store:
        assert ask(store._writers, "PRAGMA wal_autocheckpoint", "PRAGMA synchronous") == [pages, "2"]
        assert ask(store._readers, "PRAGMA wal_autocheckpoint", "PRAGMA query_only") == ["1000", "1"]


def test_isolation(store: Store) -> None:
    queries = {
        "postgresql": "SHOW transaction_isolation",
        "mysql": "SELECT @@tx_isolation",
    }
    query = queries.get(store._writers.dialect.name)
    if query is None:
        assert not in_transaction_before_begin(store)
        return
    levels = [ask(engine, query)[0].lower().replace("-", " ") for engine in (store._writers, store._readers)]
    assert levels == ["read committed", "repeatable read"]


def in_transaction_before_begin(store: Store) -> bool:
    """SQLite: whether the driver begins by itself."""
    raw = store._writers.raw_connection()
    try:
        return bool(raw.driver_connection.in_transaction)  # type: ignore[union-attr]
    finally:
        raw.close()


def test_isolation_readers_cannot_write(store: Store) -> None:
    with store._readers.connect() as connection, pytest.raises(DBAPIError, match=r"(?i)read.?only"):
        connection.execute(schema.counters.insert().values(name="x", value=1))


def test_isolation_a_sqlite_writer_locks_at_begin_and_a_reader_does_not(sqlite_url: str) -> None:
    settings = StoreSettings(lock_timeout=0.05)
    with Store(sqlite_url, settings=settings) as one, Store(sqlite_url, settings=settings) as two:
        with one._writers.connect() as writer:
            writer.execute(text("SELECT 1"))
            with two._writers.connect() as other, pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute(text("SELECT 1"))
            assert two.topics() == {}
        with one._readers.connect() as reader:
            reader.execute(text("SELECT count(*) FROM pubsub_topics"))
            with two.transaction() as tx:
                tx.set("t", "k", 1)
            assert tx.commit is not None


def test_pool_is_bounded(store: Store) -> None:
    pool = store._readers.pool
    assert pool.size() == store.settings.pool_size  # type: ignore[attr-defined]


def test_postgresql_database_without_utf8_is_rejected(postgres_url: str) -> None:
    engine = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("DROP DATABASE IF EXISTS latin WITH (FORCE)"))
        connection.execute(text("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
    try:
        with pytest.raises(ConfigError, match="LATIN1"):
            Store(make_url(postgres_url).set(database="latin").render_as_string(hide_password=False))
    finally:
        with engine.connect() as connection:
            connection.execute(text("DROP DATABASE latin WITH (FORCE)"))
        engine.dispose()


@pytest.mark.parametrize(
    ("text_", "extra"),
    [
        ("'cryptography' package is required for sha256_password or caching_sha2_password auth methods", "rsa"),
        ("'pynacl' package is required for ed25519_password auth method", "ed25519"),
    ],
)
def test_missing_package_of_pymysql_is_a_config_error(text_: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """pymysql raises a RuntimeError, which is not an error of its own kind."""

    def connect(*_: object, **__: object) -> None:
        raise RuntimeError(text_)

    monkeypatch.setattr(pymysql, "connect", connect)
    with pytest.raises(ConfigError, match=rf"(?s)db\.example.*{text_}.*PyMySQL\[{extra}\]") as caught:
        Store("mysql://user:secret-word@db.example/net")
    assert "secret-word" not in str(caught.value)


def test_other_runtime_error_of_a_connection_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pymysql, "connect", connect)
    with pytest.raises(RuntimeError, match="new thread"):
        Store("mysql://user@db.example/net")


def test_values_are_read_as_bytes_from_postgresql(postgres_url: str) -> None:
    formats = {}
    with Store(postgres_url) as store:
        with store.transaction() as tx:
            tx.set("lport", "p1", {"data": "x" * 100}, topic="t")

        @event.listens_for(store._readers, "after_cursor_execute")
        def executed(_connection: object, cursor: Any, statement: str, *_: object) -> None:
            formats[statement.partition("FROM")[0]] = cursor.format

        answer = store.read_sync({"t": Want()})
        store.read_sync({"t": Want(ZERO)})
        store.look_at_rows(None, 10)
    part = answer.chains["t"]
    assert isinstance(part, Full)
    assert [each.value for each in part.topics["t"].records] == [b'{"data":"%s"}' % (b"x" * 100)]
    of_values = [kind for columns, kind in formats.items() if "value" in columns or "changes" in columns]
    assert of_values == [Format.BINARY] * 3
