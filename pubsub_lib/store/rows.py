"""Between rows and the words of the protocol: heads, links, objects."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ARRAY, Row, Select, Text, func, literal, select, true

from pubsub_lib.core import digest
from pubsub_lib.core.model import Change, Head, Link, Point
from pubsub_lib.errors import StoreError
from pubsub_lib.store import schema
from pubsub_lib.store.verbs import Stored

T = TypeVar("T")
CHUNK = 500
"""Most values in one IN list."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Change])


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """The items in slices of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _count(row: Row[Any]) -> int:
    # row.count is the tuple's method.
    return int(row._mapping["count"])


def head(row: Row[Any]) -> Head:
    """A row of the topics."""
    return Head(Point(row.position, row.nonce), _count(row), digest.join(row.digest_lo, row.digest_hi))


def head_row(link: Link) -> dict[str, Any]:
    """The row of a topic after a link."""
    low, high = digest.split(link.digest)
    return {
        "topic": link.topic,
        "position": link.point.position,
        "nonce": link.point.nonce,
        "count": link.count,
        "digest_lo": low,
        "digest_hi": high,
    }


def link_row(link: Link, stored_at: int) -> dict[str, Any]:
    """The changelog's row of a link."""
    return head_row(link) | {
        "prev_position": link.prev.position,
        "prev_nonce": link.prev.nonce,
        "tx_prev_position": link.tx_prev.position,
        "tx_prev_nonce": link.tx_prev.nonce,
        "tx_links": link.tx_links,
        "origin": link.origin,
        "written_at": link.written_at,
        "stored_at": stored_at,
        "changes": _ENCODER.encode(link.changes),
    }


def link(row: Row[Any]) -> Link:
    """A row of the changelog. Raises StoreError when its changes cannot be read."""
    try:
        changes = _DECODER.decode(row.changes)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"the link of topic {row.topic!r} at position {row.position} is damaged ({error}); trim it away"
        ) from error
    return Link(
        topic=row.topic,
        prev=Point(row.prev_position, row.prev_nonce),
        point=Point(row.position, row.nonce),
        changes=changes,
        count=_count(row),
        digest=digest.join(row.digest_lo, row.digest_hi),
        tx_prev=Point(row.tx_prev_position, row.tx_prev_nonce),
        tx_links=row.tx_links,
        origin=row.origin,
        written_at=row.written_at,
    )


def stored(row: Row[Any]) -> Stored:
    """A row of the objects, all columns in the table's order: by name, they would cost half of a full sync."""
    columns: tuple[Any, ...] = tuple(row)
    table, key, topic, version, value, low, high, _bucket = columns
    return Stored(table, key, topic, version, bytes(value), digest.join(low, high))


def select_objects(table: str, keys: Iterable[str]) -> Select[Any]:
    """The objects of one table with these keys, in the order in which every writer locks them."""
    objects = schema.objects.c
    return (
        select(schema.objects)
        .where(objects.table_name == table, objects.object_key.in_(list(keys)))
        .order_by(objects.object_key)
    )


def lock_objects(dialect: str, table: str, keys: Sequence[str]) -> Select[Any]:
    """The same, locked. ``keys`` sorted as bytes.

    PostgreSQL gets one index lookup a key, forced by LATERAL. Left to itself it reads the whole table for an IN list
    with an order while its statistics lag behind, which they do exactly during a bulk load; each statement
    then takes the longer, the larger the table is.
    """
    if dialect != "postgresql":
        return select_objects(table, keys).with_for_update()
    objects = schema.objects.c
    wanted = func.unnest(literal(list(keys), ARRAY(Text))).table_valued("key", name="wanted").render_derived()
    found = (
        select(schema.objects)
        .where(objects.table_name == table, objects.object_key == wanted.c.key)
        .with_for_update()
        .lateral("found")
    )
    return select(found).select_from(wanted.join(found, true()))
