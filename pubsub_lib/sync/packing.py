"""The objects of a topic as a service or a relay reads them for its sync channel: compressed pages, ready to be sent.

A service keeps no objects. An entry in memory for each object takes several times the space of its compressed page, for
each replica that reads at the same time. The database could be read while the answer is sent; then a slow replica would
hold a transaction and a connection open. A relay reads its memory: a slow replica would hold the old values of objects
that links have changed since.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec

from pubsub_lib.core.contents import Content, Row, Unknown
from pubsub_lib.core.made_records import MadeRecords
from pubsub_lib.core.model import Record
from pubsub_lib.core.topic_copy import Part
from pubsub_lib.sync.pages import ITEM_BYTES, PAGE_BYTES, RecordsPage, encode_page
from pubsub_lib.sync.stream import GZIP, LENGTH, packed

MAX_OPEN: Final = 8 * 1024 * 1024
"""Bytes of objects that wait until their page is full, of all topics and tables of one reading together."""
_decode: Final = msgspec.msgpack.Decoder(RecordsPage).decode


class PackedRecords(MadeRecords):
    """The objects of one topic. As a sequence: a record for each object, which is made when it is read."""

    __slots__ = ("_count", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        """Pages of records, each one a stream of gzip of its own."""
        self._count = 0

    def add(self, page: RecordsPage) -> None:
        """Add a page."""
        self.parts.append(b"".join(packed([encode_page(page)], gzip=True)))
        self._count += len(page.rows)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        for part in self.parts:
            page = _decode(zlib.decompress(part, GZIP)[LENGTH:])
            for key, version, value in page.rows:
                yield Record(page.table, key, version, value)


class _Open:
    """A page that is not full."""

    __slots__ = ("rows", "size", "table", "topic")

    def __init__(self, topic: str, table: str) -> None:
        self.topic = topic
        self.table = table
        self.rows: list[tuple[str, int, bytes]] = []
        self.size = 0


def read_packed(
    topics: Collection[str], pages: Iterable[Iterable[Row]], table: str | None, content: Content, unknown: Unknown
) -> dict[str, PackedRecords]:
    """As :func:`pubsub_lib.core.contents.read_contents`; rows may come in any order."""
    found = {topic: PackedRecords() for topic in topics}
    opened: dict[Any, _Open] = {}
    waiting = 0
    for rows in pages:
        for place, key, version, data in rows:
            page = opened.get(place)
            if page is None:
                topic, name = place if table is None else (place, table)
                if topic not in found:
                    raise unknown(topic)
                page = opened[place] = _Open(topic, name)
            value = data if type(data) is bytes else content(page.table, key, page.topic, data)
            size = ITEM_BYTES + len(page.table) + len(key) + len(value)
            page.rows.append((key, version, value))
            page.size += size
            waiting += size
            if page.size >= PAGE_BYTES:
                waiting -= page.size
                del opened[place]
                found[page.topic].add(RecordsPage(page.table, page.rows))
        if waiting > MAX_OPEN:
            _close(opened, found)
            waiting = 0
    _close(opened, found)
    return found


def pack(parts: Iterable[Part]) -> PackedRecords:
    """The objects in these parts, those of a table in parts that follow one another. Compressing a page releases the
    interpreter's lock, so other threads wait only until a page is full.
    """
    packed_ = PackedRecords()
    table, waiting, room = "", list[tuple[str, int, bytes]](), PAGE_BYTES
    for name, rows in parts:
        beside = ITEM_BYTES + len(name)
        for row in rows:
            size = beside + len(row[0]) + len(row[2])
            if waiting and (size > room or name != table):
                packed_.add(RecordsPage(table, waiting))
                waiting, room = [], PAGE_BYTES
            table = name
            waiting.append(row)
            room -= size
    if waiting:
        packed_.add(RecordsPage(table, waiting))
    return packed_


def _close(opened: dict[Any, _Open], found: dict[str, PackedRecords]) -> None:
    for page in opened.values():
        found[page.topic].add(RecordsPage(page.table, page.rows))
    opened.clear()
