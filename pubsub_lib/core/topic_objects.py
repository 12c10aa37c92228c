"""The objects of one topic in a replica, with their number and digest, and what reads them while links change them.

Count and digest are running sums: an object that is altered in memory does not change them. A :class:`Walk` reads every
object once, a bounded number at a time, and compares the result with the sums, while links go on changing the topic.
"""

from collections.abc import Iterator
from typing import Final
from weakref import ref

import msgspec

from pubsub_lib.core.digest import MASK, fingerprint
from pubsub_lib.core.merged_view import HeldObject, Ident, MergedView
from pubsub_lib.core.model import Link
from pubsub_lib.core.topic_copy import TopicCopy

MAX_NAMED: Final = 20
"""Maximum number of objects that a walk names; it counts all."""


class TopicObjects:
    """The objects of one topic, their number and digest, and the position up to which links were applied."""

    __slots__ = ("copies", "count", "digest", "position", "tables", "walk")

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, HeldObject]] = {}
        self.count = 0
        self.digest = 0
        self.position = 0
        self.walk: Walk | None = None
        """The running recount of the topic."""
        self.copies: list[ref[TopicCopy]] = []
        """The copies that are not read yet. One without an owner ends by itself."""

    def touch(self, link: Link) -> None:
        """A link of this topic is about to be applied. Needed only for a walk or copies."""
        if self.walk is not None:
            self.walk.touch(link)
        for copy in self._unread() if self.copies else ():
            copy.touch(link)

    def copy(self) -> TopicCopy:
        """All objects as they are now."""
        made = TopicCopy(self.tables)
        self._unread()
        self.copies.append(ref(made))
        return made

    def end(self) -> None:
        """The topic is about to be replaced or dropped: the recount has no result, and the copies are read."""
        self.walk = None
        for copy in self._unread():
            copy.finish()
        self.copies.clear()

    def _unread(self) -> list[TopicCopy]:
        """The copies that need links; the others are forgotten."""
        found = [copy for each in self.copies if (copy := each()) is not None and copy.needs_links]
        self.copies = [ref(copy) for copy in found]
        return found

    def objects(self) -> Iterator[tuple[str, str, HeldObject]]:
        """Every object: table, key, entry."""
        for table, objects in self.tables.items():
            for key, entry in objects.items():
                yield table, key, entry

    def recount(self) -> None:
        """Compute count and digest from the objects: with a wrong sum the topic would be repaired again and again."""
        self.count = sum(map(len, self.tables.values()))
        self.digest = sum(entry.fingerprint for _, _, entry in self.objects()) & MASK


NO_TOPIC: Final = TopicObjects()
"""In place of a topic before the first link of a run; never changed."""


class Rot(msgspec.Struct, frozen=True):
    """Objects of a topic that were altered or lost in memory. ``names``: (table, key) of the first ``MAX_NAMED``; none
    when only count or digest is wrong.
    """

    topic: str
    objects: int
    names: tuple[Ident, ...]


class Walk:
    """One check of every object of a topic, as the topic was when the walk began.

    The begin makes a list of the topic's keys (6 ms for a million objects); each ``step`` checks a bounded number of
    objects. An object that a link changes before its check counts with the fingerprint that it had at the begin
    (``touch``). So the sums must be right however busy the topic is.
    """

    def __init__(self, name: str, topic: TopicObjects, merged: MergedView) -> None:
        self._name = name
        self._topic = topic
        self._merged = merged
        self._begun = topic.position
        self._expected = topic.count, topic.digest
        self._left = [(table, list(objects)) for table, objects in topic.tables.items()]
        self._touched: dict[Ident, int] = {}
        self._count = 0
        self._sum = 0
        self._wrong = 0
        self._names: list[Ident] = []
        topic.walk = self

    @property
    def over(self) -> bool:
        """True when a sync has replaced the topic, or it was dropped, since the walk began: the walk has no result."""
        return self._topic.walk is not self

    def touch(self, link: Link) -> None:
        """A link of this topic is about to be applied."""
        tables, begun, touched = self._topic.tables, self._begun, self._touched
        for change in link.changes:
            objects = tables.get(change.table)
            entry = None if objects is None else objects.get(change.key)
            if entry is not None and entry.version <= begun:
                touched[change.table, change.key] = entry.fingerprint

    def step(self, maximum: int) -> int:
        """Check at most ``maximum`` objects. Returns their number; fewer means the end (see ``result``)."""
        looked = 0
        while self._left and looked < maximum:
            table, keys = self._left[-1]
            objects = self._topic.tables.get(table, {})
            for key in keys[looked - maximum :]:
                self._look(table, key, objects.get(key))
            seen = min(len(keys), maximum - looked)
            looked += seen
            del keys[len(keys) - seen :]
            if not keys:
                self._left.pop()
        return looked

    @property
    def done(self) -> bool:
        """True when every object was checked."""
        return not self._left

    def result(self) -> Rot | None:
        """End the walk, when it is done. Returns the fault, or None."""
        self._topic.walk = None
        if (self._count, self._sum & MASK) == self._expected and not self._wrong:
            return None
        return Rot(self._name, max(self._wrong, 1), tuple(self._names))

    def _look(self, table: str, key: str, entry: HeldObject | None) -> None:
        self._count += 1
        if entry is None or entry.version > self._begun:
            before = self._touched.get((table, key))
            if before is None:  # no link deleted or wrote it
                self._count -= 1
                if entry is not None:  # its version was altered; so its bucket must differ from the store's
                    entry.fingerprint = fingerprint(table, key, entry.version, entry.value)
                self._blame(table, key)
            else:
                self._sum += before
            return
        real = fingerprint(table, key, entry.version, entry.value)
        self._sum += real
        # The topic has it; perhaps only the merged view has lost it.
        hidden = self._merged.shown[table].get(key) is not entry and self._merged.show_again((table, key), entry)
        if real != entry.fingerprint or hidden:
            entry.fingerprint = real  # so that its bucket differs from the store's
            self._blame(table, key)

    def _blame(self, table: str, key: str) -> None:
        self._wrong += 1
        if len(self._names) < MAX_NAMED:
            self._names.append((table, key))
