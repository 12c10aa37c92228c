"""Statements that read the rows of the objects, page by page or in the order of the file.

Every function takes a connection inside one read-only REPEATABLE READ transaction.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select, tuple_

from pubsub_lib.failpoints import hit
from pubsub_lib.store import schema
from pubsub_lib.store.engine import BINARY_RESULT

_LAST: Final = 0x10FFFF
"""The greatest character."""
_SURROGATES: Final = range(0xD800, 0xE000)
"""No characters: UTF-8 cannot contain them."""
_FEW: Final = 200  # rows that are used before they leave the processor's cache


def pages(
    connection: Connection,
    base: Select[Any],
    page: int,
    *,
    topics: Collection[str] | None = None,
    table: str | None = None,
    buckets: Collection[int] | None = None,
) -> Iterator[Sequence[Any]]:
    """The rows of ``base``, a selection from the objects that contains all columns of the order."""
    columns = schema.objects.c
    if topics is not None:
        base = base.where(columns.topic.in_(topics) if len(topics) != 1 else columns.topic == next(iter(topics)))
    if table is not None:
        base = base.where(columns.table_name == table)
    if buckets is not None:
        base = base.where(columns.bucket.in_(sorted(buckets)))
    order = (columns.topic, columns.bucket, columns.table_name, columns.object_key)
    base = base.order_by(*order).limit(page)
    query = base
    while True:
        got = connection.execute(query, execution_options=BINARY_RESULT).all()
        hit("sync.during_snapshot")
        yield got
        if len(got) < page:
            return
        last = got[-1]
        after = (last.topic, last.bucket, last.table_name, last.object_key)
        query = base.where(behind(connection, order, after))


def by_key(
    connection: Connection, page: int, table: str, *, topic: str | None, prefix: str, maximum: int | None
) -> Iterator[Sequence[Any]]:
    """At most ``maximum`` rows of a table, whole, in the order of their keys' bytes: of this topic or (None) of all,
    and with keys that begin with ``prefix``.
    """
    columns = schema.objects.c
    base = select(schema.objects).where(columns.table_name == table).order_by(columns.object_key)
    if topic is not None:
        base = base.where(columns.topic == topic)
    if prefix:
        # A range, which the primary key answers: LIKE would need escapes, and SQLite ignores the case there.
        base = base.where(columns.object_key >= prefix)
        end = behind_prefix(prefix)
        base = base if end is None else base.where(columns.object_key < end)
    query, left = base, maximum
    while left is None or left > 0:
        size = page if left is None else min(page, left)
        got = connection.execute(query.limit(size), execution_options=BINARY_RESULT).all()
        yield from got
        if len(got) < size:
            return
        left = None if left is None else left - size
        query = base.where(columns.object_key > got[-1].object_key)


def behind_prefix(prefix: str) -> str | None:
    """The first text behind all texts that begin with ``prefix``, by their bytes in UTF-8, which have the order of the
    characters' numbers; None when there is none.
    """
    shorter = prefix.rstrip(chr(_LAST))
    if not shorter:
        return None
    following = ord(shorter[-1]) + 1
    return shorter[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def in_file_order(connection: Connection, query: Select[Any]) -> Iterator[Sequence[Any]]:
    """The rows by one statement without an order, some at a time, as the driver's own tuples: a wrapper of SQLAlchemy
    around a row takes as long as reading it. For column types that SQLAlchemy does not convert on SQLite.
    """
    with connection.execute(query) as result:
        cursor = result.cursor
        assert cursor is not None  # a selection has one until it is closed
        for got in iter(lambda: cursor.fetchmany(_FEW), []):
            hit("sync.during_snapshot")
            yield got


def placed(
    connection: Connection, page: int, topics: Collection[str] | None, buckets: Collection[int] | None
) -> tuple[str | None, Iterable[Iterable[Sequence[Any]]]]:
    """The rows for a replica, of these topics or (None) of all; of these buckets or (None) of all: (topic, table), key,
    version, value. If the first result is not None, it is the table of all rows, and they begin with their topic only.
    """
    columns = schema.objects.c
    base = select(columns.object_key, columns.version, columns.value)
    if buckets is not None and not buckets:
        return None, ()
    # No server limits a long statement here: rows in the file's order, which is twice as fast.
    if connection.dialect.name == "sqlite" and topics is None and buckets is None:
        only = _only_table(connection)
        if only is not None:
            return only, in_file_order(connection, select(columns.topic, *base.selected_columns))
        base = base.add_columns(columns.topic, columns.table_name)
        return None, map(_placed, in_file_order(connection, base))
    base = base.add_columns(columns.topic, columns.table_name, columns.bucket)
    return None, map(_placed, pages(connection, base, page, topics=topics, buckets=buckets))


def _placed(got: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Rows of key, version, value, topic, table, with (topic, table) as their first column."""
    if not got:
        return ()
    keys, versions, values, topics, tables, *_ = zip(*got, strict=True)
    return zip(zip(topics, tables, strict=True), keys, versions, values, strict=True)


def _only_table(connection: Connection) -> str | None:
    """The table of all objects, when there is only one: two look-ups in the primary key. To read a column of every row
    takes a fourteenth of a full sync.
    """
    name = schema.objects.c.table_name
    low, high = connection.execute(
        select(select(func.min(name)).scalar_subquery(), select(func.max(name)).scalar_subquery())
    ).one()
    return low if type(low) is str and low == high else None


def behind(
    connection: Connection, columns: tuple[ColumnElement[Any], ...], values: tuple[Any, ...]
) -> ColumnElement[bool]:
    """``columns > values`` as rows. MySQL and MariaDB read the whole index for a row comparison, but not for its
    written-out form."""
    if connection.dialect.name != "mysql":
        return tuple_(*columns) > tuple_(*values)
    return and_(
        columns[0] >= values[0],
        or_(
            *(
                and_(
                    *(column == value for column, value in zip(columns[:i], values[:i], strict=True)),
                    columns[i] > values[i],
                )
                for i in range(len(columns))
            )
        ),
    )
