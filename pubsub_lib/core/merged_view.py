"""The merged view: one object per (table, key), also while several topics hold it.

Each topic is a chain of its own. An object that moves from topic A to topic B is a delete in A and a create in B. The
two arrive in either order, so an object can be in both topics for a while. The highest version is shown. A delete of a
link leaves a *tombstone*, together with the topic whose chain it came from: it hides entries with a lower version in
topics that lag behind. An object that a snapshot of a topic lacks leaves a tombstone too, at its last known version.

A tombstone of a history that a restore has undone would hide an object that exists in another topic. So a topic's
tombstones are forgotten when its history is seen to have changed, or when it is dropped. A tombstone also ends when it
is *disproved*: a topic that has everything up to the tombstone's position, and still holds an older entry, does not
lag. A topic's tombstones are never above its own position, and that position is never above the store's. So the next
proof of every topic ends each wrong tombstone.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from pubsub_lib.core.events import Decode, Event, plain

MAX_TOMBSTONES = 10_000
"""Maximum number of tombstones of objects that no topic holds. A forgotten tombstone can only let a late old object
show until the lagging topic has caught up.
"""

Ident = tuple[str, str]
"""(table, key)"""


class HeldObject(msgspec.Struct, gc=False):
    """One object in one topic of a replica. ``value`` is canonical JSON as stored.

    Never leaves the cache. Not frozen: a ``set``, the most frequent change, writes into the entry that topic and merged
    view share, instead of making a new one and storing it twice.
    """

    version: int
    value: bytes
    fingerprint: int
    topic: str


Tables = Mapping[str, Mapping[str, HeldObject]]
"""Table -> key -> entry, of one topic."""


class Tombstone(msgspec.Struct, frozen=True, gc=False):
    """A delete, seen in ``topic``: no version up to ``version`` is shown from now on."""

    version: int
    topic: str


NO_TOMBSTONE = Tombstone(0, "")


class Contest:
    """An object that more than one topic holds, or that a tombstone hides."""

    __slots__ = ("holders", "tombstone")

    def __init__(self, holders: dict[str, HeldObject], tombstone: Tombstone) -> None:
        self.holders = holders
        self.tombstone = tombstone


class MergedView:
    """The objects that a replica shows. The caller holds a lock around every call.

    ``shown`` (table -> key -> entry), ``contested`` and ``tombstones`` are read by :class:`~.cache.Cache`, whose
    path for objects in a single topic writes ``shown`` directly: a call for each change would double its
    cost.
    """

    def __init__(self, decoders: Mapping[str, Decode]) -> None:
        self.shown: defaultdict[str, dict[str, HeldObject]] = defaultdict(dict)
        self.contested: dict[Ident, Contest] = {}
        self.tombstones: OrderedDict[Ident, Tombstone] = OrderedDict()
        self.lagging: dict[str, dict[Ident, None]] = {}
        """Per topic the objects whose entry there a tombstone hides, and perhaps some for which this is over."""
        self._tombstones_by_topic: dict[str, dict[Ident, None]] = {}
        """Per topic the objects with a tombstone of this topic, here or in a contest: at most one tombstone each.

        A dict keeps the order of insertion, unlike a set: events must come in the same order in every process.
        """
        self.decoders = dict(decoders)
        """The decoders of the values of typed tables."""

    def add_all(self, tables: Tables, others: Callable[[], Iterable[Tables]]) -> bool:
        """Show all objects of a topic that had none. False, and nothing is changed, when a tombstone or another topic
        concerns one of them: then each goes through :meth:`shift`. ``others`` returns the objects of the other topics.
        """
        if self.tombstones or self.contested:
            return False
        for table, objects in tables.items():
            shown = self.shown[table]
            before = len(shown)
            shown.update(objects)  # a search for common keys first would take half as long again
            if len(shown) != before + len(objects):
                self._undo(tables, others())
                return False
        return True

    def _undo(self, tables: Tables, others: Iterable[Tables]) -> None:
        for table, objects in tables.items():
            shown = self.shown[table]
            for key, entry in objects.items():
                if shown.get(key) is entry:
                    del shown[key]
        for other in others:
            for table, objects in tables.items():
                there = other.get(table, {})
                self.shown[table].update((key, there[key]) for key in objects if key in there)

    def add_tombstone(self, ident: Ident, tombstone: Tombstone) -> None:
        """Remember the tombstone of an object that no topic holds any more."""
        self.tombstones[ident] = tombstone
        self._tombstones_by_topic.setdefault(tombstone.topic, {})[ident] = None
        if len(self.tombstones) > MAX_TOMBSTONES:
            oldest, gone = self.tombstones.popitem(last=False)
            self._unindex(oldest, gone)

    def _unindex(self, ident: Ident, tombstone: Tombstone) -> None:
        idents = self._tombstones_by_topic.get(tombstone.topic)
        if idents is not None:
            idents.pop(ident, None)
            if not idents:
                del self._tombstones_by_topic[tombstone.topic]

    def shift(
        self,
        ident: Ident,
        topic: str,
        new: HeldObject | None,
        deleted: int | None,
        position: int,
        written_at: float = 0.0,
        ended: int | None = None,
    ) -> Event | None:
        """Set a topic's entry of an object to ``new``. None: it is deleted, by a link's delete of version ``deleted``;
        or a snapshot lacks it when that is None, and ``ended`` is a version that certainly does not exist any more, or
        None. Returns the event of the merged view, or None when the view did not change.
        """
        tombstone = ended if deleted is None else deleted
        table, key = ident
        shown = self.shown[table]
        winner = shown.get(key)
        contest = self.contested.get(ident)
        if contest is None:
            if winner is None and new is None:
                return None
            if (winner is None and ident not in self.tombstones) or (winner is not None and winner.topic == topic):
                if new is not None:
                    shown[key] = new
                else:
                    del shown[key]
                    if tombstone is not None:
                        self.add_tombstone(ident, Tombstone(tombstone, topic))
                return self.event(table, key, winner, new, deleted, position, written_at)
            holders = {} if winner is None else {winner.topic: winner}
            contest = Contest(holders, self.tombstones.pop(ident, NO_TOMBSTONE))
        if new is not None:
            contest.holders[topic] = new
        else:
            contest.holders.pop(topic, None)
            if tombstone is not None and tombstone > contest.tombstone.version:
                self._unindex(ident, contest.tombstone)
                contest.tombstone = Tombstone(tombstone, topic)
                self._tombstones_by_topic.setdefault(topic, {})[ident] = None
        return self._resolve(ident, contest, deleted, position, written_at)

    def drop_tombstones(self, topic: str, position: int, above: int = -1) -> list[Event]:
        """Forget the tombstones of a topic, all or those above a version, because its chain has changed. Returns the
        events of the objects that show again.
        """
        events = []
        for ident in list(self._tombstones_by_topic.get(topic, ())):
            contest = self.contested.get(ident)
            tombstone = self.tombstones[ident] if contest is None else contest.tombstone
            if tombstone.version <= above:
                continue
            self._unindex(ident, tombstone)
            if contest is None:
                del self.tombstones[ident]
                continue
            contest.tombstone = NO_TOMBSTONE
            event = self._resolve(ident, contest, None, position, 0.0)
            if event is not None:
                events.append(event)
        return events

    def drop_disproved_tombstones(self, topic: str, upto: int, position: int) -> list[Event]:
        """A topic has everything up to the position ``upto`` of the store. Its entries below a tombstone that is not
        above ``upto`` do not lag, so the tombstone is of another history. Returns the events of the objects that show
        again.
        """
        events = []
        still: dict[Ident, None] = {}
        for ident in self.lagging.pop(topic, ()):
            contest = self.contested.get(ident)
            entry = None if contest is None else contest.holders.get(topic)
            if contest is None or entry is None or entry.version > contest.tombstone.version:
                continue
            if contest.tombstone.version > upto:
                still[ident] = None
                continue
            self._unindex(ident, contest.tombstone)
            contest.tombstone = NO_TOMBSTONE
            event = self._resolve(ident, contest, None, position, 0.0)
            if event is not None:
                events.append(event)
        if still:
            self.lagging[topic] = still
        return events

    def show_again(self, ident: Ident, entry: HeldObject) -> bool:
        """For an object that a topic holds as ``entry``: show what the topics hold if the view has lost it, or has an
        older one. Returns whether it was so.
        """
        table, key = ident
        shown = self.shown[table]
        contest = self.contested.get(ident)
        if contest is None:
            best: HeldObject | None = entry
        else:
            visible = [each for each in contest.holders.values() if each.version > contest.tombstone.version]
            best = max(visible, key=lambda each: each.version, default=None)
            held = [each for each in visible if each is shown.get(key)]
            if held and best is not None and held[0].version == best.version:
                best = held[0]  # of equal versions either may show
        if best is None or shown.get(key) is best:
            return False
        shown[key] = best
        return True

    def _resolve(
        self, ident: Ident, contest: Contest, deleted: int | None, position: int, written_at: float
    ) -> Event | None:
        table, key = ident
        shown = self.shown[table]
        old = shown.get(key)
        best: HeldObject | None = None
        for entry in contest.holders.values():
            # Equal versions in two topics come from two histories: what is shown stays until one is replaced.
            if (entry.version, entry is old) <= (contest.tombstone.version, False):
                self.lagging.setdefault(entry.topic, {})[ident] = None
                continue
            if best is None or (entry.version, entry is old) > (best.version, best is old):
                best = entry
        alone = len(contest.holders) == 1 and best is not None
        if alone or not contest.holders:
            self.contested.pop(ident, None)
            if contest.tombstone.version:
                if alone:
                    self._unindex(ident, contest.tombstone)
                else:
                    self.add_tombstone(ident, contest.tombstone)
        else:
            self.contested[ident] = contest
        if best is old:
            return None
        if best is None:
            del shown[key]
        else:
            shown[key] = best
        return self.event(table, key, old, best, deleted, position, written_at)

    def event(
        self,
        table: str,
        key: str,
        old: HeldObject | None,
        new: HeldObject | None,
        deleted: int | None,
        position: int,
        written_at: float,
    ) -> Event:
        """The event of a change from ``old`` to ``new``; one of them is an entry."""
        if new is None:
            assert old is not None
            return Event(
                table, key, old.topic, "delete", deleted, old.version, old.value, None, position, written_at,
                old.topic, self.decoders.get(table, plain),
            )  # fmt: skip
        if old is None:
            return Event(
                table, key, new.topic, "create", new.version, None, None, new.value, position, written_at,
                None, self.decoders.get(table, plain),
            )  # fmt: skip
        return Event(
            table, key, new.topic, "set", new.version, old.version, old.value, new.value, position,
            written_at, old.topic, self.decoders.get(table, plain),
        )  # fmt: skip
