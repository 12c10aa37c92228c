"""A transaction by the driver: its begin, its end, and what becomes of its connection."""

import gc
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, func, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from pubsub_lib.store.executor import OwnTransaction
from pubsub_lib.store.fork_safety import GatedPool
from pubsub_lib.store.postgres_trip import Trips
from pubsub_lib.store.prepared import Call, Prepared
from tests.unit.store.test_connection_executor import TABLE, A, with_table


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    yield from with_table(database_url)


@pytest.fixture
def postgres_engine(postgres_url: str) -> Iterator[Engine]:
    yield from with_table(postgres_url)


def idle_driver(engine: Engine) -> Any:
    """The driver's connection that the pool gives next."""
    with engine.connect() as connection:
        return connection.connection.driver_connection


def test_transaction_is_undone_or_committed(engine: Engine) -> None:
    write = Prepared(insert(TABLE), engine.dialect)
    with OwnTransaction(engine) as transaction:
        transaction.run(Call(write, [A]))
        transaction.rollback()
    with engine.connect() as connection:
        assert connection.execute(select(TABLE)).all() == []
    with OwnTransaction(engine) as transaction:
        transaction.write(Call(write, [A]))
        transaction.commit()
    with engine.connect() as connection:
        assert len(connection.execute(select(TABLE)).all()) == 1


@pytest.mark.parametrize("times", [1, 12])
def test_writes_are_committed_in_order_or_not_at_all(times: int, engine: Engine) -> None:
    write = Prepared(insert(TABLE), engine.dialect)
    remove = Prepared(TABLE.delete(), engine.dialect)
    for _ in range(times):  # psycopg prepares a statement in the server after some executions
        with OwnTransaction(engine) as transaction:
            transaction.write(Call(remove), Call(write, [A]))
            transaction.write(Call(write, [{"id": 2, "name": "b", "value": b"b"}]))
            transaction.commit()
    pool = engine.pool
    with pytest.raises(IntegrityError) as raised, OwnTransaction(engine) as transaction:
        transaction.write(Call(remove), Call(write, [A]), Call(write, [A]))
        transaction.commit()
    assert not raised.value.connection_invalidated
    assert engine.pool is pool, "only a lost connection renews the pool"
    with engine.connect() as connection:
        assert [tuple(row) for row in connection.execute(select(TABLE.c.id).order_by(TABLE.c.id))] == [(1,), (2,)]


@pytest.mark.parametrize(
    ("database", "end"),
    [
        pytest.param("postgres_url", "SELECT pg_terminate_backend({})", marks=pytest.mark.postgresql),
        pytest.param("mariadb_url", "KILL {}", marks=pytest.mark.mariadb),
    ],
)
def test_lost_connection_renews_the_pool(database: str, end: str, request: pytest.FixtureRequest) -> None:
    engine = create_engine(request.getfixturevalue(database), poolclass=GatedPool)
    own = text("SELECT pg_backend_pid()" if database == "postgres_url" else "SELECT CONNECTION_ID()")
    statement = Prepared(select(1), engine.dialect)
    pids = []
    with engine.connect() as connection, engine.connect() as other:
        pids += [each.execute(own).scalar_one() for each in (connection, other)]
    transaction = OwnTransaction(engine)
    transaction.__enter__()
    driver = transaction._driver
    pid = driver.info.backend_pid if database == "postgres_url" else driver.thread_id()
    assert pid in pids
    with engine.connect() as killer:
        killer.execute(text(end.format(pid)))
    with pytest.raises(DBAPIError) as raised:
        transaction.run(Call(statement), Call(statement))
    transaction.__exit__(DBAPIError)
    assert raised.value.connection_invalidated
    with engine.connect() as connection:
        assert connection.execute(own).scalar_one() not in pids
    engine.dispose()


@pytest.mark.postgresql
def test_postgresql_answers_each_call_and_the_commit_once(postgres_engine: Engine, tmp_path: Path) -> None:
    """The BEGIN goes with the first call; the end of the pipeline is the trip of the writes and the COMMIT."""
    write, remove = Prepared(insert(TABLE), postgres_engine.dialect), Prepared(TABLE.delete(), postgres_engine.dialect)
    driver = idle_driver(postgres_engine)
    with (tmp_path / "trace").open("w") as trace:
        driver.pgconn.trace(trace.fileno())
        with OwnTransaction(postgres_engine) as transaction:
            transaction.run(Call(remove))
            transaction.run(Call(remove), Call(remove))
            transaction.write(Call(remove), Call(write, [A]))
            transaction.commit()
        driver.pgconn.untrace()
        assert not driver.autocommit
    messages = [line.split("\t")[3] for line in (tmp_path / "trace").read_text().splitlines()]
    assert messages.count("Sync") == messages.count("ReadyForQuery") == 3
    with postgres_engine.connect() as connection:
        assert len(connection.execute(select(TABLE)).all()) == 1


@pytest.mark.postgresql
def test_own_begin_has_the_isolation_of_writers(postgres_engine: Engine) -> None:
    level = Prepared(select(func.current_setting("transaction_isolation")), postgres_engine.dialect)
    with postgres_engine.connect() as connection:
        connection.execute(text("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
        connection.commit()
    with OwnTransaction(postgres_engine) as transaction:
        assert [tuple(row) for row in transaction.run(Call(level))[0]] == [("read committed",)]
        transaction.rollback()
    with postgres_engine.connect() as connection:
        assert connection.execute(select(func.current_setting("transaction_isolation"))).scalar_one() == "serializable"


@pytest.mark.postgresql
def test_first_error_is_raised_not_the_abort_of_the_pipeline(postgres_engine: Engine) -> None:
    """What follows the first error in a trip fails as aborted."""
    write, remove = Prepared(insert(TABLE), postgres_engine.dialect), Prepared(TABLE.delete(), postgres_engine.dialect)
    with pytest.raises(IntegrityError) as raised, OwnTransaction(postgres_engine) as transaction:
        transaction.run(Call(write, [A]), Call(write, [A]), Call(remove))
    assert isinstance(raised.value.orig, postgres_engine.dialect.loaded_dbapi.errors.UniqueViolation)


@pytest.mark.postgresql
@pytest.mark.parametrize("where", ["begin", "end"])
def test_interrupted_connection_is_not_used_again(
    where: str, postgres_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the pool it would commit each statement of its next user alone."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    driver = idle_driver(postgres_engine)
    transaction = OwnTransaction(postgres_engine)
    if where == "begin":
        monkeypatch.setattr(Trips, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt), transaction:
        transaction.run(Call(Prepared(select(TABLE), postgres_engine.dialect)))
        transaction.rollback()
        monkeypatch.setattr(Trips, "end", interrupted)
    monkeypatch.undo()
    assert driver.closed
    assert idle_driver(postgres_engine) is not driver


@pytest.mark.postgresql
def test_stale_connection_is_reported_once(postgres_engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """At BEGIN, or at the first statement where BEGIN was sent before the end was read; psycopg would log the pipeline,
    too.
    """
    driver = idle_driver(postgres_engine)
    other = create_engine(postgres_engine.url, poolclass=GatedPool)
    with other.connect() as killer:
        killer.execute(text(f"SELECT pg_terminate_backend({driver.info.backend_pid})"))
    other.dispose()
    assert wait([driver], 60.0)
    with pytest.raises(DBAPIError) as raised, OwnTransaction(postgres_engine) as transaction:
        transaction.run(Call(Prepared(select(TABLE), postgres_engine.dialect)))
    assert raised.value.connection_invalidated
    gc.collect()  # psycopg logs when the pipeline is freed
    assert caplog.messages == []
