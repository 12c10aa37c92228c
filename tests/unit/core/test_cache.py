"""The cache's part of rules 1, 5 and 10: guard, whole links, replace, digest, merged view."""

import dataclasses
import random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pubsub_lib.core.cache import Applied, Cache
from pubsub_lib.core.digest import MASK, bucket_of, fingerprint
from pubsub_lib.core.events import Event, plain
from pubsub_lib.core.model import ZERO, Action, Change, Head, Link, Point, Record, TopicSnapshot
from pubsub_lib.errors import NotSubscribedError, UsageError

V1, V2, V3 = b'{"s":1}', b'{"s":2}', b'{"s":3}'


def recount(records: list[Record]) -> tuple[int, int]:
    return len(records), sum(fingerprint(r.table, r.key, r.version, r.value) for r in records) & MASK


def link(topic: str, prev: int, position: int, *changes: Change, after: list[Record] | None = None) -> Link:
    count, digest = recount(after) if after is not None else (0, 0)
    return Link(topic, Point(prev, 7), Point(position, 7), list(changes), count, digest, ZERO, 1)


def put(key: str, version: int, value: bytes = V1, action: Action = "set", table: str = "port") -> Change:
    return Change(table, key, action, version, value)


def delete(key: str, version: int, table: str = "port") -> Change:
    return Change(table, key, "delete", version, None)


def rec(key: str, version: int, value: bytes = V1, table: str = "port") -> Record:
    return Record(table, key, version, value)


def snapshot(position: int, *records: Record, buckets: frozenset[int] | None = None,
             whole: list[Record] | None = None) -> TopicSnapshot:  # fmt: skip
    count, digest = recount(list(records) if whole is None else whole)
    return TopicSnapshot(Head(Point(position, 7), count, digest), list(records), buckets)


def brief(events: list[Event]) -> list[tuple[str, str, int | None, bytes | None, bytes | None]]:
    return [(e.action, e.key, e.version, e.old_value, e.new_value) for e in events]


def test_rule_1_link_is_applied_whole_with_events_in_order() -> None:
    cache = Cache()
    applied = cache.apply(link("a", 0, 2, put("x", 1), put("y", 2, V2), after=[rec("x", 1), rec("y", 2, V2)]))
    assert applied.intact
    assert applied.guarded == 0
    assert brief(applied.events) == [("create", "x", 1, None, V1), ("create", "y", 2, None, V2)]
    applied = cache.apply(link("a", 2, 4, put("x", 3, V3), delete("y", 4), after=[rec("x", 3, V3)]))
    assert applied.intact
    assert brief(applied.events) == [("set", "x", 3, V1, V3), ("delete", "y", 4, V2, None)]
    assert [e.position for e in applied.events] == [4, 4]
    assert applied.events[0].old_version == 1
    assert cache.get("port", "x") == V3
    assert cache.get("port", "y") is None
    assert cache.record("port", "x") == rec("x", 3, V3)


def test_events_have_the_trace_of_their_link() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 1, put("x", 1)))
    moved = msgspec.structs.replace(link("b", 0, 3, put("x", 2), put("y", 3)), trace="00-1-2-01")
    assert [(event.key, event.trace) for event in cache.apply(moved).events] == [("x", "00-1-2-01"), ("y", "00-1-2-01")]
    assert [event.trace for event in cache.apply(link("b", 3, 4, delete("y", 4))).events] == [""]


def test_rule_1_older_version_is_refused_and_counted() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 5, put("x", 5, V2)))
    for stale in (put("x", 5, V3), put("x", 4, V3), delete("x", 5), put("new", 5, V3), put("new", 3, V3)):
        applied = cache.apply(link("a", 0, 9, stale, after=[rec("x", 5, V2)]))
        assert applied == Applied([], intact=True, guarded=1)
        cache = Cache()
        cache.apply(link("a", 0, 5, put("x", 5, V2)))
    assert cache.get("port", "x") == V2


def test_rule_1_same_version_is_refused_even_beyond_the_topics_point() -> None:
    cache = Cache()
    cache.replace("a", snapshot(4, rec("x", 9)))  # a correct store never answers that; the guard must not depend on it
    assert cache.apply(link("a", 4, 9, put("x", 9, V2))).guarded == 1
    assert cache.get("port", "x") == V1


def test_version_0_is_valid() -> None:
    cache = Cache()
    cache.replace("a", snapshot(0, rec("x", 0)))
    assert cache.record("port", "x") == rec("x", 0)
    [event] = cache.apply(link("a", 0, 1, put("x", 1, V2))).events
    assert event.action == "set"
    assert event.old_version == 0


def test_rule_10_delete_of_missing_and_create_of_existing_object_change_the_digest() -> None:
    cache = Cache()
    assert not cache.apply(link("a", 0, 1, delete("x", 1), after=[rec("other", 1)])).intact
    cache = Cache()
    cache.apply(link("a", 0, 1, put("x", 1)))
    applied = cache.apply(link("a", 1, 2, put("x", 2, V2, "create"), after=[rec("x", 2, V2), rec("lost", 1)]))
    assert not applied.intact
    assert brief(applied.events) == [("set", "x", 2, V1, V2)]


def test_rule_10_wrong_count_with_right_digest_is_a_mismatch() -> None:
    cache = Cache()
    right = link("a", 0, 1, put("x", 1), after=[rec("x", 1)])
    wrong = Link("a", right.prev, right.point, right.changes, 2, right.digest, ZERO, 1)
    assert not cache.apply(wrong).intact
    assert not cache.replace("a", TopicSnapshot(Head(Point(1, 7), 2, right.digest), [rec("x", 1)])).intact


def test_rule_5_replace_infers_deletes_and_makes_events_of_changes_only() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 3, put("x", 1), put("y", 2), put("z", 3)))
    applied = cache.replace("a", snapshot(9, rec("w", 9), rec("y", 7, V2), rec("z", 3)))
    assert applied.intact
    assert brief(applied.events) == [
        ("delete", "x", None, V1, None), ("set", "y", 7, V1, V2), ("create", "w", 9, None, V1),
    ]  # fmt: skip
    assert {e.position for e in applied.events} == {9}
    assert cache.replace("a", snapshot(9, rec("w", 9), rec("y", 7, V2), rec("z", 3))).events == []


def test_rule_5_replace_may_lower_versions_and_resets_the_guard() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 9, put("x", 9, V3)))
    applied = cache.replace("a", snapshot(4, rec("x", 4)))
    assert brief(applied.events) == [("set", "x", 4, V3, V1)]
    applied = cache.apply(link("a", 4, 5, put("x", 5, V2), after=[rec("x", 5, V2)]))
    assert (applied.guarded, applied.intact) == (0, True)


def test_rule_10_replace_changes_only_the_given_buckets() -> None:
    keys = [f"k{n}" for n in range(50)]
    cache = Cache()
    cache.apply(link("a", 0, 50, *[put(key, n + 1) for n, key in enumerate(keys)]))
    store = [rec(key, n + 1) for n, key in enumerate(keys)]
    broken = bucket_of("port", keys[3])
    store[3] = rec(keys[3], 4, V2)
    theirs = {bucket_of("port", keys[3]): recount([r for r in store if bucket_of("port", r.key) == broken])[1]}
    assert cache.bucket_digests("a")[broken] != theirs[broken]
    part = [r for r in store if bucket_of("port", r.key) == broken]
    applied = cache.replace("a", snapshot(50, *part, buckets=frozenset({broken}), whole=store))
    assert applied.intact
    assert brief(applied.events) == [("set", keys[3], 4, V1, V2)]
    assert cache.bucket_digests("a")[broken] == theirs[broken]
    assert sum(cache.bucket_digests("a").values()) & MASK == cache.head("a")[1]


@pytest.mark.parametrize("with_events", [True, False])
def test_first_sync_of_a_topic_shares_objects_with_topics_before_it(with_events: bool) -> None:
    """All objects of the topic are shown at once; an object that another topic holds undoes that."""
    cache = Cache()
    cache.replace("a", snapshot(6, rec("x", 1), rec("y", 6), rec("z", 3)))
    cache.replace("c", snapshot(2, rec("v", 2)))
    shared = snapshot(7, rec("w", 4, table="other"), rec("y", 2, V2), rec("x", 5, V2), rec("new", 7))
    applied = cache.replace("b", shared, with_events=with_events)
    assert applied.intact
    assert brief(applied.events) == [
        ("create", "w", 4, None, V1),
        ("set", "x", 5, V1, V2),
        ("create", "new", 7, None, V1),
    ]
    shown = {(at.key, at.topic, at.version) for at in cache.objects(None, None, lambda at: at.json)}
    assert shown == {("v", "c", 2), ("w", "b", 4), ("new", "b", 7), ("x", "b", 5), ("y", "a", 6), ("z", "a", 3)}
    assert cache.topic_records("a") == [rec("x", 1), rec("y", 6), rec("z", 3)]
    assert set(brief(cache.drop("b"))) == {
        ("delete", "w", None, V1, None),
        ("set", "x", 1, V2, V1),
        ("delete", "new", None, V1, None),
    }
    assert cache.get("port", "y") == V1


@pytest.mark.parametrize("new_first", [True, False])
def test_moved_object_makes_no_duplicate_event(new_first: bool) -> None:
    cache = Cache()
    cache.apply(link("a", 0, 1, put("x", 1)))
    out, into = link("a", 1, 3, delete("x", 2)), link("b", 0, 3, put("x", 3, V2, "create"), after=[rec("x", 3, V2)])
    events = [e for one in ((into, out) if new_first else (out, into)) for e in cache.apply(one).events]
    if new_first:
        assert brief(events) == [("set", "x", 3, V1, V2)]
        assert (events[0].old_topic, events[0].topic) == ("a", "b")
    else:
        assert brief(events) == [("delete", "x", 2, V1, None), ("create", "x", 3, None, V2)]
    assert cache.head("a") == (0, 0)
    assert cache.iterate() == cache.iterate(topic="b") == [rec("x", 3, V2)]
    assert cache.iterate(topic="a") == []


def test_lagging_topic_does_not_show_a_deleted_object() -> None:
    """In b at 1, moved to a (2, 3), deleted there (9); b's link with the delete at 2 comes last."""
    cache = Cache()
    cache.apply(link("b", 0, 1, put("x", 1)))
    cache.apply(link("a", 0, 3, put("x", 3, V2)))
    assert brief(cache.apply(link("a", 3, 9, delete("x", 9))).events) == [("delete", "x", 9, V2, None)]
    assert cache.get("port", "x") is None
    assert cache.iterate(topic="b") == []
    assert cache.apply(link("b", 1, 3, delete("x", 2))).events == []
    # b was even later: its create comes after the delete in a
    cache = Cache()
    cache.apply(link("a", 0, 3, put("x", 3)))
    cache.apply(link("a", 3, 9, delete("x", 9)))
    assert cache.apply(link("b", 0, 1, put("x", 1))).events == []
    assert cache.head("b")[0] == 1
    assert cache.apply(link("b", 1, 3, delete("x", 2))).events == []
    assert brief(cache.apply(link("b", 3, 12, put("x", 12))).events) == [("create", "x", 12, None, V1)]


def test_delete_of_undone_history_hides_no_object() -> None:
    """Store restored: a's delete at 9 is undone, b's object at 1 exists. a's replace must show it again."""
    cache = Cache()
    cache.apply(link("a", 0, 3, put("x", 3)))
    cache.apply(link("b", 0, 1, put("x", 1, V2)))
    cache.apply(link("a", 3, 9, delete("x", 9)))
    assert cache.get("port", "x") is None
    assert brief(cache.replace("a", snapshot(2)).events) == [("create", "x", 1, None, V2)]
    assert cache.iterate() == [rec("x", 1, V2)]


def test_delete_of_undone_history_does_not_hide_a_later_create_elsewhere() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 9, put("x", 8)))
    cache.apply(link("a", 9, 10, delete("x", 10)))
    cache.replace("a", snapshot(2))
    assert brief(cache.apply(link("b", 0, 5, put("x", 5, V2))).events) == [("create", "x", 5, None, V2)]


def test_object_missing_in_a_replace_stays_deleted_while_another_topic_lags() -> None:
    """Moved from a to b, deleted there; no link of a came since, and b was replaced by a full sync."""
    cache = Cache()
    cache.apply(link("a", 0, 1, put("x", 1)))
    cache.apply(link("b", 0, 3, put("x", 3, V2)))
    assert brief(cache.replace("b", snapshot(9, rec("o", 8))).events) == [
        ("delete", "x", None, V2, None), ("create", "o", 8, None, V1),
    ]  # fmt: skip
    assert cache.get("port", "x") is None
    assert list(cache.lagging) == ["a"]
    assert cache.prove("a", 2) == [], "a is behind b's delete"
    assert brief(cache.replace("a", snapshot(2)).events) == []
    assert cache.prove("a", 9) == []
    assert list(cache.lagging) == []
    assert brief(cache.apply(link("a", 2, 12, put("x", 12))).events) == [("create", "x", 12, None, V1)]


def test_tombstone_of_a_link_survives_a_replace_of_its_topic() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 1, put("x", 1)))
    cache.apply(link("b", 0, 3, put("x", 3, V2)))
    cache.apply(link("b", 3, 5, delete("x", 5)))
    assert cache.replace("b", snapshot(9)).events == []
    assert cache.replace("b", snapshot(9, buckets=frozenset({bucket_of("port", "x")}), whole=[])).events == []
    assert cache.get("port", "x") is None


def test_tombstone_of_another_history_ends_with_the_next_proof_of_the_hidden_topic() -> None:
    """Restored to 1 and written on past 3: b's snapshot does not show that its object at 3 is undone."""
    cache = Cache()
    cache.apply(link("a", 0, 1, put("x", 1)))
    cache.apply(link("b", 0, 3, put("x", 3, V2)))
    cache.replace("b", snapshot(9))
    assert brief(cache.prove("a", 3)) == [("create", "x", 1, None, V1)]
    assert cache.iterate() == [rec("x", 1)]
    assert list(cache.lagging) == []


def test_equal_version_of_another_history_changes_nothing_before_the_next_sync() -> None:
    """Restored to 8: the object at 15 is undone, and another topic's delete has its version again. A handler that was
    called for version 15 must not be called for it a second time.
    """
    cache = Cache()
    cache.apply(link("a", 0, 15, put("x", 15)))
    cache.apply(link("b", 8, 10, put("x", 10, V2)))
    assert brief(cache.apply(link("b", 10, 16, delete("x", 15))).events) == []
    assert cache.get("port", "x") == V1
    assert brief(cache.replace("a", snapshot(4), same_history=False).events) == [("delete", "x", None, V1, None)]
    assert cache.get("port", "x") is None


def test_deleted_object_with_the_version_of_its_delete_stays_hidden_before_the_next_sync() -> None:
    """The same, when the delete is of the undone history: what is shown stays here, too."""
    cache = Cache()
    cache.apply(link("b", 0, 10, put("x", 10)))
    cache.apply(link("b", 10, 15, delete("x", 15)))
    assert brief(cache.apply(link("a", 0, 15, put("x", 15, V2))).events) == []
    assert brief(cache.replace("b", snapshot(8), same_history=False).events) == [("create", "x", 15, None, V2)]


@pytest.mark.parametrize("records", [[rec("o", 1)], [rec("o", 2, V3)]])
def test_replace_with_another_history_leaves_no_tombstone(records: list[Record]) -> None:
    cache = Cache()
    cache.apply(link("a", 0, 1, put("x", 1)))
    cache.apply(link("b", 0, 3, put("o", 2), put("x", 3, V2)))
    assert brief(cache.replace("b", snapshot(9, *records)).events)[0] == ("set", "x", 1, V2, V1)


def test_replace_leaves_no_tombstone_above_its_position() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 1, put("x", 1)))
    cache.apply(link("b", 0, 3, put("x", 30, V2), put("y", 2)))
    cache.apply(link("c", 0, 1, put("y", 1, V2)))
    cache.apply(link("b", 3, 4, delete("y", 40)))
    assert brief(cache.replace("b", snapshot(9)).events) == [("create", "y", 1, None, V2), ("set", "x", 1, V2, V1)]


def test_replace_does_not_read_tombstones_of_other_topics() -> None:
    """A full sync of many topics is not quadratic: counted in reads of tombstones, not in seconds."""
    cache = Cache()
    topics = [f"t{number}" for number in range(300)]
    for number, topic in enumerate(topics):
        cache.apply(link(topic, 0, 2 * number + 1, put(topic, 2 * number + 1)))
        cache.apply(link(topic, 2 * number + 1, 2 * number + 2, delete(topic, 2 * number + 2)))
    merged = cache._merged
    assert len(merged.tombstones) == len(topics)

    class Counted(type(merged.tombstones)):  # type: ignore[misc]
        looks = 0

        def items(self) -> object:
            Counted.looks += len(self)
            return super().items()

        def __getitem__(self, ident: tuple[str, str]) -> object:
            Counted.looks += 1
            return super().__getitem__(ident)

    merged.tombstones = Counted(merged.tombstones)
    for topic in topics:
        cache.drop(topic)
    assert list(merged.tombstones) == list(merged._tombstones_by_topic) == []
    assert Counted.looks <= len(topics)


def test_drop_makes_deletes_and_shows_objects_of_other_topics() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 2, put("x", 1), put("y", 2)))
    cache.apply(link("b", 0, 5, put("x", 5, V2)))
    assert brief(cache.drop("b")) == [("set", "x", 1, V2, V1)]
    assert brief(cache.drop("a")) == [("delete", "x", None, V1, None), ("delete", "y", None, V1, None)]
    assert cache.drop("a") == []
    assert cache.topics() == []
    assert cache.head("a") == (0, 0)
    assert cache.iterate() == []


def test_dropped_topic_hides_no_object() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 3, put("x", 3)))
    cache.apply(link("b", 0, 1, put("x", 1, V2)))
    cache.apply(link("a", 3, 9, delete("x", 9)))
    assert brief(cache.drop("a")) == [("create", "x", 1, None, V2)]


def test_views_are_lists_and_present_is_in_the_order_of_versions() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 3, put("y", 2), put("x", 3), put("r", 1, table="router")))
    view = cache.iterate("port")
    cache.apply(link("a", 3, 5, put("y", 4, V2), delete("x", 5)))
    assert view == [rec("y", 2), rec("x", 3)]
    assert cache.iterate("none") == []
    assert cache.iterate(topic="none") == []
    assert [(e.action, e.table, e.key, e.version, e.position) for e in cache.present()] == [
        ("create", "router", "r", 1, 5), ("create", "port", "y", 4, 5),
    ]  # fmt: skip
    assert [e.key for e in cache.present(["port"], "a", "y")] == ["y"]
    assert cache.present(["port"], "b", "y") == cache.present(["port"], "a", "unknown") == []
    assert [e.key for e in cache.present(key="r")] == ["r"]


def test_index_is_updated_without_requested_events() -> None:
    cache = Cache()
    cache.add_index("by_v", "port", lambda value: str(value))
    before = rec("a", 1)
    cache.replace("t", snapshot(1, before), with_events=False)
    assert [key for key, _ in cache.lookup("by_v", str(plain(V1)))] == ["a"]
    after = rec("a", 2, V2)
    cache.apply_run([link("t", 1, 2, put("a", 2, V2), after=[after])], None)
    assert [key for key, _ in cache.lookup("by_v", str(plain(V2)))] == ["a"]
    assert not cache.lookup("by_v", str(plain(V1)))


def test_indexes_are_found_by_name() -> None:
    cache = Cache()
    cache.apply(link("a", 0, 1, put("x", 1)))
    cache.add_index("by_s", "port", "s")
    assert cache.lookup("by_s", 1) == [("x", V1)]
    with pytest.raises(UsageError, match="by_s"):
        cache.add_index("by_s", "port", "s")
    with pytest.raises(NotSubscribedError, match="index 'unknown' not found"):
        cache.lookup("unknown", 1)


TOPICS = ("a", "b", "c")
KEYS = ("k1", "k2", "k3")


@dataclasses.dataclass
class History:
    """A small store: its objects, the links of every topic, and all its states."""

    objects: dict[tuple[str, str], tuple[str, int, bytes]]
    links: dict[str, list[Link]]
    position: int
    nonce: int

    def fork(self, nonce: int) -> "History":
        return History(dict(self.objects), {t: list(ls) for t, ls in self.links.items()}, self.position, nonce)

    def records(self, topic: str) -> list[Record]:
        return [Record(t, k, v, x) for (t, k), (where, v, x) in sorted(self.objects.items()) if where == topic]

    def head(self, topic: str) -> Head:
        point = self.links[topic][-1].point if self.links[topic] else ZERO
        return Head(point, *recount(self.records(topic)))

    def write(self, writes: list[tuple[str, str | None]], value: int) -> None:
        """One transaction; a write to topic None is a delete."""
        changes: dict[str, list[Change]] = {}
        for key, topic in dict(writes).items():
            ident = ("port", key)
            at = self.objects.get(ident)
            if at is not None and at[0] != topic:
                self.position += 1
                changes.setdefault(at[0], []).append(Change("port", key, "delete", self.position, None))
                del self.objects[ident]
            if topic is not None:
                self.position += 1
                action: Action = "set" if at is not None and at[0] == topic else "create"
                data = b'{"s":%d}' % (value % 4)
                changes.setdefault(topic, []).append(Change("port", key, action, self.position, data))
                self.objects[ident] = (topic, self.position, data)
        point = Point(self.position, self.nonce)
        for topic, some in changes.items():
            prev = self.links[topic][-1].point if self.links[topic] else ZERO
            count, digest = recount(self.records(topic))
            self.links[topic].append(Link(topic, prev, point, some, count, digest, ZERO, len(changes)))


class Histories(RuleBasedStateMachine):
    """A store that may be restored from a backup, and a cache whose topics follow it at different times."""

    def __init__(self) -> None:
        super().__init__()
        self.store = History({}, {topic: [] for topic in TOPICS}, 0, 1)
        self.backups = [self.store.fork(1)]
        self.nonce = 1
        self.cache = Cache()
        self.cache.add_index("by_s", "port", "s")
        self.quiet = Cache()
        """Gets the same input, and makes no events where none are requested."""
        self.chains = {topic: (self.store.links[topic], 0) for topic in TOPICS}
        self.values: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.seen: dict[tuple[str, str], int] = {}
        self.one_history = True

    def take(self, events: list[Event]) -> None:
        """Fold events as a controller would; each must fit the earlier events."""
        for event in events:
            ident = event.table, event.key
            old = self.values.get(ident)
            assert (event.old_version, event.old_value) == (old or (None, None))
            assert event.action == ("delete" if event.new_value is None else "set" if old else "create")
            if event.new_value is None:
                del self.values[ident]
            else:
                assert event.version is not None
                # Two histories may give a version twice; a move to another topic is a change too.
                moved = event.old_topic != event.topic
                assert moved or old != (event.version, event.new_value), "an event without a change"
                self.values[ident] = (event.version, event.new_value)
            if self.one_history and event.version is not None:
                assert event.version > self.seen.get(ident, 0), "a version went back"
                self.seen[ident] = event.version

    @rule(
        writes=st.lists(
            st.tuples(st.sampled_from(KEYS), st.sampled_from([*TOPICS, *TOPICS, None])), min_size=1, max_size=3
        ),
        value=st.integers(0, 3),
    )
    def write(self, writes: list[tuple[str, str | None]], value: int) -> None:
        self.store.write(writes, value)
        self.backups.append(self.store.fork(self.nonce))

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.backups) - 1))
        self.nonce += 1
        self.store = self.backups[number].fork(self.nonce)
        del self.backups[number + 1 :]
        self.one_history = False

    def is_foreign(self, topic: str) -> bool:
        """Whether the cache's contents of a topic are not of the store's history."""
        links, applied = self.chains[topic]
        return links[:applied] != self.store.links[topic][:applied]

    @rule(topic=st.sampled_from(TOPICS), maximum=st.integers(1, 3))
    def apply(self, topic: str, maximum: int) -> None:
        run = []
        for _ in range(maximum):
            links, applied = self.chains[topic]
            if not self.is_foreign(topic):
                links = self.store.links[topic]
            if applied < len(links):  # links of an undone history may still be under way
                done = self.cache.apply(links[applied])
                run.append(links[applied])
                self.chains[topic] = (links, applied + 1)
                assert (done.intact, done.guarded) == (True, 0)
                self.take(done.events)
        assert self.quiet.apply_run(run, None) == []

    @rule(topic=st.sampled_from(TOPICS))
    def replace(self, topic: str) -> None:
        done = self.cache.replace(topic, TopicSnapshot(self.store.head(topic), self.store.records(topic)))
        self.quiet.replace(topic, TopicSnapshot(self.store.head(topic), self.store.records(topic)), with_events=False)
        self.chains[topic] = (self.store.links[topic], len(self.store.links[topic]))
        assert done.intact
        self.take(done.events)

    @rule(topic=st.sampled_from(TOPICS))
    def repair(self, topic: str) -> None:
        records, mine = self.store.records(topic), self.cache.bucket_digests(topic)
        theirs: dict[int, int] = {}
        for r in records:
            bucket = bucket_of(r.table, r.key)
            theirs[bucket] = (theirs.get(bucket, 0) + fingerprint(r.table, r.key, r.version, r.value)) & MASK
        differ = frozenset(b for b in mine.keys() | theirs.keys() if mine.get(b) != theirs.get(b))
        part = [r for r in records if bucket_of(r.table, r.key) in differ]
        done = self.cache.replace(topic, TopicSnapshot(self.store.head(topic), part, differ))
        self.quiet.replace(topic, TopicSnapshot(self.store.head(topic), part, differ), with_events=False)
        self.chains[topic] = (self.store.links[topic], len(self.store.links[topic]))
        assert done.intact
        self.take(done.events)

    @rule(topic=st.sampled_from(TOPICS))
    def prove(self, topic: str) -> None:
        """A publisher's hello has the topic's head, and the cache has reached it."""
        if not self.is_foreign(topic) and self.chains[topic][1] == len(self.store.links[topic]):
            self.take(self.cache.prove(topic, self.store.position))
            self.quiet.prove(topic, self.store.position)

    @rule(topic=st.sampled_from(TOPICS))
    def drop(self, topic: str) -> None:
        self.one_history = False
        self.take(self.cache.drop(topic))
        self.quiet.drop(topic)
        self.chains[topic] = (self.store.links[topic], 0)

    @invariant()
    def digests_equal_a_recount(self) -> None:
        for topic in TOPICS:
            records = self.cache.topic_records(topic)
            assert self.cache.head(topic) == recount(records)
            assert sum(self.cache.bucket_digests(topic).values()) & MASK == recount(records)[1]

    @invariant()
    def events_equal_the_view(self) -> None:
        view = {(r.table, r.key): (r.version, r.value) for r in self.cache.iterate()}
        assert view == self.values
        for (table, key), (version, value) in view.items():
            assert self.cache.record(table, key) == Record(table, key, version, value)
            held = [r.version for t in TOPICS for r in self.cache.topic_records(t) if r.key == key]
            assert version == max(held)
        by_topic = [r for topic in TOPICS for r in self.cache.iterate(topic=topic)]
        assert sorted((r.key, r.version) for r in by_topic) == sorted((k[1], v[0]) for k, v in view.items())

    @invariant()
    def cache_without_events_has_the_same_contents(self) -> None:
        assert self.quiet.present() == self.cache.present()
        assert set(self.quiet.lagging) == set(self.cache.lagging)
        for topic in TOPICS:
            assert self.quiet.head(topic) == self.cache.head(topic)
            assert set(self.quiet.topic_records(topic)) == set(self.cache.topic_records(topic))

    @invariant()
    def indexes_equal_a_scan(self) -> None:
        for s in range(4):
            expected = sorted((k, v) for (_, k), (_, v) in self.values.items() if v == b'{"s":%d}' % s)
            assert sorted(self.cache.lookup("by_s", s)) == expected

    def teardown(self) -> None:
        """After all links, in an order of topics that depends on the run, the cache equals the store."""
        for topic in random.Random(self.store.position).sample(TOPICS, 3):
            if self.is_foreign(topic):
                self.replace(topic)
            self.apply(topic, 10_000)
        for topic in TOPICS:
            self.take(self.cache.prove(topic, self.store.position))
            self.quiet.prove(topic, self.store.position)
        assert not self.cache.lagging
        self.cache_without_events_has_the_same_contents()
        expected = {ident: (version, value) for ident, (_, version, value) in self.store.objects.items()}
        self.events_equal_the_view()
        assert self.values == expected
        for topic in TOPICS:
            assert self.cache.topic_records(topic) == self.cache.iterate(topic=topic)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
