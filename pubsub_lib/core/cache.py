"""The objects of a replica: changed by whole links, replaced by syncs, guarded by versions, proved by digests.

Rules 1, 5 and 10. This module reads no clock, takes no lock and logs nothing: the caller holds the one lock and reports
the contents of :class:`Applied`. Objects are kept per topic, since count and digest belong to a topic. Users see the
merged view of :mod:`.merged_view`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest as xxh3

from pubsub_lib.arguments import check_kind
from pubsub_lib.core.contents import Contents, contents_of
from pubsub_lib.core.digest import MASK, bucket_of, fingerprint
from pubsub_lib.core.events import Decode, Event, plain
from pubsub_lib.core.index import Extract, Index
from pubsub_lib.core.merged_view import HeldObject, MergedView
from pubsub_lib.core.model import ALL, Head, Link, Record, TopicSnapshot
from pubsub_lib.core.objects import Object
from pubsub_lib.core.topic_copy import TopicCopy
from pubsub_lib.core.topic_objects import NO_TOPIC, TopicObjects, Walk
from pubsub_lib.errors import NotSubscribedError, UsageError


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The result of a link or a sync.

    ``events``: the changes of the merged view, in the order in which handlers are called. ``intact``: the topic's count
    and digest equal those that the link or the snapshot promised; if not, a repair is due. ``guarded``: number of
    changes that were not applied because the object or the topic is newer: 0 without a fault elsewhere.
    ``went_back``: a sync brought an older version, another value of the same version, or an object that had been
    deleted. Then the history is another one, or memory was corrupt.
    """

    events: list[Event]
    intact: bool
    guarded: int = 0
    went_back: bool = False


Read = Callable[[Object[Any]], Any]
"""Decodes an object's value."""
Fault = tuple[Link, int, bool]
"""A mismatch after a link: the link, and ``guarded`` and ``intact`` as in :class:`Applied`."""


class Cache:
    """A replica's objects. Any thread, one at a time: the caller holds a lock around every call. Nothing
    blocks.

    ``decoders`` gives the decoder of each typed table; tables without one are plain JSON.
    """

    def __init__(self, decoders: Mapping[str, Decode] | None = None) -> None:
        self._topics: dict[str, TopicObjects] = {}
        self._merged = MergedView(decoders or {})
        self._indexes: dict[str, Index] = {}

    # -- changing ------------------------------------------------------------------------------------------

    def apply(self, link: Link) -> Applied:
        """Apply one whole link of a topic (rule 1). The tracker checks that the link connects.

        A change whose version is not above the object's, or not above the topic's last point, is left out and
        counted. Every other change is applied: a delete of a missing object does nothing, a create of an existing
        object replaces it, and the digest then shows that the topic was wrong before. A change without a value is a
        delete.
        """
        events: list[Event] = []
        faults = self.apply_run((link,), events)
        _, guarded, intact = faults[0] if faults else (link, 0, True)
        return Applied(events, intact, guarded)

    def apply_run(self, links: Sequence[Link], events: list[Event] | None) -> list[Fault]:
        """:meth:`apply` for links that follow one another, of any topics. Adds to ``events``; None: no events are
        needed. Returns the mismatches, which nearly always is an empty list.

        The hottest loop of a replica (docs/contributing/profile.md). It makes its look-ups once per run. Nearly every
        change sets an existing object in its only topic: this case takes the short way to ``continue`` and calls no
        function of this package.
        """
        if events is None and self._indexes:
            events = []  # indexes are updated from events
        merged = self._merged
        contested, tombstones = merged.contested, merged.tombstones
        begun = 0 if events is None else len(events)
        faults: list[Fault] = []
        name = table = ""
        topic = NO_TOPIC
        objects: dict[str, HeldObject] = {}
        shown: dict[str, HeldObject] = {}
        decode = plain
        watched = False
        for link in links:
            if link.topic != name:
                name, table = link.topic, ""
                known_topic = self._topics.get(name)
                topic = self._topics.setdefault(name, TopicObjects()) if known_topic is None else known_topic
                watched = topic.walk is not None or bool(topic.copies)
            if watched:
                topic.touch(link)
            known, count, digest = topic.position, topic.count, topic.digest
            position = link.point.position
            before = 0 if events is None else len(events)
            guarded = 0
            for change in link.changes:
                key, version, value = change.key, change.version, change.value
                if change.table != table:
                    table = change.table
                    objects = topic.tables.setdefault(table, {})
                    shown = merged.shown[table]
                    decode = merged.decoders.get(table, plain)
                old = objects.get(key)
                if version <= known or (old is not None and version <= old.version):
                    guarded += 1
                    continue
                if value is not None:
                    # fingerprint(), written out: the call would cost a tenth of all of this
                    print_ = xxh3(f"{table}\0{key}\0{version}\0".encode() + value)
                    digest += print_
                    if old is not None:
                        digest -= old.fingerprint
                        if not contested or (table, key) not in contested:
                            if events is not None:
                                events.append(
                                    Event(table, key, name, "set", version, old.version, old.value, value, position,
                                          link.written_at, name, decode)
                                )  # fmt: skip
                            old.version = version
                            old.value = value
                            old.fingerprint = print_
                            continue
                        new = objects[key] = HeldObject(version, value, print_, name)
                    else:
                        count += 1
                        new = objects[key] = HeldObject(version, value, print_, name)
                        if key not in shown and (
                            not (tombstones or contested)
                            or ((table, key) not in tombstones and (table, key) not in contested)
                        ):
                            shown[key] = new
                            if events is not None:
                                events.append(
                                    Event(table, key, name, "create", version, None, None, value, position,
                                          link.written_at, None, decode)
                                )  # fmt: skip
                            continue
                    event = merged.shift((table, key), name, new, None, position, link.written_at)
                elif old is not None:
                    del objects[key]
                    digest -= old.fingerprint
                    count -= 1
                    event = merged.shift((table, key), name, None, version, position, link.written_at)
                else:
                    continue
                if event is not None and events is not None:
                    events.append(event)
            digest &= MASK
            topic.count = count
            topic.digest = digest
            if position > known:
                topic.position = position
            if guarded or count != link.count or digest != link.digest:
                faults.append((link, guarded, count == link.count and digest == link.digest))
            if events is not None and link.trace:  # here, so that links without a trace have no cost per change
                events[before:] = [msgspec.structs.replace(event, trace=link.trace) for event in events[before:]]
        if events is not None and self._indexes:
            self._reindex(events[begun:])
        return faults

    def replace(
        self,
        topic: str,
        snapshot: TopicSnapshot,
        *,
        with_events: bool = True,
        reached: int = 0,
        same_history: bool | None = None,
    ) -> Applied:
        """Make a topic equal a snapshot in one step: all of it, or only ``snapshot.buckets`` and ``snapshot.changes``.

        ``with_events`` False: the caller needs no events, and some may be missing. ``reached``: the position up to
        which the topic had everything; a new object with a version not above it counts as one that went back.
        ``same_history``: whether the snapshot's history contains the point that the topic had reached. None: the store
        does not know; then a version that went back means another history.

        Objects that the snapshot lacks are deleted; their events have the last known value and version None. Versions
        may go down: the snapshot may be of another history. Then the topic's tombstones are forgotten. Otherwise they
        stay, and each deleted object leaves one, until :meth:`prove` disproves it. Events come in the order of their
        versions, deletes first.
        """
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = TopicObjects()
        state.end()
        position = snapshot.head.point.position
        with_events = with_events or bool(self._indexes)  # indexes are updated from events
        if not state.tables and not snapshot.changes:
            contents = contents_of(topic, snapshot.records)
            back = position < state.position or (reached > 0 and contents.goes_back(reached))
            ours = position >= state.position if same_history is None else same_history
            events = self._fill(topic, state, contents, position, with_events, same_history=ours)
            self._reindex(events)
            intact = (state.count, state.digest) == (snapshot.head.count, snapshot.head.digest)
            return Applied(events, intact, went_back=back)
        merged = self._merged
        shift = merged.shift
        back = position < state.position
        gone = {
            (table, key): entry
            for table, key, entry in state.objects()
            if snapshot.buckets is None or bucket_of(table, key) in snapshot.buckets
        }
        for change in snapshot.changes:
            before = state.tables.get(change.table, {}).get(change.key)
            if before is not None:
                gone[change.table, change.key] = before
        written = [Record(at.table, at.key, at.version, at.value) for at in snapshot.changes if at.value is not None]
        records = [*snapshot.records, *written] if written else snapshot.records
        # Two lists side by side and not one of pairs: half a million tuples would keep the garbage collector busy.
        changed: list[Record] = []
        entries: list[HeldObject] = []
        for record in sorted(records, key=_version_of):
            table, key, version, value = record.table, record.key, record.version, record.value
            old = gone.pop((table, key), None) if gone else None
            print_ = fingerprint(table, key, version, value)
            if old is not None and old.version == version and old.value == value:
                old.fingerprint = print_
                continue
            back = back or (version <= reached if old is None else old.version >= version)
            new = HeldObject(version, value, print_, topic)
            state.tables.setdefault(table, {})[key] = new
            changed.append(record)
            entries.append(new)
        if same_history is None:
            same_history = not back
        events = merged.drop_tombstones(topic, position, position if same_history else -1)
        for (table, key), entry in gone.items():
            del state.tables[table][key]
            # Deleted at a version above the entry's. A tombstone above the topic's position could outlive every proof.
            ended = entry.version if same_history and entry.version <= position else None
            event = shift((table, key), topic, None, None, position, 0.0, ended)
            if event is not None:
                events.append(event)
        state.recount()
        state.position = position
        for record, new in zip(changed, entries, strict=True):
            table, key = record.table, record.key
            shown = merged.shown[table]
            there = shown.get(key)
            if (
                there is not None
                and (there.topic, there.version, there.value) == (topic, new.version, new.value)
                and (table, key) not in merged.contested
            ):
                shown[key] = new  # only the topic had lost it: the merged view does not change
                continue
            if there is None and not (merged.tombstones or merged.contested):  # as in apply_run
                shown[key] = new
                if with_events:
                    events.append(
                        Event(table, key, topic, "create", new.version, None, None, new.value, position,
                              0.0, None, merged.decoders.get(table, plain))
                    )  # fmt: skip
                continue
            event = shift((table, key), topic, new, None, position)
            if event is not None:
                events.append(event)
        self._reindex(events)
        intact = (state.count, state.digest) == (snapshot.head.count, snapshot.head.digest)
        return Applied(events, intact, went_back=back)

    def _fill(
        self,
        topic: str,
        state: TopicObjects,
        contents: Contents,
        position: int,
        with_events: bool,
        *,
        same_history: bool,
    ) -> list[Event]:
        """:meth:`replace` for an empty topic, as in every first sync: takes the entries over as they are."""
        merged = self._merged
        events = merged.drop_tombstones(topic, position, position if same_history else -1)
        tables = state.tables = contents.take()
        state.count, state.digest = sum(map(len, tables.values())), contents.digest
        state.position = position
        alone = merged.add_all(tables, lambda: [each.tables for name, each in self._topics.items() if name != topic])
        created: list[Event] = []
        for table, objects in tables.items() if with_events or not alone else ():
            decode = merged.decoders.get(table, plain)
            created += [
                Event(table, key, topic, "create", new.version, None, None, new.value, position, 0.0, None, decode)
                for key, new in objects.items()
            ]
        created.sort(key=_version_of)
        if alone:
            return events + created
        for each in created:
            event = merged.shift((each.table, each.key), topic, tables[each.table][each.key], None, position)
            if event is not None:
                events.append(event)
        return events

    def drop(self, topic: str) -> list[Event]:
        """Forget a topic that is not subscribed to any more. The events are deletes of its objects, version None."""
        state = self._topics.get(topic)
        if state is None:
            return []
        state.end()
        events = self._merged.drop_tombstones(topic, state.position)
        for table, key, _ in state.objects():
            event = self._merged.shift((table, key), topic, None, None, state.position)
            if event is not None:
                events.append(event)
        del self._topics[topic]
        self._merged.lagging.pop(topic, None)
        self._reindex(events)
        return events

    @property
    def lagging(self) -> Collection[str]:
        """Topics that hold an object older than its delete in another topic: a proof of these topics is of use."""
        return self._merged.lagging

    def prove(self, topic: str, upto: int) -> list[Event]:
        """A topic has everything up to this position of the store. If it still holds an object that a tombstone at or
        before that position hides, a restore has undone the tombstone's history. Then the object shows again.
        """
        state = self._topics.get(topic)
        events = self._merged.drop_disproved_tombstones(topic, upto, upto if state is None else state.position)
        self._reindex(events)
        return events

    # -- proving -------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The topics that were ever applied to or replaced, and not dropped since."""
        return list(self._topics)

    def head(self, topic: str) -> tuple[int, int]:
        """(count, digest) of a topic now; (0, 0) for a topic without objects."""
        state = self._topics.get(topic)
        return (0, 0) if state is None else (state.count, state.digest)

    def differs(self, topic: str, head: Head) -> bool:
        """Whether a topic's count or digest differs from this head's; False when the topic is beyond the head. The
        tracker checks that the head is of the followed history and was reached.
        """
        state = self._topics.get(topic)
        if state is None:
            return head.count > 0
        return state.position <= head.point.position and (state.count, state.digest) != (head.count, head.digest)

    def walk(self, topic: str) -> Walk | None:
        """Begin to count a topic again; None when the cache does not have the topic."""
        state = self._topics.get(topic)
        return None if state is None else Walk(topic, state, self._merged)

    def bucket_digests(self, topic: str) -> dict[int, int]:
        """The digest of each bucket that holds objects of this topic (``ALL``: of all topics together), computed from
        the objects for a repair (rule 10).
        """
        digests: dict[int, int] = {}
        for state in self._topics.values() if topic == ALL else [self._topics.get(topic, TopicObjects())]:
            for table, key, entry in state.objects():
                bucket = bucket_of(table, key)
                digests[bucket] = (digests.get(bucket, 0) + entry.fingerprint) & MASK
        return digests

    def topic_records(self, topic: str) -> list[Record]:
        """All objects that a topic's own chain holds, moved ones included, in no order. The audit compares them with
        the store.
        """
        state = self._topics.get(topic)
        if state is None:
            return []
        return [Record(table, key, entry.version, entry.value) for table, key, entry in state.objects()]

    def copy(self, topic: str) -> TopicCopy:
        """:meth:`topic_records` of now, for a reader that takes them a few at a time."""
        state = self._topics.get(topic)
        return TopicCopy({}) if state is None else state.copy()

    # -- reading -------------------------------------------------------------------------------------------

    def get(self, table: str, key: str) -> bytes | None:
        """The value shown for an object, as canonical JSON; None when there is none."""
        entry = self._shown(table, key)
        return None if entry is None else entry.value

    def record(self, table: str, key: str) -> Record | None:
        """The object shown, with its version; None when there is none."""
        entry = self._shown(table, key)
        return None if entry is None else Record(table, key, entry.version, entry.value)

    def shown(self, table: str, key: str, read: Read) -> Object[Any] | None:
        """The object shown, whose value ``read`` decodes; None when there is none."""
        entry = self._shown(table, key)
        return None if entry is None else Object(table, key, entry.topic, entry.version, entry.value, read)

    def iterate(self, table: str | None = None, topic: str | None = None) -> list[Record]:
        """The objects shown, of one table or all and of one topic or all, as one consistent list."""
        return [Record(name, key, at.version, at.value) for name, key, at in self._view(table, topic)]

    def objects(self, table: str | None, topic: str | None, read: Read) -> list[Object[Any]]:
        """:meth:`iterate`, with topics; ``read`` decodes the values."""
        return [Object(name, key, at.topic, at.version, at.value, read) for name, key, at in self._view(table, topic)]

    def present(
        self, tables: Collection[str] | None = None, topic: str | None = None, key: str | None = None
    ) -> list[Event]:
        """The objects shown (None: of all tables) as events of their creation, in the order of their versions: a new
        handler's first ones.
        """
        found = [
            row
            for table in ([None] if tables is None else tables)
            for row in (self._view(table, topic) if key is None else self._one(table, topic, key))
        ]
        found.sort(key=lambda row: row[2].version)
        event, position = self._merged.event, {name: state.position for name, state in self._topics.items()}
        return [event(name, at, None, entry, None, position[entry.topic], 0.0) for name, at, entry in found]

    def _one(self, table: str | None, topic: str | None, key: str) -> Iterator[tuple[str, str, HeldObject]]:
        """The entries of :meth:`_view` with this key."""
        for name in self._merged.shown if table is None else [table]:
            entry = self._shown(name, key)
            if entry is not None and topic in (None, entry.topic):
                yield name, key, entry

    def _shown(self, table: str, key: str) -> HeldObject | None:
        objects = self._merged.shown.get(table)
        return None if objects is None else objects.get(key)

    def _view(self, table: str | None, topic: str | None) -> Iterator[tuple[str, str, HeldObject]]:
        """The objects shown. Of a topic: those that its chain holds and that no newer version elsewhere hides."""
        if topic is None:
            tables: Mapping[str, Mapping[str, HeldObject]] = self._merged.shown
        else:
            state = self._topics.get(topic)
            tables = {} if state is None else state.tables
        names: Collection[str] = tables if table is None else [table]
        for name in names:
            shown = self._merged.shown.get(name, {})
            for key, entry in tables.get(name, {}).items():
                if topic is None or shown.get(key) is entry:
                    yield name, key, entry

    # -- indexes -------------------------------------------------------------------------------------------

    def add_index(self, name: str, table: str, extract: Extract) -> None:
        """Keep a secondary index over the objects shown of a table, from now on; see :class:`.index.Index`.
        Raises UsageError when the name is taken.
        """
        check_kind("name", name, str, "a string, the index's name")
        if name in self._indexes:
            raise UsageError(f"an index {name!r} exists already; choose another name")
        index = Index(name, table, extract, self._merged.decoders.get(table, plain))
        for _, key, entry in self._view(table, None):
            index.put(key, entry.value, Exception)  # the caller's thread gets SystemExit and KeyboardInterrupt
        self._indexes[name] = index

    def lookup(self, name: str, value: object) -> list[tuple[str, bytes]]:
        """(key, value as canonical JSON) of every object that an index has under this value, as one
        consistent list. Raises NotSubscribedError for an unknown index and UsageError for a value that cannot be
        looked up (a list, a dict).
        """
        index = self.index(name)
        return [(key, self._merged.shown[index.table][key].value) for key in index.keys(value)]

    def index(self, name: str) -> Index:
        """An index by its name, for its counters. Raises NotSubscribedError when there is none."""
        index = self._indexes.get(name)
        if index is None:
            raise NotSubscribedError(
                f"index {name!r} not found (the indexes are {sorted(self._indexes)}); add it first"
            )
        return index

    def indexes(self) -> Collection[Index]:
        """All indexes, in the order in which they were added."""
        return self._indexes.values()

    def _reindex(self, events: list[Event]) -> None:
        for index in self._indexes.values():
            for event in events:
                if event.table == index.table:
                    index.put(event.key, event.new_value)


_version_of = attrgetter("version")
