"""Prepared snapshots, over a real store: the same contents as without them, at the cost of the changes since."""

from collections.abc import Mapping

import pytest

from pubsub_lib import Store
from pubsub_lib.core.contents import ReadObjects, contents_of
from pubsub_lib.core.model import Delta, Full, Incomplete, Point, SyncAnswer, Want
from pubsub_lib.errors import FrameError
from pubsub_lib.sync import snapshots
from pubsub_lib.sync.packing import read_packed
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.sync.reading import read_answer
from pubsub_lib.sync.snapshots import Composition, Snapshot, SnapshotCache, answer_of
from pubsub_lib.sync.stream import compressed, unpacked
from tests.unit.sync.answers import plain

FIRST: Mapping[str, Want] = {"t": Want(), "u": Want()}
LARGE = 2**21


class Source:
    """The store, with what it was asked. ``read``: as of the store."""

    def __init__(self, store: Store, read: ReadObjects | None) -> None:
        self.store = store
        self.read = read
        self.asked: list[Mapping[str, Want]] = []
        self.refreshed: list[bool] = []

    def __call__(self, question: SyncQuestion) -> SyncAnswer:
        self.asked.append(question.wants)
        self.refreshed.append(question.refresh)
        return self.store.read_sync(question.wants, self.read)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small snapshots are kept, too."""
    monkeypatch.setattr(snapshots, "MIN_BYTES", 1)


@pytest.fixture(params=[None, read_packed])
def source(store: Store, request: pytest.FixtureRequest) -> Source:
    with store.transaction() as tx:
        for number in range(500):
            tx.set(f"table-{number % 3}", f"k{number}", {"number": number}, topic="t")
            tx.set("lport", f"u{number}", number, topic="u")
    return Source(store, request.param)


def received(source: Source, cache: SnapshotCache, wants: Mapping[str, Want] = FIRST) -> SyncAnswer:
    """What a replica reads."""
    question = SyncQuestion(wants)
    answer, prepared = answer_of(source, question, cache)
    assert answer is not None
    parts = compressed(Composition(answer, wants, prepared, cache).items())
    return read_answer(unpacked(parts, LARGE, LARGE, gzip=True), wants)


def sorted_objects(answer: SyncAnswer) -> object:
    found = {}
    for topic, part in plain(answer).chains.items():
        assert isinstance(part, Full)
        found[topic] = part.head, part.topics[topic].head, sorted(part.topics[topic].records, key=lambda each: each.key)
    return found


def test_second_replica_gets_the_snapshot_and_the_changes_since(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    assert source.asked == [FIRST]
    with source.store.transaction() as tx:
        tx.set("table-0", "k0", "changed", topic="t")
        tx.delete("table-1", "k1")
        tx.create("table-9", "new", 1, topic="t")
    for count in (2, 4):
        found = received(source, cache)
        assert all(want.after is not None for want in source.asked[-1].values())
        assert cache.used == count
        assert sorted_objects(found) == sorted_objects(source.store.read_sync(FIRST))
        assert found.store == source.store.read_heads([]).store
    part = found.chains["t"]
    assert isinstance(part, Full)
    digest = contents_of("t", list(part.topics["t"].records)).digest
    assert digest == part.topics["t"].head.digest


def test_relay_proves_its_state_again_before_a_snapshot_is_used(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    received(source, cache)
    assert cache.used == 2
    assert source.refreshed == [False, True], "all objects were wanted, although only the links are asked for"


def test_snapshot_is_made_again_after_many_changes(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    with source.store.transaction() as tx:
        for number in range(300):
            tx.set("lport", f"u{number}", "other", topic="u")
    assert sorted_objects(received(source, cache)) == sorted_objects(source.store.read_sync(FIRST))
    assert [each == FIRST for each in source.asked] == [True, False, True]
    received(source, cache)
    assert [each == FIRST for each in source.asked] == [True, False, True, False], "the new one is used"


def test_snapshot_of_an_undone_history_is_dropped(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    kept = cache.of({"t": Want()})["t"]
    cache.put("t", Snapshot(Point(kept.point.position, kept.point.nonce + 1), kept.parts, kept.pages, kept.records))
    assert sorted_objects(received(source, cache)) == sorted_objects(source.store.read_sync(FIRST))
    assert cache.of({"t": Want()})["t"].point == kept.point


def test_only_first_syncs_of_topics_use_snapshots(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    point = source.store.read_heads(["t"]).topics["t"].point
    for want in (Want(point), Want(known=point), Want(buckets={1: 1}), Want(buckets={}, known=point)):
        received(source, cache, {"t": want})
        assert source.asked[-1] == {"t": want}
    received(source, cache, {"": Want()})
    assert source.asked[-1] == {"": Want()}
    assert cache.used == 0


def test_source_without_the_topics_now_keeps_the_snapshots(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    question = SyncQuestion(FIRST)
    assert answer_of(lambda asked: None, question, cache) == (None, {})
    lagging = SyncAnswer(Point(1, 1), {"u": Incomplete()}, b"", {})
    answer, prepared = answer_of(lambda asked: lagging, question, cache)
    assert (answer, prepared) == (lagging, {})
    assert list(cache.of(FIRST)) == ["t"], "that of u is dropped, because its point is not in the history"


def test_delta_of_a_relay_that_is_behind_the_snapshot_is_not_used(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache, {"t": Want()})
    behind = SyncAnswer(Point(1, 1), {"t": Delta([], Point(1, 1))}, b"", {})
    assert answer_of(lambda asked: behind, SyncQuestion({"t": Want()}), cache)[1] == {}
    assert cache.of(FIRST) == {}


def snapshot(size: int, number: int = 1) -> Snapshot:
    return Snapshot(Point(number, 1), (b"x" * size,), 1, 1)


def test_snapshots_used_longest_ago_make_room() -> None:
    cache = SnapshotCache(100)
    for topic in ("a", "b"):
        cache.put(topic, snapshot(40))
    cache.of({"a": Want()})
    cache.put("c", snapshot(50))
    assert list(cache.of({"a": Want(), "b": Want(), "c": Want()})) == ["a", "c"]
    assert cache.size == 90
    cache.put("c", snapshot(10))
    assert cache.size == 50
    cache.put("c", snapshot(101))
    assert cache.size == 40, "one that is too large replaces the older one by none"
    assert SnapshotCache(0).size == 0


def test_cache_of_no_size_keeps_nothing(source: Source) -> None:
    cache = SnapshotCache(0)
    for _ in range(2):
        assert sorted_objects(received(source, cache)) == sorted_objects(source.store.read_sync(FIRST))
    assert source.asked == [FIRST, FIRST]


def test_links_after_a_snapshot_must_lead_to_the_head(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache, {"t": Want()})
    with source.store.transaction() as tx:
        tx.set("table-0", "k0", "changed", topic="t")
    with source.store.transaction() as tx:
        tx.set("table-0", "k0", "again", topic="t")
    answer, prepared = answer_of(source, SyncQuestion({"t": Want()}), cache)
    assert answer is not None
    part = answer.chains["t"]
    assert isinstance(part, Delta)
    assert len(part.links) == 2
    for links in (part.links[:1], part.links[1:], part.links[::-1]):
        bad = SyncAnswer(answer.store, {"t": Delta(links, part.head, part.heads)}, answer.store_id)
        pages = unpacked(compressed(Composition(bad, {"t": Want()}, prepared, cache).items()), LARGE, LARGE, gzip=True)
        if links == part.links[1:]:
            # Begins later than the snapshot: the digest shows it to the replica, as for any wrong contents.
            read_answer(pages, {"t": Want()})
        else:
            with pytest.raises(FrameError):
                read_answer(pages, {"t": Want()})


def test_small_topics_are_not_kept(monkeypatch: pytest.MonkeyPatch, source: Source) -> None:
    monkeypatch.setattr(snapshots, "MIN_BYTES", LARGE)
    cache = SnapshotCache(LARGE)
    received(source, cache)
    assert cache.size == 0
