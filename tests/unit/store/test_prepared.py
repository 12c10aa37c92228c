"""Prepared statements: the parameters that a driver gets, and the rows that the library gets."""

import pytest
from sqlalchemy import ClauseElement, bindparam, insert, select
from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import pysqlite

from pubsub_lib.store import schema
from pubsub_lib.store.prepared import Prepared

ROW = {"name": "a", "value": 5}


def test_names_are_converted_for_mysql_and_back() -> None:
    """The column is VARBINARY there: the driver needs bytes, and returns bytes."""
    read = Prepared(select(schema.topics).where(schema.topics.c.topic == bindparam("wanted")), pymysql.dialect())
    assert read.bound({"wanted": "ä"}) == ("ä".encode(),)
    assert read.converted([(b"t", 5, 6, 7, 8, 9)]) == [["t", 5, 6, 7, 8, 9]]


def test_parameters_are_named_where_the_driver_names_them() -> None:
    dialect = psycopg.dialect()  # type: ignore[no-untyped-call]
    assert Prepared(insert(schema.counters), dialect).bound(ROW) == ROW
    assert Prepared(insert(schema.counters), pysqlite.dialect()).bound(ROW) == ("a", 5)


def test_given_value_replaces_the_statements_own() -> None:
    read = Prepared(select(schema.counters).where(schema.counters.c.value == 7), pysqlite.dialect())
    assert (read.bound({}), read.bound({"value_1": 8})) == ((7,), (8,))


@pytest.mark.parametrize(
    ("statement", "returns"),
    [
        (select(schema.counters), True),
        (insert(schema.counters), False),
        (insert(schema.counters).returning(schema.counters.c.value), True),
    ],
)
def test_statements_with_rows_are_known(statement: ClauseElement, returns: bool) -> None:
    assert Prepared(statement, pysqlite.dialect()).returns is returns
