from collections.abc import Callable, Sequence

import pytest

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.contents import Contents, Row, contents_of, read_contents, read_records
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


def pages(rows: Sequence[tuple[str, str, str, int, object]]) -> list[list[Row]]:
    placed: list[Row] = [((topic, table), key, version, value) for topic, table, key, version, value in rows]
    return [placed[:2], placed[2:]]


def loaded(*rows: tuple[str, str, str, int, object]) -> dict[str, Contents]:
    return read_contents(("t", "u"), pages([*rows]), None, refuse, LookupError)


def total(*records: Record) -> int:
    return sum(fingerprint(each.table, each.key, each.version, each.value) for each in records) & MASK


def test_contents_have_the_objects_of_each_topic_with_their_fingerprints() -> None:
    found = loaded(*ROWS)
    contents = found["t"]
    expected = [Record("a", "k1", 3, b"1"), Record("a", "k3", 4, b"4"), Record("b", "k1", 2, b"3")]
    assert contents == expected
    assert len(contents) == 3
    assert contents[0] == expected[0]
    assert contents[1:] == expected[1:]
    assert contents.digest == total(*expected)
    entries = [each for objects in contents.tables.values() for each in objects.values()]
    assert {each.fingerprint for each in entries} == {total(each) for each in expected}
    assert contents.goes_back(2)
    assert not contents.goes_back(1)
    assert {each.topic for each in entries} == {"t"}
    assert list(found["u"]) == [Record("a", "k2", 1, b"2")]


def test_contents_of_a_topic_without_rows_are_empty() -> None:
    contents = loaded()["t"]
    assert not contents
    assert contents.digest == 0


def test_contents_count_a_repeated_key_twice_in_the_digest_only() -> None:
    """A damaged file can have a key twice: the digest then differs from the head's, and the topic is repaired."""
    contents = loaded(("t", "a", "k", 1, b"1"), ("t", "a", "k", 2, b"2"))["t"]
    assert contents == [Record("a", "k", 2, b"2")]
    assert contents.digest == total(Record("a", "k", 1, b"1"), Record("a", "k", 2, b"2"))
    assert not Cache().replace("t", TopicSnapshot(Head(Point(2, 1), 1, total(*contents)), contents)).intact


@pytest.mark.parametrize("read", [read_contents, read_records])
def test_unknown_topics_and_other_types_of_values_are_refused(read: Callable[..., object]) -> None:
    with pytest.raises(LookupError, match="other"):
        read(("t",), pages([("other", "a", "k", 1, b"1")]), None, refuse, LookupError)
    with pytest.raises(ValueError, match="a k t 'text'"):
        read(("t",), pages([("t", "a", "k", 1, "text")]), None, refuse, LookupError)


def test_rows_of_one_table_begin_with_their_topic() -> None:
    rows = [[("t", "k1", 3, b"1"), ("u", "k2", 1, b"2")], [("t", "k3", 4, b"4")]]
    records = read_records(("t", "u", "v"), rows, "a", refuse, LookupError)
    assert records == {
        "t": [Record("a", "k1", 3, b"1"), Record("a", "k3", 4, b"4")],
        "u": [Record("a", "k2", 1, b"2")],
        "v": [],
    }
    contents = read_contents(("t", "u", "v"), rows, "a", refuse, LookupError)
    assert contents == records
    assert contents["t"].digest == total(*records["t"])


def test_records_are_those_of_the_contents() -> None:
    assert read_records(("t", "u"), pages(ROWS), None, refuse, LookupError) == {
        topic: sorted(contents, key=lambda each: each.version)
        if topic == "u"
        else [contents[0], contents[2], contents[1]]
        for topic, contents in loaded(*ROWS).items()
    }


@pytest.mark.parametrize("count", [499, 500, 501, 1001])
def test_contents_of_any_number_of_objects_are_complete(count: int) -> None:
    records = [Record("a", f"k{number}", number + 1, b"%d" % number) for number in range(count)]
    contents = contents_of("t", records)
    assert contents == records
    assert contents.digest == total(*records)


def test_contents_are_taken_once() -> None:
    """The cache changes the entries that it takes: a second owner would see these changes."""
    contents = loaded(*ROWS)["t"]
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
