"""Inspection of changelog and topics, on each of the three database systems."""

import pytest
from sqlalchemy import create_engine, update

from pubsub_lib.core.model import EMPTY, Full, Head, Link
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.store import Store, inspection, schema
from pubsub_lib.store.inspection import START, Inspection, behind, cursor
from tests.unit.store.conftest import SETTINGS, Opener


def fill(store: Store, count: int) -> list[Link]:
    """Write transactions, every second one on two topics; returns their links in commit order."""
    links: list[Link] = []
    for i in range(count):
        with store.transaction(origin=f"api-{i % 2}") as tx:
            tx.set("t", f"k{i % 4}", i, topic="a")
            if i % 2:
                tx.set("t", f"other{i % 4}", i, topic="b")
        assert tx.commit is not None
        links += sorted(tx.commit.links, key=lambda link: link.topic)
    return links


def test_links_are_paged_in_commit_order_also_inside_a_transaction(store: Store) -> None:
    links = fill(store, 7)
    assert list(store.inspect.every_link()) == links
    assert list(store.inspect.every_link(topic="b")) == [link for link in links if link.topic == "b"]
    for i, link in enumerate(links):
        assert store.inspect.links(cursor(link), 2) == links[i + 1 : i + 3]
        assert store.inspect.links(behind(link.point.position), 100) == [
            other for other in links if other.point.position > link.point.position
        ]
    assert store.inspect.links(START, 1) == links[:1]
    assert store.inspect.newest(3) == links[-3:]
    assert store.inspect.newest(2, "b") == [link for link in links if link.topic == "b"][-2:]
    assert store.inspect.newest(100, "never") == []


def test_at_once_reads_one_snapshot_whatever_is_written_meanwhile(open_store: Opener) -> None:
    store, other = open_store(), open_store()
    links = fill(store, 5)

    def read(at: Inspection) -> tuple[list[Link], Full]:
        assert at.oldest() is not None
        with other.transaction() as tx:
            tx.set("t", "meanwhile", 1)
        other.trim(keep_links=1)
        return list(at.every_link()), at.contents()

    found, contents = store.inspect.at_once(read)
    assert found == links
    assert contents.head == links[-1].point
    assert {topic: len(each.records) for topic, each in contents.topics.items()} == {"a": 4, "b": 2}
    assert store.inspect.contents().head != contents.head


def test_oldest_returns_oldest_link_after_trimming_with_its_age(store: Store) -> None:
    assert store.inspect.oldest() is None
    links = fill(store, 5)
    oldest = store.inspect.oldest()
    assert oldest is not None
    assert oldest.link == links[0]
    assert 0 <= oldest.age < 60
    store.trim(keep_links=2)
    oldest = store.inspect.oldest()
    assert oldest is not None
    assert oldest.link == links[-3]  # whole transactions are kept


def test_head_at_returns_the_topics_head_at_a_position(store: Store) -> None:
    assert store.inspect.head_at("a", 0) == EMPTY
    links = fill(store, 4)
    mine = [link for link in links if link.topic == "b"]
    for position in range(links[-1].point.position + 2):
        wanted = EMPTY
        for link in mine:
            if link.point.position <= position:
                wanted = Head(link.point, link.count, link.digest)
        assert store.inspect.head_at("b", position) == wanted
    store.trim(keep_links=1)
    assert store.inspect.head_at("b", mine[-1].point.position) == store.topics()["b"]
    assert store.inspect.head_at("b", mine[-1].point.position - 1) is None


@pytest.mark.parametrize("window", [1, 2, 1000])
def test_versions_returns_all_changes_of_one_object(store: Store, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "WINDOW", window)
    assert list(store.inspect.versions("t", "k")) == []
    with store.transaction() as tx:
        tx.create("t", "k", "x", topic="a")
        tx.create("t", "kk", "the key k is named here", topic="a")  # its bytes contain k, too
    with store.transaction() as tx:
        tx.set("u", "k", "another table", topic="a")
    with store.transaction() as tx:
        tx.set("t", "k", "y", topic="b")  # moves the object
    with store.transaction() as tx:
        tx.delete("t", "k")
    found = [(each.change.version, each.change.action, each.link.topic) for each in store.inspect.versions("t", "k")]
    assert found == [(1, "create", "a"), (4, "delete", "a"), (5, "create", "b"), (6, "delete", "b")]
    assert [each.change.value for each in store.inspect.versions("t", "kk")] == [b'"the key k is named here"']
    store.trim(keep_links=1)
    assert [each.change.version for each in store.inspect.versions("t", "k")] == [6]


def test_versions_finds_a_key_of_any_bytes(store: Store) -> None:
    keys = ["ключ", "%_\\'\"", "k" * 512, "a\nb", "é", "e"]
    for key in keys:
        with store.transaction() as tx:
            tx.set("t", key, 1)
    for key in keys:
        assert [each.change.key for each in store.inspect.versions("t", key)] == [key]
    with pytest.raises(InvalidValueError):
        list(store.inspect.versions("t", ""))


def test_last_by_origin_returns_the_newest_link_of_each_origin_up_to_a_position(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = dict.fromkeys(("", "api-0", "api-1", "never"), 10**6)
    assert store.inspect.last_by_origin(everything) == {}
    links = fill(store, 6)
    with store.transaction() as tx:
        tx.set("t", "no origin", 1)
    found = store.inspect.last_by_origin(everything)
    mine, other = [sorted(link.point.position for link in links if link.origin == name) for name in ("api-0", "api-1")]
    assert {origin: kept.link.point.position for origin, kept in found.items()} == {
        "": tx.commit.point.position if tx.commit else 0,
        "api-0": mine[-1],
        "api-1": other[-1],
    }
    assert all(0 <= kept.age < 60 for kept in found.values())
    for read in range(mine[0] - 1, mine[-1] + 1):
        before = store.inspect.last_by_origin({"api-0": read, "api-1": other[-1]})
        expected = max((each for each in mine if each <= read), default=None)
        assert (before["api-0"].link.point.position if "api-0" in before else None) == expected
        assert before["api-1"].link.point.position == other[-1]
    monkeypatch.setattr(inspection, "RECENT", 1)
    assert list(store.inspect.last_by_origin(everything)) == [""]


def test_verify_names_rows_altered_without_the_library(store: Store, database_url: str) -> None:
    fill(store, 8)
    for topic in ("a", "b"):
        verified = store.inspect.verify(topic)
        assert verified.right
        assert verified.counted == store.topics()[topic]
    assert store.inspect.verify("never").stored == EMPTY
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(update(schema.objects).where(schema.objects.c.object_key == "k1").values(value=b'"by hand"'))
    engine.dispose()
    wrong = store.inspect.verify("a")
    assert not wrong.right
    assert [(each.table, each.key, each.value) for each in wrong.damaged] == [("t", "k1", b'"by hand"')]
    assert (wrong.damages, wrong.counted.count) == (1, wrong.stored.count)
    assert wrong.counted.digest != wrong.stored.digest
    assert store.inspect.verify("b").right


def test_inspection_needs_no_right_to_write(database_url: str, store: Store) -> None:
    links = fill(store, 2)
    with Store(database_url, settings=SETTINGS, read_only=True) as reader:
        assert list(reader.inspect.every_link()) == links
        assert reader.inspect.verify("a").right
        assert reader.inspect.last_by_origin(dict.fromkeys(("api-0", "api-1"), 10**6)).keys() == {"api-0", "api-1"}


KEYS = [
    "%",
    "A",
    "a",
    "a ",
    "a%",
    "a%1",
    "a_",
    "aB",
    "ab",
    "ab\ud7ff",
    "ab\U0010ffff",
    "ac",
    "ä",
    "\ue000",
    "\U0010ffffz",
]


def test_keys_are_listed_in_the_order_of_their_bytes_and_by_prefix(store: Store) -> None:
    with store.transaction() as tx:
        for number, key in enumerate(KEYS):
            tx.set("t", key, number, topic="b" if key == "ab" else "a")
        tx.set("T", "a", "another table")
    ordered = sorted(KEYS, key=str.encode)
    assert [each.key for each in store.inspect.keys("t")] == ordered
    for prefix in ("a", "a%", "a_", "A", "a ", "ab", "ab\ud7ff", "ä", "%", "\U0010ffff", "x"):
        expected = [each for each in ordered if each.startswith(prefix)]
        assert [each.key for each in store.inspect.keys("t", prefix=prefix)] == expected
        assert [each.key for each in store.inspect.keys("t", prefix=prefix, maximum=2)] == expected[:2]
    for maximum in range(len(ordered) + 2):  # the page size is 3
        assert [each.key for each in store.inspect.keys("t", maximum=maximum)] == ordered[:maximum]
    assert [each.key for each in store.inspect.keys("t", topic="b")] == ["ab"]
    (found,) = store.inspect.keys("t", prefix="ab", topic="b", values=True)
    assert (found.topic, found.value) == ("b", b"%d" % KEYS.index("ab"))
    assert all(each.value is None for each in store.inspect.keys("t"))


@pytest.mark.parametrize(("table", "topic", "prefix"), [("", None, ""), ("t", "", ""), ("t", None, "\0")])
def test_keys_rejects_invalid_names(table: str, topic: str | None, prefix: str, store: Store) -> None:
    with pytest.raises(InvalidValueError):
        store.inspect.keys(table, topic=topic, prefix=prefix)
