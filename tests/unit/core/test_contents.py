import pytest

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.contents import Contents, Loading, contents_of
from pubsub_lib.core.digest import MASK, fingerprint
from pubsub_lib.core.model import Head, Point, Record, TopicSnapshot

ROWS = [
    ("t", "a", "k1", 3, b"1"),
    ("u", "a", "k2", 1, b"2"),
    ("t", "b", "k1", 2, b"3"),
    ("t", "a", "k3", 4, b"4"),
]


def refuse(table: str, key: str, topic: str, value: object) -> bytes:
    raise ValueError(f"{table} {key} {topic} {value!r}")


def loaded(*rows: tuple[str, str, str, int, object]) -> Loading:
    loading = Loading(("t", "u"), refuse, LookupError)
    loading.read([list(rows[:2]), list(rows[2:])])
    return loading


def total(*records: Record) -> int:
    return sum(fingerprint(each.table, each.key, each.version, each.value) for each in records) & MASK


def test_loading_gives_each_topic_its_objects_with_their_fingerprints() -> None:
    loading = loaded(*ROWS)
    contents = loading.contents("t")
    expected = [Record("a", "k1", 3, b"1"), Record("a", "k3", 4, b"4"), Record("b", "k1", 2, b"3")]
    assert contents == expected
    assert len(contents) == 3
    assert contents[0] == expected[0]
    assert contents[1:] == expected[1:]
    assert contents.digest == total(*expected)
    assert {each.fingerprint for each in contents.entries()} == {total(each) for each in expected}
    assert {each.topic for each in contents.entries()} == {"t"}
    assert list(loading.contents("u")) == [Record("a", "k2", 1, b"2")]


def test_contents_of_a_topic_without_rows_are_empty() -> None:
    contents = loaded().contents("t")
    assert not contents
    assert contents.digest == 0


def test_loading_counts_a_repeated_key_twice_in_the_digest_only() -> None:
    """A damaged file can have a key twice: the digest then differs from the head's, and the topic is repaired."""
    contents = loaded(("t", "a", "k", 1, b"1"), ("t", "a", "k", 2, b"2")).contents("t")
    assert contents == [Record("a", "k", 2, b"2")]
    assert contents.digest == total(Record("a", "k", 1, b"1"), Record("a", "k", 2, b"2"))
    assert not Cache().replace("t", TopicSnapshot(Head(Point(2, 1), 1, total(*contents)), contents)).intact


def test_loading_refuses_unknown_topics_and_other_types_of_values() -> None:
    with pytest.raises(LookupError, match="other"):
        loaded(("other", "a", "k", 1, b"1"))
    with pytest.raises(ValueError, match="a k t 'text'"):
        loaded(("t", "a", "k", 1, "text"))


def test_contents_are_taken_once() -> None:
    """The cache changes the entries that it takes: a second owner would see these changes."""
    contents = loaded(*ROWS).contents("t")
    snapshot = TopicSnapshot(Head(Point(4, 1), 3, contents.digest), contents)
    assert Cache().replace("t", snapshot).intact
    for use in (len, list, Contents.take, lambda each: Cache().replace("t", snapshot)):
        with pytest.raises(RuntimeError, match="handed over"):
            use(contents)


def test_contents_of_records_leaves_the_records_alone() -> None:
    records = [Record("a", "k", 1, b"1")]
    assert contents_of("t", records).take()
    assert contents_of("t", records) == records
    contents = contents_of("t", records)
    assert contents_of("t", contents) is contents
    assert contents != 5
