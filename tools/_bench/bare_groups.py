"""Several transactions in one, by hand on PostgreSQL: the rows of ``bare_writer.py`` in three round trips by libpq.

Statements are prepared in the server. A trip is sent at once and ends with a Sync, as the trips of our commit do.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import psycopg
from psycopg.pq import ExecStatus
from sqlalchemy import URL

from _bench.bare_writer import LINKS, OBJECTS, TOPICS, link_row, object_rows, topic_row
from _bench.payload import TABLE

_JSON: Final = msgspec.json.Encoder().encode
_BYTES: Final = {"value", "changes"}
"""Columns of bytes, which are base64 in a JSON text."""
_TEXTS: Final = {"table_name", "object_key", "topic", "origin", *_BYTES}
_AMONG: Final = "ANY(ARRAY(SELECT json_array_elements_text($1::json)))"


class Transaction(msgspec.Struct, frozen=True, array_like=True):
    """Sets these keys of one topic to these values."""

    topic: str
    keys: list[str]
    values: list[bytes]


class BareGroups:
    """A connection. For one thread; no topic may be twice in a group."""

    def __init__(self, url: URL) -> None:
        """Connect, and prepare the statements. Raises psycopg's errors."""
        self._connection = psycopg.connect(host=url.host, port=url.port, user=url.username, dbname=url.database)
        self._pgconn = self._connection.pgconn
        self._pgconn.enter_pipeline_mode()
        for name, text in _statements().items():
            self._pgconn.send_prepare(name, text.encode())
        self._trip()

    def commit(self, group: Sequence[Transaction]) -> None:
        """Commit these transactions together. Raises psycopg's errors."""
        keys, topics = [key for each in group for key in each.keys], [each.topic for each in group]
        nonces = [secrets.randbits(62) for _ in group]
        self._trip((b"begin",), (b"lock", _JSON(keys)))
        found = self._trip((b"advance", b"%d" % len(keys), b"%d" % nonces[-1]), (b"heads", _JSON(topics)))[0]
        last, before, now = (int(found.get_value(0, column) or b"") for column in range(3))
        last -= len(keys)
        objects: list[tuple[Any, ...]] = []
        heads: list[tuple[Any, ...]] = []
        links: list[tuple[Any, ...]] = []
        for each in group:
            last += len(each.keys)
            objects += object_rows(each.topic, each.keys, each.values, last)
            heads.append(topic_row(each.topic, last, before))
            links.append(link_row(each.topic, last, before, now, each.values))
        rows = (_json(OBJECTS, objects), _json(TOPICS, heads), _json(LINKS, links))
        self._trip((b"write", *rows), (b"commit",))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _trip(self, *calls: Sequence[bytes]) -> list[Any]:
        """Send prepared statements with their parameters; their results."""
        for name, *parameters in calls:
            self._pgconn.send_query_prepared(name, parameters)
        self._pgconn.pipeline_sync()
        results: list[Any] = []
        while True:
            result = self._pgconn.get_result()
            if result is None:
                continue  # follows each result
            if result.status == ExecStatus.PIPELINE_SYNC:
                return results
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise psycopg.errors.error_from_result(result)
            results.append(result)


def _json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    return _JSON([dict(zip(columns, row, strict=True)) for row in rows])


def _statements() -> dict[bytes, str]:
    now = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
    return {
        b"begin": "BEGIN",
        b"lock": f"SELECT * FROM pubsub_objects WHERE table_name = '{TABLE}' AND object_key = {_AMONG} FOR UPDATE",
        b"advance": "UPDATE pubsub_store SET position = position + $1, prev_nonce = nonce, nonce = $2 WHERE id = 1 "
        f"RETURNING position, prev_nonce, {now}",
        b"heads": f"SELECT * FROM pubsub_topics WHERE topic = {_AMONG} FOR UPDATE",
        b"write": f"WITH written AS ({_upsert('pubsub_objects', OBJECTS, 2, 1)}), "
        f"head AS ({_upsert('pubsub_topics', TOPICS, 1, 2)}) {_insert('pubsub_links', LINKS, 3)}",
        b"commit": "COMMIT",
    }


def _insert(table: str, columns: Sequence[str], number: int) -> str:
    """An insert of the rows of one JSON text, which is the parameter with this number."""
    types = {name: "text" if name in _TEXTS else "float8" if name == "written_at" else "int8" for name in columns}
    given = ", ".join(f"{name} {kind}" for name, kind in types.items())
    taken = ", ".join(f"decode({name}, 'base64')" if name in _BYTES else name for name in columns)
    names = ", ".join(columns)
    return f"INSERT INTO {table} ({names}) SELECT {taken} FROM json_to_recordset(${number}::json) AS given ({given})"


def _upsert(table: str, columns: Sequence[str], keys: int, number: int) -> str:
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[keys:])
    conflict = f"ON CONFLICT ({', '.join(columns[:keys])}) DO UPDATE SET {changes}"
    return f"{_insert(table, columns, number)} {conflict}"
