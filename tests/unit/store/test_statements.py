"""The statements of the commit sequence: kept for a dialect, and the same for any number of values."""

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import pysqlite

from pubsub_lib.store import schema, statements
from pubsub_lib.store.executor import listed
from pubsub_lib.store.statements import Statements


def test_statements_are_made_once_for_an_engine() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        made = statements.of(connection.dialect)
    assert statements.of(engine.dialect) is made
    assert made.lock_objects(3) is made.lock_objects(3)
    assert made.lock_objects(3) is not made.lock_objects(4)
    assert made.upsert(schema.topics) is made.upsert(schema.topics)
    engine.dispose()


@pytest.mark.parametrize("dialect", [pysqlite.dialect(), pymysql.dialect()], ids=["sqlite", "mysql"])
def test_values_of_a_list_are_numbered(dialect: pysqlite.dialect) -> None:
    assert listed(Statements(dialect), "key", ["a", "b"]) == {"key_0": "a", "key_1": "b"}


def test_postgresql_gets_one_text() -> None:
    dialect = psycopg.dialect()  # type: ignore[no-untyped-call]
    assert listed(Statements(dialect), "key", ("a", '"ü')) == {"key": '["a","\\"ü"]'}
