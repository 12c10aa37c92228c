"""The objects of a topic as a store reads them for a replica: already in the form in which the replica keeps them.

A first sync reads every object of the store. A record for each object, from which the replica then makes its own entry,
would take as long as reading it. So the reading thread makes the entries and computes their fingerprints, without the
replica's lock, and the cache takes them over.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Protocol

from xxhash import xxh3_64_intdigest as xxh3

from pubsub_lib.core.digest import MASK
from pubsub_lib.core.made_records import MadeRecords
from pubsub_lib.core.merged_view import HeldObject
from pubsub_lib.core.model import Record

Tables = dict[str, dict[str, HeldObject]]
"""Table -> key -> entry."""
Row = Sequence[Any]
"""Topic or (topic, table), key, version, value."""
Content = Callable[[str, str, str, Any], bytes]
"""Of table, key, topic and value."""
Unknown = Callable[[str], Exception]


class ReadObjects(Protocol):
    """Makes something of the objects of one reading: a function like :func:`read_contents`."""

    def __call__(
        self,
        topics: Collection[str],
        pages: Iterable[Iterable[Row]],
        table: str | None,
        content: Content,
        unknown: Unknown,
        /,
    ) -> Mapping[str, Sequence[Record]]:
        """See :func:`read_contents`."""


_FEW: Final = 500
_fingerprint: Final = attrgetter("fingerprint")


class Contents(MadeRecords):
    """The objects of one topic, in the order in which they were read. As a sequence: a record for each object.

    The replica changes the entries, so only one may have them: after :meth:`take` the contents cannot be read.
    """

    __slots__ = ("_tables", "digest")

    def __init__(self, tables: Tables, digest: int) -> None:
        self._tables: Tables | None = tables
        self.digest = digest
        """The sum of the fingerprints of all rows: if a damaged file has a key twice, it differs from the head's."""

    @property
    def tables(self) -> Tables:
        """The entries, which the caller must not change. Raises RuntimeError after :meth:`take`."""
        if self._tables is None:
            raise RuntimeError("the contents of the snapshot were handed over to a replica, which changes them")
        return self._tables

    def take(self) -> Tables:
        """The entries, which belong to the caller from now on. Raises RuntimeError when they were taken before."""
        tables, self._tables = self.tables, None
        return tables

    def goes_back(self, position: int) -> bool:
        """Whether an object has a version that is not above this position. Raises RuntimeError after :meth:`take`."""
        versions = (entry.version for objects in self.tables.values() for entry in objects.values())
        return min(versions, default=position + 1) <= position

    def __len__(self) -> int:
        return sum(map(len, self.tables.values()))

    def __iter__(self) -> Iterator[Record]:
        for table, objects in self.tables.items():
            for key, entry in objects.items():
                yield Record(table, key, entry.version, entry.value)


def read_contents(
    topics: Collection[str], pages: Iterable[Iterable[Row]], table: str | None, content: Content, unknown: Unknown
) -> dict[str, Contents]:
    """The contents of each topic, from the rows of one reading.

    ``table``: the only table, and each row begins with its topic; None: each row begins with (topic, table).
    ``content`` returns the bytes of a value of another type, or raises. ``unknown`` returns the exception for a row
    whose topic is not one of ``topics``.
    """
    columns: dict[str, dict[str, tuple[list[str], list[HeldObject]]]] = {topic: {} for topic in topics}
    doors: dict[Any, tuple[str, str, Callable[[str], None], Callable[[HeldObject], None]]] = {}
    # More than half of a full sync: one loop, which calls no function of this package for a well-formed row.
    for rows in pages:
        for place, key, version, data in rows:
            door = doors.get(place)
            if door is None:
                topic, name = _located(place, table, topics, unknown)
                keys, entries = columns[topic][name] = [], []
                door = doors[place] = topic, name, keys.append, entries.append
            topic, name, add_key, add_entry = door  # all entries share the strings of the door
            value = data if type(data) is bytes else content(name, key, topic, data)
            add_key(key)
            # fingerprint(), written out as in Cache.apply_run
            add_entry(HeldObject(version, value, xxh3(f"{name}\0{key}\0{version}\0".encode() + value), topic))
    # One topic after the other, because a dict that fits into the processor's caches grows faster.
    return {topic: _contents(columns.pop(topic)) for topic in topics}


def _contents(columns: dict[str, tuple[list[str], list[HeldObject]]]) -> Contents:
    """The digest, and the dicts, a few objects at a time: the sum and the slices bring them into the processor's caches
    for the dict.
    """
    tables: Tables = {}
    total = 0
    for table, (keys, entries) in columns.items():
        objects = tables[table] = {}
        for start in range(0, len(keys), _FEW):
            few = entries[start : start + _FEW]
            total += sum(map(_fingerprint, few))
            objects.update(zip(keys[start : start + _FEW], few, strict=True))
    return Contents(tables, total & MASK)


def read_records(
    topics: Collection[str], pages: Iterable[Iterable[Row]], table: str | None, content: Content, unknown: Unknown
) -> dict[str, list[Record]]:
    """As :func:`read_contents`, but records, for a replica that has most of these objects: they take less memory."""
    found: dict[str, list[Record]] = {topic: [] for topic in topics}
    doors: dict[Any, tuple[str, str, Callable[[Record], None]]] = {}
    for rows in pages:
        for place, key, version, data in rows:
            door = doors.get(place)
            if door is None:
                topic, name = _located(place, table, topics, unknown)
                door = doors[place] = topic, name, found[topic].append
            topic, name, add = door
            add(Record(name, key, version, data if type(data) is bytes else content(name, key, topic, data)))
    return found


def _located(place: Any, table: str | None, topics: Collection[str], unknown: Unknown) -> tuple[str, str]:
    topic, name = place if table is None else (place, table)
    if topic not in topics:
        raise unknown(topic)
    return topic, name


def contents_of(topic: str, records: Sequence[Record]) -> Contents:
    """The records of one topic as contents: themselves, if they are contents."""
    if isinstance(records, Contents):
        return records
    rows = (((topic, each.table), each.key, each.version, each.value) for each in records)
    return read_contents((topic,), [rows], None, lambda table, key, topic, value: bytes(value), KeyError)[topic]
