"""The commit sequence by hand: the statements of ``store/writer.py``, executed by the bare driver of each database.

The rows have the same columns and sizes as ours. The values of fingerprints, digests and links are constants, because
only the work of driver and database is measured; no condition is checked, and nothing is retried.
"""

import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import msgspec
from sqlalchemy import URL

from _bench.payload import TABLE
from pubsub_lib.core import digest
from pubsub_lib.store import schema

OBJECTS: Final = [each.name for each in schema.objects.columns]
TOPICS: Final = [each.name for each in schema.topics.columns]
LINKS: Final = [each.name for each in schema.links.columns]
_OBJECT_TYPES: Final = ("text", "text", "text", "int8", "text", "int8", "int8", "int2")
"""Of the members of a JSON text of rows: the value is base64."""
_JSON: Final = msgspec.json.Encoder()
Commit = Callable[[str, Sequence[str], Sequence[bytes]], None]
"""Sets these keys of one topic to these values, in one transaction."""


@contextmanager
def open_bare(url: URL) -> Iterator[Commit]:
    """A connection of the bare driver, closed at the end of the block."""
    opened = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql}[url.get_backend_name()]
    connection, commit = opened(url)
    with closing(connection):
        yield commit


class _Sequence:
    """The commit sequence in statements that a driver with its own placeholders executes one by one."""

    def __init__(self, cursor: Any, mark: str, lock: str, update: str, now: str) -> None:
        self._cursor, self._mark, self._lock, self._now = cursor, mark, lock, now
        self._returning = bool(mark == "?")
        keys = {"objects": OBJECTS[:2], "topics": TOPICS[:1]}
        self._objects = self._upsert("pubsub_objects", OBJECTS, keys["objects"], update)
        self._topics = self._upsert("pubsub_topics", TOPICS, keys["topics"], update)
        self._links = self._insert("pubsub_links", LINKS)

    def commit(self, topic: str, keys: Sequence[str], values: Sequence[bytes]) -> None:
        """One transaction."""
        execute, mark = self._cursor.execute, self._mark
        marks = ", ".join([mark] * len(keys))
        execute("BEGIN IMMEDIATE" if self._returning else "BEGIN")
        execute(
            f"SELECT * FROM pubsub_objects WHERE table_name = {mark} AND object_key IN ({marks}) ORDER BY object_key"
            + self._lock,
            (TABLE, *keys),
        )
        self._cursor.fetchall()
        last, before, now = self._advance(len(keys), secrets.randbits(62))
        execute(f"SELECT * FROM pubsub_topics WHERE topic = {mark}" + self._lock, (topic,))
        self._cursor.fetchall()
        self._cursor.executemany(self._objects, object_rows(topic, keys, values, last))
        execute(self._topics, topic_row(topic, last, before))
        execute(self._links, link_row(topic, last, before, now, values))
        execute("COMMIT")

    def _advance(self, by: int, nonce: int) -> tuple[int, int, int]:
        mark = self._mark
        step = f"UPDATE pubsub_store SET position = position + {mark}, prev_nonce = nonce, nonce = {mark} WHERE id = 1"
        if self._returning:
            self._cursor.execute(f"{step} RETURNING position, prev_nonce, {self._now}", (by, nonce))
            (found,) = self._cursor.fetchall()
            return found  # type: ignore[no-any-return]
        self._cursor.execute(f"SELECT position, nonce, {self._now} FROM pubsub_store WHERE id = 1 FOR UPDATE")
        ((position, before, now),) = self._cursor.fetchall()
        self._cursor.execute(step, (by, nonce))
        return position + by, before, now

    def _insert(self, table: str, columns: Sequence[str]) -> str:
        names = ", ".join(name if self._returning else f"`{name}`" for name in columns)
        return f"INSERT INTO {table} ({names}) VALUES ({', '.join([self._mark] * len(columns))})"

    def _upsert(self, table: str, columns: Sequence[str], keys: Sequence[str], update: str) -> str:
        clause, value = update.split("|")
        changes = ", ".join(f"{name} = {value.format(name)}" for name in columns if name not in keys)
        return f"{self._insert(table, columns)} {clause.format(', '.join(keys))} {changes}"


def _sqlite(url: URL) -> tuple[Any, Commit]:
    import sqlite3

    connection = sqlite3.connect(str(url.database), isolation_level=None, timeout=60, check_same_thread=False)
    connection.execute("PRAGMA synchronous=FULL")
    update = "ON CONFLICT ({}) DO UPDATE SET|excluded.{}"
    now = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"
    return connection, _Sequence(connection.cursor(), "?", "", update, now).commit


def _mysql(url: URL) -> tuple[Any, Commit]:
    import pymysql

    connection = pymysql.connect(
        host=url.host, port=url.port or 3306, user=url.username, database=url.database, charset="utf8mb4",
    )  # fmt: skip
    cursor = connection.cursor()
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
    update = "ON DUPLICATE KEY UPDATE|VALUES({})"
    return connection, _Sequence(cursor, "%s", " FOR UPDATE", update, now).commit


def _postgresql(url: URL) -> tuple[Any, Commit]:
    """Four statements: the objects, the counter, the head, and all writes in one.

    Rows are sent as one JSON text, as ours are: psycopg takes longer to make arrays.
    """
    import psycopg

    connection = psycopg.connect(host=url.host, port=url.port, user=url.username, dbname=url.database, autocommit=False)
    given = ", ".join(f"{name} {kind}" for name, kind in zip(OBJECTS, _OBJECT_TYPES, strict=True))
    columns = ", ".join("decode(value, 'base64')" if name == "value" else name for name in OBJECTS)
    changes = ", ".join(f"{name} = excluded.{name}" for name in OBJECTS[2:])
    heads = ", ".join(f"{name} = excluded.{name}" for name in TOPICS[1:])
    write = f"""
        WITH written AS (
            INSERT INTO pubsub_objects SELECT {columns} FROM json_to_recordset(%s::json) AS given ({given})
            ON CONFLICT (table_name, object_key) DO UPDATE SET {changes}
        ), head AS (
            INSERT INTO pubsub_topics VALUES ({", ".join(["%s"] * len(TOPICS))})
            ON CONFLICT (topic) DO UPDATE SET {heads}
        )
        INSERT INTO pubsub_links ({", ".join(LINKS)}) VALUES ({", ".join(["%s"] * len(LINKS))})"""
    now = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
    advance = (
        "UPDATE pubsub_store SET position = position + %s, prev_nonce = nonce, nonce = %s WHERE id = 1 "
        f"RETURNING position, prev_nonce, {now}"
    )

    def commit(topic: str, keys: Sequence[str], values: Sequence[bytes]) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(
                "SELECT * FROM pubsub_objects WHERE table_name = %s "
                "AND object_key = ANY(ARRAY(SELECT json_array_elements_text(%s::json))) FOR UPDATE",
                (TABLE, _JSON.encode(keys).decode()),
            )
            cursor.fetchall()
            cursor.execute(advance, (len(keys), secrets.randbits(62)))
            ((last, before, now),) = cursor.fetchall()
            cursor.execute("SELECT * FROM pubsub_topics WHERE topic = %s FOR UPDATE", (topic,))
            cursor.fetchall()
            rows = object_rows(topic, keys, values, last)
            text = _JSON.encode([dict(zip(OBJECTS, each, strict=True)) for each in rows]).decode()
            link = link_row(topic, last, before, now, values)
            cursor.execute(write, (text, *topic_row(topic, last, before), *link))
        connection.commit()

    return connection, commit


def object_rows(topic: str, keys: Sequence[str], values: Sequence[bytes], last: int) -> list[tuple[Any, ...]]:
    """Rows of the objects' table."""
    versions = itertools.count(last - len(keys) + 1)
    return [
        (TABLE, key, topic, next(versions), value, 1, 1, digest.bucket_of(TABLE, key))
        for key, value in zip(keys, values, strict=True)
    ]


def topic_row(topic: str, position: int, nonce: int) -> tuple[Any, ...]:
    """A row of the topics' table."""
    return topic, position, nonce, 1, 1, 1


def link_row(topic: str, position: int, nonce: int, now: int, values: Sequence[bytes]) -> tuple[Any, ...]:
    """A row of the changelog."""
    points = (position, topic, nonce, position - 1, nonce, 1, 1, 1, position - 1, nonce)
    return *points, 1, "bench", time.time(), now, b"".join(values)
