"""The objects of a topic as a store reads them for a replica: already in the form in which the replica keeps them.

A first sync reads every object of the store. A record for each object, from which the replica then makes its own entry,
would take as long as reading it. So the reading thread makes the entries and computes their fingerprints, without the
replica's lock, and the cache takes them over.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, overload

from xxhash import xxh3_64_intdigest as xxh3

from pubsub_lib.core.digest import MASK
from pubsub_lib.core.merged_view import HeldObject
from pubsub_lib.core.model import Record

Tables = dict[str, dict[str, HeldObject]]
"""Table -> key -> entry."""
Row = Sequence[Any]
"""Topic, table, key, version, value."""

_Door = tuple[str, Callable[[str], None], Callable[[HeldObject], None]]
_fingerprint: Final = attrgetter("fingerprint")


class Contents(Sequence[Record]):
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

    def entries(self) -> Iterator[HeldObject]:
        """Every entry. Raises RuntimeError after :meth:`take`."""
        for objects in self.tables.values():
            yield from objects.values()

    def __len__(self) -> int:
        return sum(map(len, self.tables.values()))

    def __iter__(self) -> Iterator[Record]:
        for table, objects in self.tables.items():
            for key, entry in objects.items():
                yield Record(table, key, entry.version, entry.value)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class _Column:
    """The objects of one topic and table, in the order in which they were read."""

    __slots__ = ("_summed", "digest", "entries", "keys")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.entries: list[HeldObject] = []
        self.digest = 0
        self._summed = 0

    def add_up(self) -> None:
        """Add the fingerprints of the last entries to the digest."""
        self.digest += sum(map(_fingerprint, self.entries[self._summed :]))
        self._summed = len(self.entries)


class Loading:
    """Makes the contents of several topics from the rows of one reading. One thread at a time.

    ``content`` (of table, key, topic, value) returns the bytes of a value of another type, or raises. ``unknown``
    returns the exception for a row whose topic is not one of ``topics``.
    """

    def __init__(
        self,
        topics: Collection[str],
        content: Callable[[str, str, str, Any], bytes],
        unknown: Callable[[str], Exception],
    ) -> None:
        self._content = content
        self._unknown = unknown
        self._columns: dict[str, dict[str, _Column]] = {topic: {} for topic in topics}
        """Topic -> table -> objects."""
        self._made: list[_Column] = []

    def read(self, pages: Iterable[Sequence[Row]]) -> None:
        """Add the rows. More than half of a full sync: one loop, which calls no function of this package."""
        table = ""
        doors: dict[str, dict[str, _Door]] = {table: {}}
        """Table -> topic -> where its rows go."""
        topics, left = doors[table], 0
        for rows in pages:
            for name, table_name, key, version, data in rows:
                if table_name != table:
                    table = table_name
                    topics = doors.setdefault(table, {})
                door = topics.get(name)
                if door is None:
                    door = topics[name] = self._door(table, name)
                topic, add_key, add_entry = door  # the topic again: all entries share one string
                value = data if type(data) is bytes else self._content(table, key, topic, data)
                add_key(key)
                # fingerprint(), written out as in Cache.apply_run
                add_entry(HeldObject(version, value, xxh3(f"{table}\0{key}\0{version}\0".encode() + value), topic))
            left -= len(rows)
            if left < 0:  # while the last entries are in the processor's caches; few times for 10,000 topics, too
                for column in self._made:
                    column.add_up()
                left = 10 * len(self._made)

    def _door(self, table: str, topic: str) -> _Door:
        if topic not in self._columns:
            raise self._unknown(topic)
        column = self._columns[topic][table] = _Column()
        self._made.append(column)
        return topic, column.keys.append, column.entries.append

    def contents(self, topic: str) -> Contents:
        """The contents of one of the topics, once, after the last row."""
        tables: Tables = {}
        total = 0
        for table, column in self._columns.pop(topic).items():
            # One topic after the other, because a dict that fits into the processor's caches grows faster.
            tables[table] = dict(zip(column.keys, column.entries, strict=True))
            column.add_up()
            total += column.digest
        return Contents(tables, total & MASK)


def contents_of(topic: str, records: Sequence[Record]) -> Contents:
    """The records of one topic as contents: themselves, if they are contents."""
    if isinstance(records, Contents):
        return records
    loading = Loading((topic,), lambda table, key, topic, value: bytes(value), KeyError)
    loading.read([[(topic, each.table, each.key, each.version, each.value) for each in records]])
    return loading.contents(topic)
