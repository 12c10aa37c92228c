"""Both kinds of transactions give the rows, effects and errors that SQLAlchemy gives for the same statement."""

from collections.abc import Iterator

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
    insert,
    select,
)
from sqlalchemy.exc import IntegrityError

from pubsub_lib.store.connection_executor import ConnectionExecutor
from pubsub_lib.store.executor import Executor, OwnTransaction
from pubsub_lib.store.fork_safety import GatedPool
from pubsub_lib.store.prepared import Call, Prepared
from pubsub_lib.store.types import Name

metadata = MetaData()
TABLE = Table(
    "things", metadata, Column("id", Integer, primary_key=True), Column("name", Name(20)), Column("value", LargeBinary),
    mysql_engine="InnoDB",
)  # fmt: skip
A = {"id": 1, "name": "ä", "value": b"\x00"}


def with_table(url: str) -> Iterator[Engine]:
    made = create_engine(url, poolclass=GatedPool)
    metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    yield from with_table(database_url)


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as opened:
        yield opened


@pytest.fixture(params=["connection", "own"])
def executor(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Executor]:
    if request.param == "own":
        with OwnTransaction(engine) as transaction:
            yield transaction
    else:
        with engine.connect() as connection:
            yield ConnectionExecutor(connection)


def test_rows_are_those_of_the_statement(executor: Executor) -> None:
    write = Prepared(insert(TABLE), executor.dialect)
    query = select(TABLE).where(TABLE.c.name == bindparam("wanted", type_=TABLE.c.name.type)).order_by(TABLE.c.id)
    read = Prepared(query, executor.dialect)
    two = [{"id": number, "name": "b", "value": b"b"} for number in (2, 3)]
    found = executor.run(
        Call(write, [A]), Call(write, two), *(Call(read, [{"wanted": wanted}]) for wanted in ("ä", "b", "c"))
    )
    assert [[tuple(row) for row in rows] for rows in found] == [
        [], [], [tuple(A.values())], [tuple(row.values()) for row in two], [],
    ]  # fmt: skip


def test_own_value_of_a_parameter_is_used_when_none_is_given(executor: Executor) -> None:
    executor.run(Call(Prepared(insert(TABLE), executor.dialect), [{"id": 7, "name": "x", "value": b""}]))
    read = Prepared(select(TABLE.c.name).where(TABLE.c.id == 7), executor.dialect)
    assert [tuple(row) for row in executor.run(Call(read))[0]] == [("x",)]


def test_refused_statement_raises_as_sqlalchemy_does(
    executor: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    write = Prepared(insert(TABLE), executor.dialect)
    read = Prepared(select(TABLE.c.name), executor.dialect)
    executor.run(Call(write, [A]))
    with pytest.raises(IntegrityError) as raised:
        executor.run(Call(read), Call(write, [A]), Call(read))
    assert not raised.value.connection_invalidated
    assert caplog.messages == []


def test_transaction_that_is_not_ended_is_undone(engine: Engine) -> None:
    write = Prepared(insert(TABLE), engine.dialect)
    with pytest.raises(ZeroDivisionError), OwnTransaction(engine) as transaction:
        transaction.run(Call(write, [A]))
        raise ZeroDivisionError
    with engine.connect() as connection:
        assert connection.execute(select(TABLE.c.id)).all() == []


def test_sessions_events_are_kept(connection: Connection) -> None:
    seen: list[str] = []
    event.listen(connection, "before_cursor_execute", lambda *given: seen.append(given[2]))
    read = Prepared(select(TABLE.c.id), connection.dialect)
    ConnectionExecutor(connection).run(Call(read))
    assert seen == [read.text]
