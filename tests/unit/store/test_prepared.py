"""A prepared statement has the effect of the same statement executed by SQLAlchemy."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    bindparam,
    create_engine,
    insert,
    select,
)
from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.dialects.postgresql import psycopg

from pubsub_lib.store import schema
from pubsub_lib.store.prepared import Prepared
from pubsub_lib.store.types import Name

metadata = MetaData()
TABLE = Table(
    "things", metadata, Column("id", Integer, primary_key=True), Column("name", Name(20)), Column("value", LargeBinary)
)


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.connect() as opened:
        metadata.create_all(opened)
        yield opened
    engine.dispose()


def test_rows_are_those_of_the_statement(connection: Connection) -> None:
    write = Prepared(insert(TABLE), connection.dialect)
    write.run(connection, [{"id": 1, "name": "ä", "value": b"\x00"}])
    write.run(connection, [{"id": number, "name": "b", "value": b"b"} for number in (2, 3)])
    query = select(TABLE).where(TABLE.c.name == bindparam("wanted")).order_by(TABLE.c.id)
    read = Prepared(query, connection.dialect)
    for wanted in ("ä", "b", "c"):
        assert list(map(tuple, read.rows(connection, {"wanted": wanted}))) == list(
            map(tuple, connection.execute(query, {"wanted": wanted}))
        )


def test_own_value_of_a_parameter_is_used_when_none_is_given(connection: Connection) -> None:
    Prepared(insert(TABLE), connection.dialect).run(connection, [{"id": 7, "name": "x", "value": b""}])
    read = Prepared(select(TABLE.c.name).where(TABLE.c.id == 7), connection.dialect)
    assert [tuple(row) for row in read.rows(connection)] == [("x",)]


def test_values_are_converted_for_mysql_and_back() -> None:
    """The column is VARBINARY there: the driver needs bytes, and returns bytes."""
    dialect = pymysql.dialect()

    class Recorder:
        def exec_driver_sql(self, text: str, values: Any) -> Any:
            self.values = values
            return self

        def all(self) -> list[tuple[Any, ...]]:
            return [(b"t", 5, 6, 7, 8, 9)]

    recorder: Any = Recorder()
    query = select(schema.topics).where(schema.topics.c.topic == bindparam("wanted"))
    assert Prepared(query, dialect).rows(recorder, {"wanted": "ä"}) == [["t", 5, 6, 7, 8, 9]]
    assert recorder.values == ("ä".encode(),)


def test_parameters_are_named_where_the_driver_names_them() -> None:
    recorder: Any = type("Recorder", (), {"exec_driver_sql": lambda self, text, values: setattr(self, "got", values)})()
    dialect = psycopg.dialect()  # type: ignore[no-untyped-call]
    Prepared(insert(TABLE), dialect).run(recorder, [{"id": 1, "name": "a", "value": b""}])
    assert set(recorder.got) == {"id", "name", "value"}
