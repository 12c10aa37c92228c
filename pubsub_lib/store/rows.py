"""Mapping between rows and protocol objects: heads, links, objects.

A database keeps fingerprints and digests as two 32-bit halves, because SQLite's ``sum`` overflows at 64 bits;
``join(sum(lo), sum(hi))`` is the same sum.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from sqlalchemy import Select, select

from pubsub_lib.core import digest
from pubsub_lib.core.model import Change, Head, Link, Point
from pubsub_lib.errors import SchemaError, StoreError
from pubsub_lib.store import schema
from pubsub_lib.store.verbs import Stored

T = TypeVar("T")
CHUNK = 500
"""Maximum number of values in one IN list."""

WAY_OUT: Final = (
    "the publisher service repairs it within its recount_time if the changelog contains the right value; otherwise run "
    "pubsub-db accept --topic {topic}"
)
"""The advice for rows that were altered without the library."""
_BYTES = (bytes, bytearray, memoryview)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Change])


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """The items in slices of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def split(number: int) -> tuple[int, int]:
    """(low, high) 32-bit halves of a fingerprint or a digest."""
    return number & 0xFFFFFFFF, number >> 32


def join(low: int, high: int) -> int:
    """The number of two halves; the digest of two sums of halves."""
    return (low + (high << 32)) & digest.MASK


def sums(low: float, high: float) -> int:
    """The digest of two sums of halves as the database returns them. An altered row may make a sum infinite in SQLite:
    then the digest is wrong, as with any other altered row.
    """
    return join(*(int(each) if math.isfinite(each) else 0 for each in (low, high)))


@functools.lru_cache(maxsize=16)  # a process knows few stores, and each commit reads the id of its own
def store_id(text: str) -> bytes:
    """The store's id from its column. Raises SchemaError when it is lost."""
    try:
        found = bytes.fromhex(text)
    except (ValueError, TypeError):  # TypeError: no text, which SQLite lets in
        found = b""
    if len(found) != 16:
        raise SchemaError(f"the table pubsub_store holds no store id but {text!r}; make one by pubsub-db new-id")
    return found


def identity(found: Sequence[Sequence[Any]]) -> tuple[Point, bytes]:
    """The store's head and id, of the row of the store: its position, nonce and id. Raises SchemaError when the row is
    gone, or the id."""
    if not found:
        no_counter()
    position, nonce, store = found[0]
    require_numbers((position, nonce), lambda: "the row of pubsub_store")
    return Point(position, nonce), store_id(store)


def head(row: Sequence[Any]) -> Head:
    """A row of the topics, all columns in the table's order. Raises StoreError for a damaged one."""
    topic, *numbers = row
    require_numbers(numbers, lambda: f"the row of the topic {topic!r} in pubsub_topics")
    position, nonce, count, low, high = numbers
    return Head(Point(position, nonce), count, join(low, high))


def require_numbers(numbers: Iterable[object], name: Callable[[], str]) -> None:
    """Raises StoreError for a number's column that holds something else, which SQLite lets in."""
    for each in numbers:
        if type(each) is not int:
            raise StoreError(f"{name()} is damaged: {each!r} stands for a number; restore the database from a backup")


def head_row(link: Link) -> dict[str, Any]:
    """The row of a topic after a link."""
    return topic_row(link.topic, Head(link.point, link.count, link.digest))


def topic_row(topic: str, head: Head) -> dict[str, Any]:
    """The row of a topic."""
    low, high = split(head.digest)
    return {
        "topic": topic,
        "position": head.point.position,
        "nonce": head.point.nonce,
        "count": head.count,
        "digest_lo": low,
        "digest_hi": high,
    }


def object_row(item: Stored, bucket: int | None = None) -> dict[str, Any]:
    """An object as a row of the objects' table. ``bucket``: its bucket, where that was computed before."""
    low, high = split(item.fingerprint)
    return {
        "table_name": item.table,
        "object_key": item.key,
        "topic": item.topic,
        "version": item.version,
        "value": item.value,
        "fp_lo": low,
        "fp_hi": high,
        "bucket": digest.bucket_of(item.table, item.key) if bucket is None else bucket,
    }


def link_row(link: Link, stored_at: int, head: dict[str, Any] | None = None) -> dict[str, Any]:
    """The changelog's row of a link. ``head``: its :func:`head_row`, where that was made before."""
    return (head or head_row(link)) | {
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


def recorded(row: Sequence[object]) -> Head | None:
    """Position, nonce, count and digest of a row of the changelog; None when it is damaged."""
    numbers = [each for each in row if type(each) is int and each >= 0]  # text, which SQLite lets in
    if len(numbers) < len(row):
        return None
    position, nonce, count, low, high = numbers
    return Head(Point(position, nonce), count, join(low, high))


def link(row: Sequence[Any]) -> Link:
    """A row of the changelog, all columns in the table's order. Raises StoreError when its changes cannot be read."""
    position, topic, nonce, prev_position, prev_nonce, count, low, high, *rest = row
    tx_prev_position, tx_prev_nonce, tx_links, origin, written_at, _stored_at, encoded = rest
    try:
        changes = _DECODER.decode(encoded)
    except (msgspec.DecodeError, TypeError) as error:  # TypeError: text, which SQLite lets in
        raise StoreError(
            f"the link of topic {topic!r} at position {position} is damaged ({error}); trim it away"
        ) from error
    numbers = (position, nonce, prev_position, prev_nonce, count, low, high, tx_prev_position, tx_prev_nonce, tx_links)
    require_numbers(numbers, lambda: f"the link of topic {topic!r} at position {position!r}")
    return Link(
        topic=topic,
        prev=Point(prev_position, prev_nonce),
        point=Point(position, nonce),
        changes=changes,
        count=count,
        digest=join(low, high),
        tx_prev=Point(tx_prev_position, tx_prev_nonce),
        tx_links=tx_links,
        origin=origin,
        written_at=written_at,
    )


def stored(row: Sequence[Any]) -> Stored:
    """A row of the objects, all columns in the table's order: by name, they would cost half of a full sync."""
    columns: tuple[Any, ...] = tuple(row)
    table, key, topic, version, value, low, high, _bucket = columns
    if not (isinstance(value, _BYTES) and type(version) is type(low) is type(high) is int):
        raise damaged(table, key, topic, _complaint(version, value, low, high))
    return Stored(table, key, topic, version, bytes(value), join(low, high))


def content(table: str, key: str, topic: str, value: object) -> bytes:
    """The bytes of an object's value. Raises StoreError when it is something else."""
    if not isinstance(value, _BYTES):
        raise damaged(table, key, topic, _complaint(0, value, 0, 0))
    return bytes(value)


class Seen(msgspec.Struct, frozen=True):
    """A row of the objects as it is stored, also a damaged one."""

    item: Stored
    """The readable part of the row: text as its UTF-8, and 0 for a value that is not a number."""
    complaint: str = ""
    """Why other readers reject the row, or do not find it, as a part of a sentence; "": the row is well-formed."""
    misplaced: bool = False
    """Whether its bucket is not that of its table and key."""


def seen(row: Sequence[Any]) -> Seen:
    """A row of the objects, all columns in the table's order, for callers that search for damage. Raises nothing."""
    columns: tuple[Any, ...] = tuple(row)
    table, key, topic, version, value, low, high, bucket = columns
    complaint = _complaint(version, value, low, high)
    data = bytes(value) if isinstance(value, _BYTES) else str(value).encode()
    item = Stored(table, key, topic, _number(version), data, join(_number(low), _number(high)))
    right = digest.bucket_of(table, key)
    if not complaint and bucket != right:
        complaint = f"its bucket is {bucket!r}, not {right}"
    return Seen(item, complaint, bucket != right)


def damaged(table: str, key: str, topic: str, complaint: str) -> StoreError:
    """The error for a row of the objects that was written without the library."""
    where = f"the object {key!r} of the table {table!r} on topic {topic!r}"
    return StoreError(f"{where} is damaged: {complaint}; {WAY_OUT.format(topic=topic)}")


def no_counter() -> NoReturn:
    """Raises SchemaError: the store has lost its counter."""
    raise SchemaError("the table pubsub_store has lost its row; restore the database from a backup")


def lost_head(topic: str) -> StoreError:
    """The error for objects on a topic that has no row."""
    way_out = WAY_OUT.format(topic=topic)
    return StoreError(f"the row of the topic {topic!r} in pubsub_topics is lost, though it has objects; {way_out}")


def _complaint(version: object, value: object, low: object, high: object) -> str:
    if not isinstance(value, _BYTES):
        return f"its value is {type(value).__name__}, not bytes"
    wrong = [each for each in (version, low, high) if type(each) is not int]
    return f"its version or fingerprint is {wrong[0]!r}, not a number" if wrong else ""


def _number(value: object) -> int:
    return value if type(value) is int else 0


def select_objects(table: str, keys: Iterable[str]) -> Select[Any]:
    """The objects of one table with these keys, in the order in which every writer locks them."""
    objects = schema.objects.c
    return (
        select(schema.objects)
        .where(objects.table_name == table, objects.object_key.in_(list(keys)))
        .order_by(objects.object_key)
    )
