"""Full syncs: one consistent reading in pages, buckets, recounts, isolation (rules S2 and S4)."""

import threading

import pytest
from sqlalchemy import create_engine, event, text, update

from pubsub_lib.core import digest
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.model import ALL, ZERO, Delta, Full, Head, Link, Point, Recorded, Want
from pubsub_lib.store import Store, schema, snapshot
from tests.unit.store.conftest import Opener


def full(store: Store, chain: str, **want: object) -> Full:
    answer = store.read_sync({chain: Want(**want)}).chains[chain]  # type: ignore[arg-type]
    assert isinstance(answer, Full)
    return answer


def replica_of(store: Store, chain: str) -> Cache:
    """A cache with the current objects of a chain."""
    cache = Cache()
    for topic, read in full(store, chain).topics.items():
        cache.replace(topic, read)
    return cache


def rot(cache: Cache, topic: str, key: str) -> None:
    """Alter an object in memory, as a recount leaves it: with the fingerprint of the altered value."""
    entry = cache._topics[topic].tables["t"][key]
    entry.value = b'"rotten"'
    entry.fingerprint = digest.fingerprint("t", key, entry.version, entry.value)


def head_of(answer: Full, topic: str) -> Head:
    """The head computed from the records of an answer."""
    records = answer.topics[topic].records
    total = 0
    for each in records:
        total = digest.add(total, digest.fingerprint(each.table, each.key, each.version, each.value))
    return Head(answer.topics[topic].head.point, len(records), total)


def test_full_sync_contains_all_objects_for_any_page_size(store: Store) -> None:
    for count in (0, 1, 2, 3, 4, 9):  # the page size is 3
        topic = f"topic-{count}"
        with store.transaction() as tx:
            for i in range(count):
                tx.set("A" if i % 2 else "a", f"{count} {i}", i, topic=topic)
        answer = full(store, topic)
        assert sorted(each.key for each in answer.topics[topic].records) == sorted(f"{count} {i}" for i in range(count))
        assert head_of(answer, topic) == answer.topics[topic].head == store.read_heads([topic]).topics[topic]
        assert store.recount(topic) == answer.topics[topic].head


def test_full_sync_of_all_contains_every_topic(store: Store) -> None:
    with store.transaction() as tx:
        for i in range(10):
            tx.set("t", f"k{i}", i, topic=f"topic-{i % 4}")
    with store.transaction() as tx:
        for i in range(3, 10, 4):
            tx.delete("t", f"k{i}")
    answer = full(store, ALL)
    assert answer.head == store.read_heads([]).store
    assert sorted(answer.topics) == [f"topic-{i}" for i in range(4)]
    assert list(answer.topics["topic-3"].records) == []
    for topic, head in store.topics().items():
        assert head_of(answer, topic) == head


def test_isolation_pages_under_concurrent_writes_are_one_snapshot(open_store: Opener) -> None:
    """Objects move between topics all the time: a reading of several states would miss an object or read it twice."""
    store, writer = open_store(), open_store()
    with writer.transaction() as tx:
        for i in range(12):
            tx.set("t", f"k{i}", 0, topic=f"topic-{i % 3}")
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            with writer.transaction() as tx:
                for i in range(0, 12, 1 + n % 3):
                    tx.set("t", f"k{i}", n, topic=f"topic-{(i + n) % 3}")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(15):
            answer = full(store, ALL)
            records = [each.key for topic in answer.topics.values() for each in topic.records]
            assert sorted(records) == sorted(f"k{i}" for i in range(12))
            for topic in answer.topics:
                assert head_of(answer, topic) == answer.topics[topic].head
    finally:
        stop.set()
        thread.join()


def write_after_each_statement(reader: Store, writer: Store) -> None:
    """Commit a transaction that changes all objects of two topics, now and after every statement of the reader."""
    number = 0

    def write(*_: object) -> None:
        nonlocal number
        number += 1
        with writer.transaction() as tx:
            for i in range(8):
                tx.set("t", f"k{i}", number, topic=f"topic-{i % 2}")

    write()
    event.listen(reader._readers, "after_cursor_execute", write)


def values_and_head(answer: Delta | Full, topic: str) -> tuple[list[bytes], Point]:
    """The values that a replica has after this answer, and their point according to the answer."""
    if isinstance(answer, Full):
        snapshot = answer.topics[topic]
        assert head_of(answer, topic) == snapshot.head
        return [each.value for each in snapshot.records], snapshot.head.point
    mine = [link for link in answer.links if link.topic == topic]
    return [change.value or b"" for change in mine[-1].changes], mine[-1].point


@pytest.mark.parametrize(
    "wants",
    [
        {"topic-0": Want(), "topic-1": Want()},
        {"topic-0": Want(buckets={}), "topic-1": Want(buckets={})},
        {"topic-0": Want(after=ZERO), "topic-1": Want(after=ZERO)},
        {"topic-0": Want(), "topic-1": Want(after=ZERO)},
        {ALL: Want()},
        {ALL: Want(buckets={})},
        {ALL: Want(after=ZERO)},
    ],
    ids=["full", "buckets", "delta", "both", "full of all", "buckets of all", "delta of all"],
)
def test_isolation_sync_is_one_state_despite_commits_between_its_statements(
    wants: dict[str, Want], open_store: Opener
) -> None:
    store, writer = open_store(), open_store()
    write_after_each_statement(store, writer)
    for _ in range(3):
        answer = store.read_sync(wants)
        values = []
        for topic in ("topic-0", "topic-1"):
            chain = answer.chains[ALL if ALL in wants else topic]
            assert isinstance(chain, Delta | Full)
            assert chain.head == answer.store
            found, point = values_and_head(chain, topic)
            assert point == answer.store
            assert len(found) == 4
            values += found
        assert len(set(values)) == 1


def test_isolation_heads_and_objects_are_each_one_state(open_store: Opener) -> None:
    store, writer = open_store(), open_store()
    write_after_each_statement(store, writer)
    heads = store.read_heads(["topic-0", "topic-1"])
    assert {head.point for head in heads.topics.values()} == {heads.store}
    assert len({each.value for each in store.objects()}) == 1
    links, head, complete = store.read_links(None, 1000)
    assert (links[-1].point, complete) == (head, True)
    assert store.holds(ALL, [head, links[0].point]) == [True, True]
    counted = store.recount("topic-0")
    mine = {link.point: link for link in store.read_links(None, 1000)[0] if link.topic == "topic-0"}
    assert (counted.count, counted.digest) == (mine[counted.point].count, mine[counted.point].digest)


def test_isolation_reader_does_not_see_commits_while_it_reads(open_store: Opener) -> None:
    store, writer = open_store(), open_store()
    with writer.transaction() as tx:
        for i in range(9):
            tx.set("t", f"k{i}", 0)
    reading = store.objects()
    first = next(reading)
    with writer.transaction() as tx:
        for i in range(9):
            tx.delete("t", f"k{i}")
    assert len([first, *reading]) == 9
    assert list(store.objects()) == []


def test_isolation_reader_does_not_block_writers(open_store: Opener) -> None:
    store, writer = open_store(), open_store()
    with writer.transaction() as tx:
        for i in range(9):
            tx.set("t", f"k{i}", 0)
    reading = store.objects()
    next(reading)
    with writer.transaction() as tx:
        tx.set("t", "k0", 1)
    assert tx.commit is not None
    reading.close()  # type: ignore[attr-defined]


def test_objects_are_filtered_by_topic_and_table(store: Store) -> None:
    with store.transaction() as tx:
        for i in range(8):
            tx.set(f"table-{i % 2}", f"k{i}", i, topic=f"topic-{i // 4}")
    assert {each.key for each in store.objects(topic="topic-0")} == {"k0", "k1", "k2", "k3"}
    assert {each.key for each in store.objects(table="table-1")} == {"k1", "k3", "k5", "k7"}
    assert {each.key for each in store.objects(topic="topic-1", table="table-0")} == {"k4", "k6"}


@pytest.mark.parametrize("chain", ["topic", ALL], ids=["of a topic", "of everything"])
def test_rule_10_repair_reads_damaged_bucket_and_only_changes_of_written_ones(store: Store, chain: str) -> None:
    with store.transaction() as tx:
        for i in range(100):
            tx.set("t", f"k{i}", i, topic="topic")
        tx.set("t", "moved", 0, topic="other")
    known = full(store, chain).head
    cache = replica_of(store, chain)
    rotten = digest.bucket_of("t", "k7")
    rot(cache, "topic", "k7")
    others = [f"k{i}" for i in range(100) if digest.bucket_of("t", f"k{i}") != rotten]
    assert digest.bucket_of("t", "new") != rotten != digest.bucket_of("t", "moved")
    for value in (1, 2):
        with store.transaction() as tx:
            tx.set("t", others[0], {"n": value})
            tx.set("t", "new", value, topic="topic")
    with store.transaction() as tx:
        tx.delete("t", others[1])
        tx.set("t", "moved", 0, topic="topic")
    answer = full(store, chain, buckets=cache.bucket_digests(chain), known=known)
    read = answer.topics["topic"]
    assert read.buckets == frozenset({rotten})
    assert {each.key for each in read.records} == {f"k{i}" for i in range(100) if f"k{i}" not in others}
    assert {each.key: each.value for each in read.changes} == {
        others[0]: b'{"n":2}', others[1]: None, "moved": b"0", "new": b"2",
    }  # fmt: skip
    for topic, part in answer.topics.items():
        assert cache.replace(topic, part).intact, topic
    expected = full(store, chain).topics
    for topic in expected:
        assert sorted(cache.topic_records(topic), key=repr) == sorted(expected[topic].records, key=repr)


def test_rule_10_repair_reads_written_buckets_when_no_other_differs(store: Store) -> None:
    """The damaged object may be in one of them."""
    with store.transaction() as tx:
        for i in range(100):
            tx.set("t", f"k{i}", i, topic="topic")
    known = full(store, "topic").head
    cache = replica_of(store, "topic")
    rot(cache, "topic", "k7")
    rotten = digest.bucket_of("t", "k7")
    other = next(f"k{i}" for i in range(100) if digest.bucket_of("t", f"k{i}") != rotten)
    beside = next(key for key in map(str, range(9999)) if digest.bucket_of("t", key) == rotten)
    with store.transaction() as tx:
        tx.set("t", other, "x")
        tx.create("t", beside, 1, topic="topic")
    read = full(store, "topic", buckets=cache.bucket_digests("topic"), known=known).topics["topic"]
    assert read.buckets == frozenset({rotten, digest.bucket_of("t", other)})
    assert not read.changes
    assert cache.replace("topic", read).intact


def test_rule_10_repair_from_a_trimmed_point_reads_all_differing_buckets(
    store: Store,
) -> None:
    with store.transaction() as tx:
        for i in range(100):
            tx.set("t", f"k{i}", i, topic="topic")
    cache = replica_of(store, "topic")
    rot(cache, "topic", "k7")
    other = next(f"k{i}" for i in range(100) if digest.bucket_of("t", f"k{i}") != digest.bucket_of("t", "k7"))
    with store.transaction() as tx:
        tx.set("t", other, "x")
    foreign = Point(5, 5)
    read = full(store, "topic", buckets=cache.bucket_digests("topic"), known=foreign).topics["topic"]
    assert read.buckets == frozenset(digest.bucket_of("t", each) for each in (other, "k7"))
    assert not read.changes
    assert cache.replace("topic", read).intact


@pytest.mark.parametrize("chain", ["topic", ALL], ids=["of a topic", "of everything"])
@pytest.mark.parametrize("buckets", [{1: 2}, None], ids=["buckets", "all objects"])
def test_rule_14_answer_has_what_the_store_recorded_at_the_point(
    store: Store, chain: str, buckets: dict[int, int] | None
) -> None:
    commits = []
    for number in range(4):
        with store.transaction() as tx:
            tx.set("t", "k", number, topic="topic")
            tx.set("t", "k2", number, topic="other")
        commits.append(tx.commit)
    links = {link.topic: link for each in commits[1:3] if each is not None for link in each.links}

    def recorded(topic: str, point: Point) -> Recorded | None:
        known = full(store, chain).head
        return full(store, chain, buckets=buckets, known=known, judged=(topic, point)).recorded

    def expected(link: Link) -> Recorded:
        return Recorded(link.point, True, link.count, link.digest)

    point = links["topic"].point
    assert recorded("topic", point) == expected(links["topic"])
    assert full(store, chain, buckets=buckets, known=point).recorded is None
    for stranger in (Point(point.position, point.nonce + 1), Point(point.position + 1, point.nonce)):
        assert recorded("topic", stranger) == Recorded(stranger, held=False)
    if chain == ALL:
        assert recorded("never-written", point) == Recorded(point, held=False)
        assert recorded("never-written", ZERO) == Recorded(ZERO, held=True)
        assert recorded("other", point) == expected(links["other"]) != expected(links["topic"])
    newest = store.read_heads(["topic"]).topics["topic"]
    store.trim(keep_links=0)
    assert recorded("topic", point) is None
    assert recorded("topic", newest.point) == Recorded(newest.point, True, newest.count, newest.digest)
    if chain == ALL:
        assert recorded("never-written", point) is None, "its row may be lost"


def test_rule_14_rows_that_contradict_each_other_judge_no_publisher(open_store: Opener, database_url: str) -> None:
    """The topic's row was altered, and after a repair the changelog has what was published before."""
    store = open_store()
    points = []
    for number in range(2):
        with store.transaction() as tx:
            tx.set("t", "k", number, topic="topic")
        points.append(full(store, "topic").head)
    older, newest = points
    engine, topics, links = create_engine(database_url), schema.topics, schema.links

    def recorded(chain: str, point: Point) -> Recorded | None:
        return full(store, chain, known=point, judged=("topic", point)).recorded

    for chain in ("topic", ALL):
        assert recorded(chain, older) is not None
        assert recorded(chain, newest) is not None
    with engine.begin() as connection:
        connection.execute(update(topics).values(count=topics.c.count + 1))
    assert recorded("topic", newest) is recorded(ALL, newest) is None
    with engine.begin() as connection:
        connection.execute(update(topics).values(count=topics.c.count - 1))
        connection.execute(update(links).where(links.c.position == newest.position).values(nonce=5))
    assert recorded("topic", newest) is recorded(ALL, newest) is None
    with engine.begin() as connection:
        connection.execute(update(links).values(count=-1))
    assert recorded("topic", older) is recorded(ALL, older) is None
    if engine.dialect.name == "sqlite":  # it lets text into a number's column
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE {links.name} SET count = 'text'"))
        assert recorded("topic", older) is recorded(ALL, older) is None
    engine.dispose()


def test_many_points_are_judged_by_few_statements(store: Store) -> None:
    wants = {}
    for number in range(20):
        with store.transaction() as tx:
            tx.set("t", f"k{number}", number, topic=f"topic-{number}")
        point = full(store, f"topic-{number}").head
        wants[f"topic-{number}"] = Want(known=point, judged=(f"topic-{number}", point))
    statements: list[str] = []
    event.listen(store._readers, "before_cursor_execute", lambda *given: statements.append(given[2]))
    answer = store.read_sync(wants)
    assert all(isinstance(part, Full) and part.recorded and part.recorded.held for part in answer.chains.values())
    assert len([each for each in statements if "pubsub_links" in each]) <= 3


def test_full_sync_reads_small_topics_together(store: Store) -> None:
    """A statement for each topic would take most of the time with 10,000 topics. The page size is 3."""
    sizes = [0, 1, 1, 1, 5, 0, 0, 2, 3, 0, 1]
    with store.transaction() as tx:
        for number, size in enumerate(sizes):
            for i in range(size):
                tx.set("t", f"{number} {i}", i, topic=f"topic-{number}")
    wants = {f"topic-{number}": Want() for number in range(len(sizes))}
    statements: list[str] = []
    event.listen(store._readers, "before_cursor_execute", lambda *given: statements.append(given[2]))
    answer = store.read_sync(wants)
    for number, size in enumerate(sizes):
        part = answer.chains[f"topic-{number}"]
        assert isinstance(part, Full)
        assert list(part.topics) == [f"topic-{number}"]
        assert head_of(part, f"topic-{number}") == part.topics[f"topic-{number}"].head
        assert len(part.topics[f"topic-{number}"].records) == size
    reading = [each for each in statements if "pubsub_objects" in each]
    assert len(reading) < len([size for size in sizes if size]) + 3


def test_repair_reads_only_whole_differing_buckets(store: Store) -> None:
    with store.transaction() as tx:
        for i in range(40):
            tx.set("t", f"k{i}", i, topic=f"topic-{i % 2}")
    mine = store.bucket_digests("topic-0")
    assert digest.add(0, sum(mine.values())) == store.topics()["topic-0"].digest
    same = full(store, "topic-0", buckets=mine)
    assert (same.topics["topic-0"].buckets, list(same.topics["topic-0"].records)) == (frozenset(), [])
    wrong = digest.bucket_of("t", "k4")
    empty = next(bucket for bucket in range(digest.BUCKETS) if bucket not in mine)
    answer = full(store, "topic-0", buckets={**mine, wrong: 1, empty: 1}).topics["topic-0"]
    assert answer.buckets == frozenset({wrong, empty})
    expected = {f"k{i}" for i in range(0, 40, 2) if digest.bucket_of("t", f"k{i}") == wrong}
    assert {each.key for each in answer.records} == expected
    everything = full(store, "topic-0", buckets={}).topics["topic-0"]
    assert len(everything.records) == 20
    assert full(store, ALL, buckets={}).topics["topic-1"].buckets == frozenset(
        digest.bucket_of("t", f"k{i}") for i in range(40)
    )


def test_topic_rows_digest_sums_do_not_overflow(store: Store) -> None:
    """SQLite's sum overflows at 64 bits; the sum of 200 fingerprints is larger, the sums of their halves are not."""
    with store.transaction() as tx:
        for i in range(200):
            tx.set("t", f"k{i}", i)
    total = digest.add(0, sum(store.bucket_digests("default").values()))
    assert total == store.topics()["default"].digest == store.recount("default").digest


def test_topic_rows_recount_detects_altered_value(open_store: Opener, database_url: str) -> None:
    store = open_store()
    with store.transaction() as tx:
        tx.set("t", "k", 1)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(update(schema.objects).values(value=b"2"))
    engine.dispose()
    assert store.recount("default") != store.topics()["default"]


@pytest.mark.parametrize("topics", [[], ["a"], ["a", "none"], [ALL], [ALL, "none"]])
def test_read_heads_returns_point_and_heads(topics: list[str], store: Store) -> None:
    with store.transaction() as tx:
        tx.set("t", "1", 1, topic="a")
        tx.set("t", "2", 1, topic="b")
    heads = store.read_heads(topics)
    assert tx.commit is not None
    assert heads.store == tx.commit.point
    assert set(heads.topics) == ({"a", "b"} if ALL in topics else set()) | (set(topics) - {ALL})


def test_differing_compares_both_sides() -> None:
    assert snapshot._differing({1: 5, 2: 6}, {2: 6, 3: 7, 4: 0}) == {1, 3}
