"""Objects as a service reads them: the same as a replica's, in bounded pages, in little memory."""

import gc
import tracemalloc
import zlib
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from pubsub_lib import Store
from pubsub_lib.core.contents import ReadObjects, read_contents, read_records
from pubsub_lib.core.model import ALL, Full, Record, SyncAnswer, TopicSnapshot, Want
from pubsub_lib.sync import packing
from pubsub_lib.sync.packing import PackedRecords, read_packed
from pubsub_lib.sync.pages import PAGE_BYTES, pages_of
from pubsub_lib.sync.reading import read_answer
from pubsub_lib.sync.snapshots import Composition, SnapshotCache
from pubsub_lib.sync.stream import GZIP, compressed

LARGE = 2**30


def fill(store: Store, rng: Random, objects: int = 400, size: int = 2000) -> None:
    with store.transaction() as tx:
        for number in range(objects):
            value = rng.randbytes(rng.randrange(size)).hex()
            tx.set(f"table-{rng.randrange(3)}", f"k{number}", value, topic=rng.choice("tuv"))


def topics_of(answer: SyncAnswer) -> Mapping[str, TopicSnapshot]:
    found: dict[str, TopicSnapshot] = {}
    for part in answer.chains.values():
        assert isinstance(part, Full)
        found |= part.topics
    return found


def by_name(snapshots: Mapping[str, TopicSnapshot]) -> object:
    return {
        topic: (each.head, each.buckets, list(each.changes), sorted(each.records, key=lambda one: (one.table, one.key)))
        for topic, each in snapshots.items()
    }


def wanted(store: Store) -> Iterator[dict[str, Want]]:
    point = store.read_heads(["t"]).topics["t"].point
    yield {topic: Want() for topic in ("t", "u", "v", "never-written")}
    yield {"t": Want(known=point), "u": Want()}
    yield {"t": Want(buckets=dict.fromkeys(range(100), 1))}
    yield {ALL: Want()}
    yield {ALL: Want(buckets={1: 1}, known=store.read_heads([]).store)}


@pytest.mark.parametrize("max_open", [packing.MAX_OPEN, 10_000])
def test_packed_objects_are_those_of_a_replica(
    database_url: str, max_open: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_OPEN", max_open)
    with Store(database_url) as store:
        fill(store, Random(max_open))
        for wants in wanted(store):
            packed = store.read_sync(wants, read_packed)
            assert by_name(topics_of(packed)) == by_name(topics_of(store.read_sync(wants)))
            for each in topics_of(packed).values():
                records = each.records
                assert isinstance(records, PackedRecords)
                assert len(records) == len(list(records))
                assert list(records[1:]) == list(records)[1:]


def test_answer_that_is_sent_is_the_same(store: Store) -> None:
    fill(store, Random(1))
    for wants in wanted(store):
        answer = store.read_sync(wants, read_packed)
        parts = compressed(Composition(answer, wants, {}, SnapshotCache(LARGE)).items())
        stream = b"".join(parts)
        plain: list[bytes] = []
        while stream:
            expand = zlib.decompressobj(GZIP)
            plain.append(expand.decompress(stream))
            stream = expand.unused_data
        pages = list(split(b"".join(plain)))
        assert by_name(topics_of(read_answer(pages, wants))) == by_name(topics_of(store.read_sync(wants)))
        # Of a replica that accepts no gzip.
        assert by_name(topics_of(read_answer(pages_of(answer), wants))) == by_name(topics_of(store.read_sync(wants)))


def split(stream: bytes) -> Iterator[bytes]:
    while stream:
        size = int.from_bytes(stream[:4])
        yield stream[4 : 4 + size]
        stream = stream[4 + size :]


def packed_of(*rows: tuple[object, str, int, object], table: str | None = None) -> dict[str, PackedRecords]:
    def content(table: str, key: str, topic: str, value: object) -> bytes:
        assert isinstance(value, memoryview)
        return bytes(value)

    return read_packed(("t", "u"), [rows[:1], [], rows[1:]], table, content, LookupError)


def test_rows_may_come_in_any_order_and_in_other_types() -> None:
    found = packed_of(
        (("t", "a"), "1", 1, b"1"), (("u", "a"), "2", 2, b"2"), (("t", "b"), "3", 3, memoryview(b"3")),
        (("t", "a"), "4", 4, b"4"),
    )  # fmt: skip
    assert sorted(found["t"], key=lambda each: each.key) == [
        Record("a", "1", 1, b"1"), Record("b", "3", 3, b"3"), Record("a", "4", 4, b"4"),
    ]  # fmt: skip
    assert found["u"][0] == Record("a", "2", 2, b"2")
    assert list(packed_of(("t", "1", 1, b"1"), table="only")["t"]) == [Record("only", "1", 1, b"1")]
    with pytest.raises(LookupError, match="lost"):
        packed_of((("lost", "a"), "1", 1, b"1"))


def test_pages_have_at_most_one_item_more_than_their_size() -> None:
    value = b"x" * 1000
    rows = [(("t", "a"), f"k{number}", number, value) for number in range(2000)]
    parts = packed_of(*rows, (("t", "a"), "large", 9, b"y" * 3 * PAGE_BYTES), (("t", "a"), "z", 9, value))["t"].parts
    sizes = [len(zlib.decompress(each, GZIP)) for each in parts]
    assert len(sizes) > 5
    assert all(size < PAGE_BYTES + len(value) + 200 for size in sizes[:-2])
    assert sizes[-2] < 4 * PAGE_BYTES


def test_pages_of_many_topics_are_closed_before_they_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_OPEN", 1000)
    batches = [[(("t", f"table-{number}"), f"k{number}", number, b"x" * 300)] for number in range(9)]
    found = read_packed(("t",), batches, None, lambda *given: b"", LookupError)["t"]
    assert [each.key for each in found] == [f"k{number}" for number in range(9)]
    closed: list[int] = []

    def watched() -> Iterator[list[tuple[tuple[str, str], str, int, bytes]]]:
        for batch in batches:
            closed.append(sum(len(each) for each in made))
            yield batch

    made: list[PackedRecords] = []
    begin = PackedRecords.__init__

    def remembered(self: PackedRecords) -> None:
        begin(self)
        made.append(self)

    monkeypatch.setattr(PackedRecords, "__init__", remembered)
    read_packed(("t",), watched(), None, lambda *given: b"", LookupError)
    assert closed == [0, 0, 0, 3, 3, 3, 6, 6, 6], "three objects of 380 bytes exceed the bound"


def peak(store: Store, read: ReadObjects) -> int:
    """Bytes that one full sync takes at a service."""
    wants = {"t": Want()}
    gc.collect()
    tracemalloc.start()
    try:
        answer = store.read_sync(wants, read)
        for part in compressed(Composition(answer, wants, {}, SnapshotCache(LARGE)).items()):
            assert part is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_full_sync_takes_less_memory_than_the_objects(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        for begin in range(0, 15_000, 5000):
            with store.transaction() as tx:
                for number in range(begin, begin + 5000):
                    tx.set("port", f"port-{number}", Random(number).randbytes(100).hex(), topic="t")
        store.read_sync({"t": Want()})  # what SQLAlchemy keeps of a statement
        packed, entries, records = (peak(store, each) for each in (read_packed, read_contents, read_records))
        assert packed < entries / 2
        assert packed < records / 2
