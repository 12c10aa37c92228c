"""Round trips to PostgreSQL: one send for each, prepared statements, parameters, errors, and lost connections."""

import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import (
    Engine,
    LargeBinary,
    Text,
    bindparam,
    cast,
    create_engine,
    insert,
    literal,
    literal_column,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, IntegrityError

from pubsub_lib.store import Store, StoreSettings
from pubsub_lib.store import engine as engines
from pubsub_lib.store.executor import OwnTransaction
from pubsub_lib.store.fork_safety import GatedPool
from pubsub_lib.store.postgres_trip import trips_of
from pubsub_lib.store.prepared import Call, Prepared
from tests.unit.store.test_connection_executor import TABLE, A, metadata
from tests.unit.store.test_executor import idle_driver

pytestmark = pytest.mark.postgresql


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    """The engine of a store's writers, whose connections prepare the statements of trips."""
    made = engines.make(make_url(postgres_url), StoreSettings(), writes=True, primary=True)
    metadata.create_all(made)
    yield made
    made.dispose()


def data_segments(driver: Any) -> int:
    """The TCP segments with data that this connection sent, by the kernel's count; each send makes at least one.

    A second transmission of a segment does not count. The offsets are those of ``struct tcp_info`` of Linux.
    """
    with socket.socket(fileno=socket.dup(driver.fileno())) as same:
        found = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    repeated, sent = struct.unpack_from("=I", found, 100)[0], struct.unpack_from("=I", found, 156)[0]
    return int(sent - repeated)


def writers_of(store: Store) -> Engine:
    """The engine of the store's own transactions."""
    return store._writers


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's count of segments is Linux's")
@pytest.mark.parametrize("prepared", [False, True])
def test_each_trip_of_a_commit_is_one_send(prepared: bool, postgres_url: str) -> None:
    """A writer that is stopped between two sends of a trip leaves the server in the middle of a pipeline. There the
    server does not end the transaction (idle_in_transaction_session_timeout), and the counter stays locked.
    """
    with Store(postgres_url) as other:
        put(other, "first")
    with Store(postgres_url) as store:
        driver = idle_driver(writers_of(store))
        if prepared:
            for number in range(12):
                put(store, f"before {number}")
        before = data_segments(driver)
        for number in range(1, 5):
            put(store, f"counted {number}")
            assert data_segments(driver) - before == 3 * number
        assert idle_driver(writers_of(store)) is driver


def put(store: Store, value: str) -> None:
    """Commit one change."""
    with store.transaction() as transaction:
        transaction.set("t", "a", value, topic="x")


def prepared_in_server(driver: Any) -> list[str]:
    """The names of the statements that are prepared on this connection."""
    return [name for (name,) in driver.execute("SELECT name FROM pg_prepared_statements ORDER BY name").fetchall()]


def test_statement_is_prepared_once_and_kept_after_rollbacks(engine: Engine) -> None:
    driver = idle_driver(engine)
    for _ in range(8):
        # Compiled again, as for a dialect whose statements are not kept (see statements.of).
        write, remove = Prepared(insert(TABLE), engine.dialect), Prepared(TABLE.delete(), engine.dialect)
        with OwnTransaction(engine) as transaction:
            transaction.run(Call(remove), Call(write, [A, A | {"id": 2}]))
            transaction.rollback()
        with engine.connect() as connection:  # its end is a rollback by psycopg
            connection.execute(select(TABLE.c.id).where(TABLE.c.id == 1))
    assert idle_driver(engine) is driver
    with engine.connect() as connection:
        names = prepared_in_server(connection.connection.driver_connection)
    assert names == ["pubsub_0", "pubsub_1", "pubsub_2", "pubsub_3"]  # BEGIN, these two, ROLLBACK


def test_nothing_is_prepared_where_psycopg_prepares(postgres_url: str) -> None:
    """psycopg would deallocate all statements of the connection after a rollback."""
    engine = create_engine(postgres_url, poolclass=GatedPool)
    metadata.create_all(engine)
    driver = idle_driver(engine)
    write = Prepared(insert(TABLE), engine.dialect)
    for number in range(3):
        with OwnTransaction(engine) as transaction:
            transaction.write(Call(write, [A | {"id": number}]))
            transaction.commit()
    assert prepared_in_server(driver) == []
    engine.dispose()


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_parameters_are_given_as_they_are(encoding: str, engine: Engine, postgres_url: str) -> None:
    made = create_engine(postgres_url, poolclass=GatedPool, client_encoding=encoding)
    wanted, number = bindparam("wanted", type_=Text), bindparam("number", type_=TABLE.c.id.type)
    blob = cast(bindparam("blob"), LargeBinary)
    percent, rest = literal("100%", type_=Text), literal_column("5 % 3", type_=TABLE.c.id.type)
    read = Prepared(select(wanted, number, wanted, blob, percent, rest), made.dialect)
    with OwnTransaction(made) as transaction:
        for given in (("ä%s $1", -7, b"\x00\\"), (None, None, None)):
            found = transaction.run(Call(read, [dict(zip(("wanted", "number", "blob"), given, strict=True))]))[0]
            assert [tuple(row) for row in found] == [(*given[:2], given[0], given[2], "100%", 2)]
        transaction.rollback()
    with pytest.raises(DBAPIError), OwnTransaction(made) as transaction:
        transaction.run(Call(read, [{"wanted": "before\0after", "number": 1, "blob": b""}]))
    made.dispose()


def test_large_trip_does_not_block_in_either_direction(engine: Engine) -> None:
    """The server stops reading until its answers are read, and the other way round."""
    value = b"\x00\xff" * 2_000_000
    read = Prepared(select(cast(bindparam("blob"), LargeBinary)), engine.dialect)
    with OwnTransaction(engine) as transaction:
        found = transaction.run(*[Call(read, [{"blob": value}])] * 6)
        assert [[tuple(row) for row in rows] for rows in found] == [[(value,)]] * 6
        transaction.rollback()


def test_first_error_of_a_trip_is_raised(engine: Engine) -> None:
    write = Prepared(insert(TABLE), engine.dialect)
    wrong = Prepared(text("SELECT 1 / 0"), engine.dialect)
    driver = idle_driver(engine)
    with pytest.raises(IntegrityError) as raised, OwnTransaction(engine) as transaction:
        transaction.write(Call(write, [A, A]), Call(wrong))
        transaction.commit()
    assert isinstance(raised.value.orig, psycopg.errors.UniqueViolation)
    assert not raised.value.connection_invalidated
    assert driver.closed
    with OwnTransaction(engine) as transaction:  # the pool's entry is used again, with a new connection
        transaction.write(Call(write, [A]))
        transaction.commit()
    with engine.connect() as connection:
        assert len(connection.execute(select(TABLE)).all()) == 1


def test_reason_of_the_server_is_raised_when_it_closes_the_connection(engine: Engine) -> None:
    with pytest.raises(DBAPIError) as raised, OwnTransaction(engine) as transaction:
        pid = Prepared(text("SELECT pg_terminate_backend(pg_backend_pid())"), engine.dialect)
        transaction.run(Call(pid), Call(Prepared(select(1), engine.dialect)))
    assert isinstance(raised.value.orig, psycopg.errors.AdminShutdown)
    assert raised.value.connection_invalidated


@pytest.mark.parametrize("direction", [socket.SHUT_WR, socket.SHUT_RDWR])
def test_lost_connection_raises_operational_error(direction: int, engine: Engine) -> None:
    with pytest.raises(DBAPIError) as raised, OwnTransaction(engine) as transaction:
        transaction.run(Call(Prepared(select(1), engine.dialect)))
        with socket.socket(fileno=socket.dup(transaction._driver.fileno())) as same:
            same.shutdown(direction)
        transaction.run(Call(Prepared(select(1), engine.dialect)))
    assert isinstance(raised.value.orig, psycopg.OperationalError)
    assert raised.value.connection_invalidated


def test_connection_that_was_closed_here_raises_operational_error(engine: Engine) -> None:
    with pytest.raises(DBAPIError) as raised, OwnTransaction(engine) as transaction:
        transaction._driver.close()
        transaction.run(Call(Prepared(select(1), engine.dialect)))
    assert isinstance(raised.value.orig, psycopg.OperationalError)
    assert raised.value.connection_invalidated


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals need the main thread")
def test_interrupt_ends_the_wait_and_the_statement(engine: Engine) -> None:
    """The signal comes when the server executes the statement: before that, PostgreSQL ignores a request to cancel."""
    sleeping = text(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event = 'PgSleep'"
        " AND query LIKE 'SELECT pg_sleep%'"
    )
    main = threading.get_ident()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def watch() -> None:
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")  # a transaction would see one state for ever
            while connection.execute(sleeping).scalar_one() == 0 and time.monotonic() < begun + 120:
                time.sleep(0.02)
        signal.pthread_kill(main, signal.SIGUSR1)

    driver = idle_driver(engine)
    before = signal.signal(signal.SIGUSR1, interrupted)
    watcher = threading.Thread(target=watch)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt), OwnTransaction(engine) as transaction:
            watcher.start()
            transaction.run(Call(Prepared(text("SELECT pg_sleep(300)"), engine.dialect)))
    finally:
        watcher.join()
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - begun < 300
    assert driver.closed
    with engine.connect() as connection:
        assert connection.execute(sleeping).scalar_one() == 0


def test_trips_belong_to_one_connection(engine: Engine) -> None:
    with engine.connect() as one, engine.connect() as two:
        pooled: list[Any] = [one.connection, two.connection]
        kept = [trips_of(each.driver_connection, each.info) for each in pooled]
        assert kept[0] is not kept[1]
        assert trips_of(pooled[0].driver_connection, pooled[0].info) is kept[0]
