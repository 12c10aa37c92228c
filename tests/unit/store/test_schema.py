"""The tables in each database's dialect."""

import pytest
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.schema import CreateTable

from pubsub_lib.store import schema

URLS = {"sqlite": "sqlite://", "postgresql": "postgresql+psycopg://", "mysql": "mysql+pymysql://"}
DIALECTS: dict[str, Dialect] = {name: make_url(url).get_dialect()() for name, url in URLS.items()}


def ddl(table: str, dialect: str) -> str:
    return str(CreateTable(schema.metadata.tables[table]).compile(dialect=DIALECTS[dialect]))


def test_schema_tables_have_our_prefix() -> None:
    assert all(name.startswith("pubsub_") for name in schema.metadata.tables)


@pytest.mark.parametrize(
    ("dialect", "topic", "value"),
    [
        ("sqlite", "topic TEXT NOT NULL", "value BLOB"),
        ("postgresql", 'topic VARCHAR COLLATE "C" NOT NULL', "value BYTEA"),
        ("mysql", "topic VARBINARY(255) NOT NULL", "value LONGBLOB"),
    ],
)
def test_keys_are_bytes_and_values_are_verbatim(dialect: str, topic: str, value: str) -> None:
    text = ddl("pubsub_objects", dialect)
    assert topic in text
    assert value in text
    assert "JSON" not in text


def test_position_no_column_is_autoincrement() -> None:
    for name in schema.metadata.tables:
        assert "AUTO_INCREMENT" not in ddl(name, "mysql")
        assert "SERIAL" not in ddl(name, "postgresql")


def test_keys_fit_into_mysqls_index() -> None:
    for table in schema.metadata.tables.values():
        for columns in [list(table.primary_key), *([*index.columns] for index in table.indexes)]:
            assert sum(getattr(column.type, "size", 8) for column in columns) <= 3072
