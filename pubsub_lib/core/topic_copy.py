"""All objects of one topic of a replica as they are at one moment, read a few at a time.

A relay answers with the objects of a topic while links go on changing it. To copy all of them in one step would delay
the links: 0.3 µs for each object. The begin of a :class:`TopicCopy` makes a list of the topic's keys, 6 ms for a
million objects, and each step reads a bounded number of objects. An object that a link changes before its step is
copied first, with the version and value that it has at the begin (:meth:`TopicCopy.touch`).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pubsub_lib.core.made_records import MadeRecords
from pubsub_lib.core.merged_view import HeldObject
from pubsub_lib.core.model import Link, Record

Row = tuple[str, int, bytes]
"""Key, version and value of an object."""
Part = tuple[str, list[Row]]
"""A table, and some of its objects."""

STEP: Final = 250
"""Objects of one step: it takes less than 0.1 ms."""


class TopicCopy(MadeRecords):
    """Not thread-safe: the caller of every method holds the lock of the cache, also of those of a sequence.

    It is read either by steps, once, or as a sequence of records, any number of times.
    """

    __slots__ = ("__weakref__", "_ahead", "_before", "_count", "_left", "_stepped", "_tables")

    def __init__(self, tables: Mapping[str, dict[str, HeldObject]]) -> None:
        """:meth:`.TopicObjects.copy` makes it, and reports each link until it is read."""
        self._tables = tables
        self._left = [(table, list(objects)) for table, objects in tables.items() if objects]
        self._count = sum(len(keys) for _, keys in self._left)
        self._before: dict[str, dict[str, tuple[int, bytes]]] = {}
        """Of objects that were changed since the begin: version and value at the begin."""
        self._ahead: list[Part] = []
        """What was read before a step returned it."""
        self._stepped = False

    @property
    def needs_links(self) -> bool:
        """Whether objects are left, so that each link must be reported."""
        return bool(self._left)

    def touch(self, link: Link) -> None:
        """A link of the topic is about to be applied."""
        for change in link.changes:
            objects = self._tables.get(change.table)
            entry = None if objects is None else objects.get(change.key)
            if entry is not None:
                self._before.setdefault(change.table, {}).setdefault(change.key, (entry.version, entry.value))

    def finish(self) -> None:
        """Read what is left: the topic is about to be replaced or dropped."""
        while self._left:
            self._ahead.append(self._read())

    def step(self) -> Part | None:
        """The next objects, at most :data:`STEP`; None at the end."""
        self._stepped = True
        if self._ahead:
            return self._ahead.pop()
        return self._read() if self._left else None

    def _read(self) -> Part:
        table, keys = self._left[-1]
        few = keys[-STEP:]
        del keys[-STEP:]
        if not keys:
            self._left.pop()
        objects, before = self._tables.get(table, {}), self._before.get(table)
        # An object that is missing was lost in memory, because no link deleted it. The replica's recount finds that.
        if not before:
            rows = [(key, at.version, at.value) for key in few if (at := objects.get(key)) is not None]
        else:
            rows = []
            for key in few:
                held, entry = before.pop(key, None), objects.get(key)
                if held is not None:
                    rows.append((key, *held))
                elif entry is not None:
                    rows.append((key, entry.version, entry.value))
        if not self._left:
            self._before.clear()
        return table, rows

    # -- a sequence ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        if self._stepped:
            raise RuntimeError("the copy of the topic was read by steps, which return each object once")
        self.finish()
        return (Record(table, *row) for table, rows in self._ahead for row in rows)
