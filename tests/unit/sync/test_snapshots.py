"""Prepared snapshots, over a real store: the same contents as without them, at the cost of the changes since."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from pubsub_lib import Store
from pubsub_lib.core.contents import ReadObjects, contents_of
from pubsub_lib.core.model import Delta, Full, Incomplete, Point, SyncAnswer, Want
from pubsub_lib.errors import FrameError, StoreUnavailable
from pubsub_lib.sync import snapshots
from pubsub_lib.sync.packing import read_packed
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.sync.reading import read_answer
from pubsub_lib.sync.snapshots import BeingRead, Composition, Snapshot, SnapshotCache, answer_of
from pubsub_lib.sync.stream import compressed, unpacked
from tests.unit.sync.answers import plain
from tests.unit.world import LONG

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


def changed(source: Source, count: int, value: str) -> None:
    with source.store.transaction() as tx:
        for number in range(count):
            tx.set("lport", f"u{number}", value, topic="u")


def test_pages_of_many_links_are_kept_after_the_snapshot(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    before = cache.of(FIRST)["u"]
    changed(source, 120, "once")
    assert sorted_objects(received(source, cache)) == sorted_objects(source.store.read_sync(FIRST))
    longer = cache.of(FIRST)["u"]
    assert longer.point == source.store.read_heads(["u"]).topics["u"].point
    assert (longer.records, longer.changes) == (500, 120)
    assert longer.parts[: len(before.parts)] == before.parts
    for _ in range(2):
        assert sorted_objects(received(source, cache)) == sorted_objects(source.store.read_sync(FIRST))
        assert source.asked[-1]["u"] == Want(longer.point)
    assert cache.of(FIRST)["u"] is longer, "no link is left for a further page"
    assert cache.size == sum(each.size for each in cache.of(FIRST).values())


def test_pages_of_few_links_are_not_kept(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    before = cache.of(FIRST)["u"]
    changed(source, 99, "once")
    received(source, cache)
    assert cache.of(FIRST)["u"] is before


def test_kept_links_count_as_changes_since_the_objects(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    for value in ("once", "twice"):
        changed(source, 120, value)
        received(source, cache)
    assert [each["u"] == Want() for each in source.asked] == [True, False, False, True]
    assert cache.of(FIRST)["u"].changes == 0


def test_only_the_snapshot_that_was_sent_is_extended() -> None:
    cache = SnapshotCache(100)
    first, other, longer = snapshot(40), snapshot(50), snapshot(60, 2)
    cache.extend("a", first, longer)
    assert cache.of({"a": Want()}) == {}, "it was dropped meanwhile"
    cache.put("a", other)
    cache.extend("a", first, longer)
    assert cache.of({"a": Want()})["a"] is other
    cache.extend("a", other, snapshot(101, 2))
    assert cache.of({"a": Want()})["a"] is other, "the longer one is too large"
    cache.extend("a", other, longer)
    assert (cache.of({"a": Want()})["a"], cache.size) == (longer, 60)


def test_links_that_do_not_connect_are_not_kept(source: Source) -> None:
    cache = SnapshotCache(LARGE)
    received(source, cache)
    for value in ("once", "twice"):
        changed(source, 60, value)
    question = SyncQuestion({"u": Want()})
    answer, prepared = answer_of(source, question, cache)
    assert answer is not None
    part = answer.chains["u"]
    assert isinstance(part, Delta)
    assert len(part.links) == 2
    twice = [part.links[1], part.links[1]]
    for links in (twice, part.links[::-1]):
        bad = SyncAnswer(answer.store, {"u": Delta(links, part.head, part.heads)}, answer.store_id)
        list(compressed(Composition(bad, {"u": Want()}, prepared, cache).items()))
        assert cache.of(FIRST)["u"] is prepared["u"]


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


class Slow:
    """The store, which is read when ``go`` is set."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.go = threading.Event()
        self.entered = threading.Semaphore(0)
        self.asked: list[Mapping[str, Want]] = []

    def __call__(self, question: SyncQuestion) -> SyncAnswer:
        self.asked.append(question.wants)
        self.entered.release()
        assert self.go.wait(LONG)
        return self.store.read_sync(question.wants, read_packed)


def test_objects_are_read_once_for_replicas_that_begin_together(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MAX_WAIT", LONG)
    slow, cache = Slow(source.store), SnapshotCache(LARGE)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(answer_of, slow, SyncQuestion(FIRST), cache)
        assert slow.entered.acquire(timeout=LONG)
        others = [threads.submit(answer_of, slow, SyncQuestion(wants), cache) for wants in (FIRST, {"u": Want()})]
        known = threads.submit(answer_of, slow, SyncQuestion({"t": Want(Point(1, 1))}), cache)
        slow.go.set()
        assert first.result(LONG)[1] == {}
        assert [sorted(each.result(LONG)[1]) for each in others] == [["t", "u"], ["u"]]
        known.result(LONG)
    fulls = [wants for wants in slow.asked if Want() in wants.values()]
    assert fulls == [FIRST]


def test_replica_does_not_wait_for_long(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MAX_WAIT", 0.01)
    slow, cache = Slow(source.store), SnapshotCache(LARGE)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(answer_of, slow, SyncQuestion(FIRST), cache)
        assert slow.entered.acquire(timeout=LONG)
        with pytest.raises(BeingRead):
            answer_of(slow, SyncQuestion({"u": Want()}), cache)
        slow.go.set()
        first.result(LONG)
    assert sorted(answer_of(slow, SyncQuestion({"u": Want()}), cache)[1]) == ["u"]


@pytest.mark.parametrize("size", [0, 1])
def test_objects_are_read_for_each_replica(source: Source, size: int) -> None:
    """No snapshots, and a topic whose snapshot is known not to be kept."""
    slow, cache = Slow(source.store), SnapshotCache(size)
    if size:
        slow.go.set()
        answer_of(slow, SyncQuestion(FIRST), cache)
        assert slow.entered.acquire(timeout=LONG)
        slow.go.clear()
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(answer_of, slow, SyncQuestion(FIRST), cache) for _ in range(2)]
        assert all(slow.entered.acquire(timeout=LONG) for _ in both)
        slow.go.set()
        assert [each.result(LONG)[1] for each in both] == [{}, {}]


def test_failed_reading_lets_the_next_one_begin(source: Source) -> None:
    def failing(question: SyncQuestion) -> SyncAnswer:
        raise StoreUnavailable("it does not run")

    cache = SnapshotCache(LARGE)
    with pytest.raises(StoreUnavailable, match="does not run"):
        answer_of(failing, SyncQuestion(FIRST), cache)
    assert answer_of(source, SyncQuestion(FIRST), cache)[0] is not None


@pytest.mark.parametrize("fails", [True, False])
def test_answers_that_wait_begin_after_a_reading_without_a_result(
    source: Source, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed, or a relay did not have the topics then. One of those that wait reads; none gets that result."""
    monkeypatch.setattr(snapshots, "MAX_WAIT", LONG)
    slow, cache = Slow(source.store), SnapshotCache(LARGE)
    begun = threading.Event()
    ends: list[SyncAnswer | None] = []

    def without_result(question: SyncQuestion) -> SyncAnswer | None:
        begun.set()
        assert slow.go.wait(LONG)
        if fails:
            raise StoreUnavailable("it does not run")
        return None

    def first() -> None:
        ends.append(answer_of(without_result, SyncQuestion(FIRST), cache)[0])

    with ThreadPoolExecutor(4) as threads:
        reading = threads.submit(first)
        assert begun.wait(LONG)
        others = [threads.submit(answer_of, slow, SyncQuestion(FIRST), cache) for _ in range(3)]
        slow.go.set()
        if fails:
            with pytest.raises(StoreUnavailable):
                reading.result(LONG)
        else:
            reading.result(LONG)
        answers = [each.result(LONG) for each in others]
    assert ends == ([] if fails else [None])
    assert all(answer is not None for answer, _ in answers)
    assert sorted(len(prepared) for _, prepared in answers) == [0, 2, 2]
    assert [wants for wants in slow.asked if Want() in wants.values()] == [FIRST]


def test_names_of_topics_without_a_snapshot_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MAX_NAMES", 3)
    cache = SnapshotCache(1)
    for number in range(10):
        cache.put(f"t{number}", snapshot(2))
    assert len(cache._not_kept) <= 3


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
