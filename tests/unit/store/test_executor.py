"""Both executors give the rows, effects and errors that SQLAlchemy gives for the same statement."""

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from multiprocessing.connection import wait
from pathlib import Path

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    bindparam,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, IntegrityError

from pubsub_lib.store.executor import Call, DriverExecutor, Executor
from pubsub_lib.store.prepared import Prepared
from pubsub_lib.store.types import Name

metadata = MetaData()
TABLE = Table(
    "things", metadata, Column("id", Integer, primary_key=True), Column("name", Name(20)), Column("value", LargeBinary),
    mysql_engine="InnoDB",
)  # fmt: skip
A = {"id": 1, "name": "ä", "value": b"\x00"}


def with_table(url: str) -> Iterator[Engine]:
    made = create_engine(url)
    metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    yield from with_table(database_url)


@pytest.fixture
def postgres_engine(postgres_url: str) -> Iterator[Engine]:
    yield from with_table(postgres_url)


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as opened:
        yield opened


@pytest.fixture(params=[Executor, DriverExecutor])
def executor(request: pytest.FixtureRequest, connection: Connection) -> Iterator[Executor]:
    made = request.param(connection)
    with made if isinstance(made, DriverExecutor) else nullcontext():
        yield made


def test_rows_are_those_of_the_statement(executor: Executor, connection: Connection) -> None:
    write = Prepared(insert(TABLE), connection.dialect)
    query = select(TABLE).where(TABLE.c.name == bindparam("wanted", type_=TABLE.c.name.type)).order_by(TABLE.c.id)
    read = Prepared(query, connection.dialect)
    two = [{"id": number, "name": "b", "value": b"b"} for number in (2, 3)]
    found = executor.run(
        Call(write, [A]), Call(write, two), *(Call(read, [{"wanted": wanted}]) for wanted in ("ä", "b", "c"))
    )
    assert [[tuple(row) for row in rows] for rows in found] == [
        [], [], [tuple(A.values())], [tuple(row.values()) for row in two], [],
    ]  # fmt: skip


def test_own_value_of_a_parameter_is_used_when_none_is_given(executor: Executor, connection: Connection) -> None:
    executor.run(Call(Prepared(insert(TABLE), connection.dialect), [{"id": 7, "name": "x", "value": b""}]))
    read = Prepared(select(TABLE.c.name).where(TABLE.c.id == 7), connection.dialect)
    assert [tuple(row) for row in executor.run(Call(read))[0]] == [("x",)]


def test_transaction_of_the_driver_is_that_of_the_connection(engine: Engine) -> None:
    write = Prepared(insert(TABLE), engine.dialect)
    with engine.connect() as connection:
        with DriverExecutor(connection) as executor:
            executor.run(Call(write, [A]))
            connection.rollback()
        assert connection.execute(select(TABLE)).all() == []
        connection.rollback()
        with DriverExecutor(connection) as executor:
            executor.write(Call(write, [A]))
            executor.commit()
    with engine.connect() as connection:
        assert len(connection.execute(select(TABLE)).all()) == 1


@pytest.mark.parametrize("times", [1, 12])
def test_writes_are_committed_in_order_or_not_at_all(times: int, engine: Engine) -> None:
    write = Prepared(insert(TABLE), engine.dialect)
    remove = Prepared(TABLE.delete(), engine.dialect)
    for _ in range(times):  # psycopg prepares a statement in the server after some executions
        with engine.connect() as connection, DriverExecutor(connection) as executor:
            executor.write(Call(remove), Call(write, [A]))
            executor.write(Call(write, [{"id": 2, "name": "b", "value": b"b"}]))
            executor.commit()
    with (
        engine.connect() as connection, pytest.raises(IntegrityError), DriverExecutor(connection) as executor,
    ):  # fmt: skip
        executor.write(Call(remove), Call(write, [A]), Call(write, [A]))
        executor.commit()
    with engine.connect() as connection:
        assert [tuple(row) for row in connection.execute(select(TABLE.c.id).order_by(TABLE.c.id))] == [(1,), (2,)]


def test_refused_statement_raises_as_sqlalchemy_does(
    executor: Executor, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    write = Prepared(insert(TABLE), connection.dialect)
    read = Prepared(select(TABLE.c.name), connection.dialect)
    executor.run(Call(write, [A]))
    with pytest.raises(IntegrityError) as raised:
        executor.run(Call(read), Call(write, [A]), Call(read))
    assert not raised.value.connection_invalidated
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("database", "end"),
    [
        pytest.param("postgres_url", "SELECT pg_terminate_backend({})", marks=pytest.mark.postgresql),
        pytest.param("mariadb_url", "KILL {}", marks=pytest.mark.mariadb),
    ],
)
def test_lost_connection_renews_the_pool(database: str, end: str, request: pytest.FixtureRequest) -> None:
    engine = create_engine(request.getfixturevalue(database))
    own = text("SELECT pg_backend_pid()" if database == "postgres_url" else "SELECT CONNECTION_ID()")
    statement = Prepared(select(1), engine.dialect)
    with engine.connect() as connection, engine.connect() as other:
        pids = [each.execute(own).scalar_one() for each in (connection, other)]
    with engine.connect() as connection:
        (pid,) = set(pids) & {connection.execute(own).scalar_one()}
        executor = DriverExecutor(connection)
        executor.__enter__()
        with engine.connect() as killer:
            killer.execute(text(end.format(pid)))
        with pytest.raises(DBAPIError) as raised:
            executor.run(Call(statement), Call(statement))
        executor.__exit__(DBAPIError)
        assert raised.value.connection_invalidated
        assert connection.invalidated
    with engine.connect() as connection:
        assert connection.execute(own).scalar_one() not in pids
    engine.dispose()


@pytest.mark.postgresql
def test_postgresql_answers_each_call_and_the_commit_once(postgres_engine: Engine, tmp_path: Path) -> None:
    """The BEGIN goes with the first call; the end of the pipeline is the trip of the writes and the COMMIT."""
    write, remove = Prepared(insert(TABLE), postgres_engine.dialect), Prepared(TABLE.delete(), postgres_engine.dialect)
    with postgres_engine.connect() as connection, (tmp_path / "trace").open("w") as trace:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.pgconn.trace(trace.fileno())
        with DriverExecutor(connection) as executor:
            executor.run(Call(remove))
            executor.run(Call(remove), Call(remove))
            executor.write(Call(remove), Call(write, [A]))
            executor.commit()
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
        with DriverExecutor(connection) as executor:
            assert [tuple(row) for row in executor.run(Call(level))[0]] == [("read committed",)]
            connection.rollback()


@pytest.mark.postgresql
def test_first_error_is_raised_not_the_abort_of_the_pipeline(postgres_engine: Engine) -> None:
    """psycopg raises both when the server's answer arrives while the pipeline ends, the first as the context."""
    errors = postgres_engine.dialect.loaded_dbapi.errors
    with postgres_engine.connect() as connection:
        executor = DriverExecutor(connection)
        with pytest.raises(IntegrityError), executor._wrapped("COMMIT"):
            try:
                raise errors.UniqueViolation("first")
            finally:
                raise errors.PipelineAborted("what followed")


@pytest.mark.postgresql
@pytest.mark.parametrize("where", ["begin", "end"])
def test_interrupted_connection_is_not_used_again(
    where: str, postgres_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the pool it would commit each statement of its next user alone."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with postgres_engine.connect() as connection:
        executor = DriverExecutor(connection)
        if where == "begin":
            monkeypatch.setattr(executor._driver, "execute", interrupted)
        with pytest.raises(KeyboardInterrupt), executor:
            executor.run(Call(Prepared(select(TABLE), postgres_engine.dialect)))
            connection.rollback()
            monkeypatch.setattr(executor, "_leave", interrupted)
        assert connection.invalidated


@pytest.mark.postgresql
def test_stale_connection_is_reported_once(postgres_engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Its error at BEGIN; psycopg would log the pipeline, too."""
    with postgres_engine.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    with postgres_engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        assert connection.execute(text("SELECT pg_backend_pid()")).scalar_one() == pid
        connection.rollback()
        with postgres_engine.connect() as killer:
            killer.execute(text(f"SELECT pg_terminate_backend({pid})"))
            assert wait([driver], 60.0)
        with pytest.raises(DBAPIError), DriverExecutor(connection):
            pass
    gc.collect()  # psycopg logs when the pipeline is freed
    assert caplog.messages == []


def test_sessions_events_are_kept(connection: Connection) -> None:
    seen: list[str] = []
    event.listen(connection, "before_cursor_execute", lambda *given: seen.append(given[2]))
    read = Prepared(select(TABLE.c.id), connection.dialect)
    Executor(connection).run(Call(read))
    assert seen == [read.text]
