"""Hostile and inconsistent answers (rule W6): each is refused with a typed error."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from pubsub_lib.core.contents import Contents
from pubsub_lib.core.model import ALL, Delta, Full, Point, Record, Recorded, SyncAnswer, Want
from pubsub_lib.errors import FrameError
from pubsub_lib.sync.pages import pages_of
from pubsub_lib.sync.reading import read_answer
from tests.unit.sync.answers import random_answer

HEADER = [0, 1, 0, [9, 99], None, False]
AGED = [0, 1, 0, [9, 99], b"i" * 16, True]
AFTER, HEAD = [3, 33], [9, 99]
LINK = ["t", AFTER, HEAD, [["lport", "p1", "set", 9, b"1"]], 1, 5, AFTER, 1]
DELTA = [1, "t", "delta", HEAD]
FULL = [1, "t", "full", HEAD]
RECORDED = [AFTER, True, 1, 5]
"""Of the point that "judged" asks for."""
TOPIC = [4, "t", [HEAD, 1, 5], None]
RECORDS = [5, "lport", [["p1", 9, b"1"]]]
WANTS = {
    "delta": {"t": Want(Point(3, 33))},
    "full": {"t": Want()},
    "again": {"t": Want(known=Point(3, 33))},
    "repair": {"t": Want(buckets={1: 1})},
    "judged": {"t": Want(buckets={1: 1}, judged=("t", Point(3, 33)))},
    "all": {ALL: Want()},
    "all_delta": {ALL: Want(Point(3, 33))},
}


def read(wants: str, *pages: list[Any], end: int | None = None) -> SyncAnswer:
    whole = [*pages, [7, len(pages) if end is None else end]]
    return read_answer(map(msgspec.msgpack.encode, whole), WANTS[wants])


def edited(page: list[Any], at: int, value: object) -> list[Any]:
    return [*page[:at], value, *page[at + 1 :]]


def test_links_after_the_objects_of_a_topic_are_applied_to_them() -> None:
    changes = [
        ["lport", "p1", "delete", 8, None],
        ["lport", "p2", "set", 9, b"2"],
        ["lport", "gone", "delete", 9, None],
    ]
    part = read("full", HEADER, FULL, TOPIC, RECORDS, [3, [edited(LINK, 3, changes)]]).chains["t"]
    assert list(part.topics["t"].records) == [Record("lport", "p2", 9, b"2")]  # type: ignore[union-attr]


def test_good_pages_are_read() -> None:
    assert read("delta", HEADER, DELTA, [2, {"t": [HEAD, 1, 5]}], [3, [LINK]]).chains["t"].links[0].topic == "t"  # type: ignore[union-attr]
    full = read("full", HEADER, FULL, TOPIC, RECORDS).chains["t"]
    assert [each.key for each in full.topics["t"].records] == ["p1"]  # type: ignore[union-attr]
    assert isinstance(full.topics["t"].records, Contents), "a first sync's entries are made here"  # type: ignore[union-attr]
    assert read("full", AGED).chains == {}, "a relay may have nothing of it"
    judged = read("judged", HEADER, [*FULL, 0.0, 0.0, 0.0, None, RECORDED], TOPIC).chains["t"]
    assert judged.recorded == Recorded(Point(3, 33), True, 1, 5)  # type: ignore[union-attr]
    for wants, record in (("full", RECORDED), ("judged", [[3, 34], True, 1, 5])):
        other = read(wants, HEADER, [*FULL, 0.0, 0.0, 0.0, None, record], TOPIC).chains["t"]
        assert other.recorded is None, "not what was asked for"  # type: ignore[union-attr]
    assert read("repair", HEADER, FULL, edited(TOPIC, 3, [1]), RECORDS, [6, [["lport", "q", "delete", 8, None]]]).chains


@pytest.mark.parametrize(
    ("wants", "pages"),
    [
        ("full", [HEADER]),  # the primary must answer everything
        ("full", [FULL, TOPIC]),  # no header
        ("full", [HEADER, HEADER, FULL, TOPIC]),
        ("full", [HEADER, TOPIC]),  # of no chain
        ("full", [HEADER, FULL]),  # no topic
        ("full", [HEADER, FULL, TOPIC, TOPIC]),
        ("full", [HEADER, FULL, TOPIC, FULL, TOPIC]),
        ("full", [HEADER, FULL, RECORDS]),  # before the topic
        ("full", [HEADER, FULL, edited(TOPIC, 1, "u")]),
        ("full", [HEADER, FULL, edited(TOPIC, 2, [[8, 99], 1, 5])]),  # at another point
        ("full", [HEADER, FULL, edited(TOPIC, 3, [1])]),  # some buckets, although all objects are wanted
        ("full", [HEADER, FULL, TOPIC, [6, []]]),  # changes without buckets
        ("full", [HEADER, edited(FULL, 1, "u"), edited(TOPIC, 1, "u")]),  # not asked for
        ("full", [HEADER, edited(FULL, 3, None), TOPIC]),
        ("full", [HEADER, DELTA]),  # another kind
        ("full", [HEADER, edited(DELTA, 2, "incomplete")]),
        ("full", [HEADER, edited(DELTA, 2, "other")]),
        ("full", [HEADER, FULL, TOPIC, [3, [LINK]], RECORDS]),  # objects after the links that change them
        ("full", [HEADER, FULL, [3, [LINK]], TOPIC]),
        ("full", [HEADER, FULL, TOPIC, [3, [edited(LINK, 0, "u")]]]),
        ("full", [HEADER, FULL, TOPIC, [3, [edited(LINK, 2, [8, 99])]]]),  # not to the head
        ("full", [HEADER, FULL, TOPIC, [3, [LINK], True]]),
        ("again", [HEADER, FULL, TOPIC, [3, [LINK]]]),  # only in a first sync
        ("repair", [HEADER, FULL, edited(TOPIC, 3, [1]), [3, [LINK]]]),
        ("all", [HEADER, edited(FULL, 1, ""), TOPIC, [3, [LINK]]]),
        ("full", [HEADER, FULL, TOPIC, edited(RECORDS, 1, "a\0b")]),
        ("full", [HEADER, FULL, TOPIC, edited(RECORDS, 2, [["a\0b", 1, b"1"]])]),
        ("full", [HEADER, FULL, TOPIC, edited(RECORDS, 2, [["ü" * 300, 1, b"1"]])]),
        ("full", [HEADER, FULL, TOPIC, edited(RECORDS, 2, [["a", -1, b"1"]])]),
        ("full", [HEADER, FULL, TOPIC, edited(RECORDS, 2, [["a", 1, None]])]),
        ("full", [AGED, [*FULL, float("nan"), 0.0, 0.0], TOPIC]),
        ("full", [AGED, [*FULL, float("-inf"), 0.0, 0.0], TOPIC]),
        ("full", [AGED, [*FULL, 1e300, 0.0, 0.0], TOPIC]),
        ("repair", [HEADER, FULL, edited(TOPIC, 3, [256])]),
        ("repair", [HEADER, FULL, edited(TOPIC, 3, [1]), [6, [["lport", "q", "delete", 8, b"1"]]]]),
        ("repair", [HEADER, FULL, edited(TOPIC, 3, [1]), [6, [["lport", "q", "set", 8, None]]]]),
        ("all", [HEADER, edited(FULL, 1, ""), edited(TOPIC, 2, [[10, 1], 1, 5])]),  # above the whole
        ("delta", [HEADER, FULL, TOPIC]),
        ("delta", [HEADER, edited(DELTA, 2, "incomplete")]),  # with a head
        ("delta", [HEADER, DELTA, [2, {"u": [HEAD, 1, 5]}]]),
        ("delta", [HEADER, DELTA, [2, {"t\0": [HEAD, 1, 5]}]]),
        ("delta", [HEADER, DELTA, [3, []]]),
        ("delta", [HEADER, DELTA, [3, [edited(LINK, 0, "u")]]]),
        ("delta", [HEADER, DELTA, [3, [edited(LINK, 1, [2, 2])]]]),  # does not begin at the wanted point
        ("delta", [HEADER, DELTA, [3, [edited(LINK, 2, [9, 98])]]]),  # does not end at the head
        ("delta", [HEADER, DELTA, [3, [LINK, LINK]]]),
        ("delta", [HEADER, DELTA, [3, [edited(LINK, 1, [9, 99])]]]),
        ("delta", [HEADER, DELTA, [3, [[*LINK, "", float("inf")]]]]),
        ("delta", [HEADER, DELTA, [3, [LINK], True]]),  # not continued
        ("delta", [HEADER, DELTA, [3, [LINK], True], [3, [edited(LINK, 4, 2)]]]),  # by another one
        ("all_delta", [HEADER, edited(DELTA, 1, ""), [3, [edited(LINK, 6, [2, 2])]]]),
        ("all_delta", [HEADER, edited(DELTA, 1, ""), [3, [edited(LINK, 2, [10, 1]), LINK]]]),
        ("full", [HEADER, FULL, TOPIC, [8, 1]]),  # no such page
        ("full", [HEADER, FULL, TOPIC, {"a": 1}]),
        ("full", [edited(HEADER, 4, b"short"), FULL, TOPIC]),
    ],
)
def test_inconsistent_answer_is_foreign(wants: str, pages: list[Any]) -> None:
    with pytest.raises(FrameError) as caught:
        read(wants, *pages)
    assert caught.value.reason == "foreign", caught.value


def test_answer_of_another_major_version_is_named() -> None:
    with pytest.raises(FrameError, match="has the version 2, this library uses 1") as caught:
        read("full", edited(HEADER, 1, 2))
    assert caught.value.reason == "version"


@pytest.mark.parametrize("aged", [False, True])
def test_answer_without_its_last_pages_is_truncated_or_foreign(aged: bool) -> None:
    wants, answer = random_answer(Random(9), aged=aged)
    assert {type(each) for each in answer.chains.values()} == {Delta, Full}
    pages = list(pages_of(answer))
    assert len(pages) > 10, "so that an answer is cut inside links and objects, too"
    for count in range(len(pages)):
        with pytest.raises(FrameError) as caught:
            read_answer(pages[:count], wants)
        assert caught.value.reason == "truncated"
        if 0 < count < len(pages) - 1:  # a lost page is found by the number of the last one, or as out of place
            with pytest.raises(FrameError):
                read_answer([*pages[:count], *pages[count + 1 :]], wants)


def test_page_behind_the_end_is_foreign() -> None:
    wants, answer = random_answer(Random(9), aged=False)
    pages = list(pages_of(answer))
    with pytest.raises(FrameError, match="a page follows its end"):
        read_answer([*pages, pages[-1]], wants)


def test_error_of_the_pages_is_passed_on() -> None:
    def broken() -> Any:
        yield msgspec.msgpack.encode(HEADER)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        read_answer(broken(), WANTS["full"])


def test_each_page_that_is_cut_off_is_truncated() -> None:
    page = msgspec.msgpack.encode(HEADER)
    make: Callable[[int], list[bytes]] = lambda size: [page[:size]]  # noqa: E731
    for size in range(len(page)):
        with pytest.raises(FrameError) as caught:
            read_answer(make(size), WANTS["full"])
        assert caught.value.reason == "truncated"
