"""Pages (rule W6): of bounded size, and read again as the answer that they were made from."""

from random import Random

import msgspec
import pytest

from pubsub_lib.core.contents import contents_of
from pubsub_lib.core.model import Delta, Full, Head, Point, Record, SyncAnswer, TopicSnapshot, Want
from pubsub_lib.sync.pages import LINKS_BYTES, PAGE_BYTES, pages_of
from pubsub_lib.sync.reading import read_answer
from tests.unit.sync.answers import links, plain, random_answer

POINT = Point(9, 99)


@pytest.mark.parametrize("aged", [False, True])
def test_rule_w6_answers_are_read_as_they_were_made(aged: bool) -> None:
    sizes: list[int] = []
    for seed in range(60):
        wants, answer = random_answer(Random(seed), aged=aged)
        pages = list(pages_of(answer))
        sizes.extend(map(len, pages))
        assert plain(read_answer(pages, wants)) == plain(answer), f"seed {seed}"
    assert max(sizes) <= PAGE_BYTES + 3000
    assert any(size > PAGE_BYTES // 2 for size in sizes), "some answers have more than a page"


def test_link_larger_than_a_page_is_cut_and_put_together() -> None:
    after = Point(0, 0)
    made = [links(Random(seed), "t", after, 1)[0] for seed in range(20)]
    link = next(each for each in made if len(each.changes) == 400)
    answer = SyncAnswer(POINT, {"t": Delta([link], link.point)})
    pages = list(pages_of(answer))
    assert len(pages) > 4
    assert read_answer(pages, {"t": Want(after)}) == answer


def test_links_are_in_small_pages() -> None:
    """Other threads wait for the interpreter's lock until a page of links is full."""
    after = Point(0, 0)
    made = [each for each in links(Random(1), "t", after, 400) if len(each.changes) < 10]
    largest = max(len(msgspec.msgpack.encode(each)) for each in made)
    answer = SyncAnswer(POINT, {"t": Delta(made, made[-1].point)})
    sizes = [len(page) for page in pages_of(answer)][2:-2]
    assert len(sizes) > 2
    assert all(LINKS_BYTES // 2 < size <= LINKS_BYTES + largest for size in sizes)


def test_object_larger_than_a_page_has_a_page_of_its_own() -> None:
    large = b'"%b"' % (b"x" * (2 * PAGE_BYTES))
    records = [Record("t", "a", 1, b"1"), Record("t", "b", 2, large), Record("t", "c", 3, b"3")]
    answer = SyncAnswer(POINT, {"t": Full({"t": TopicSnapshot(Head(POINT, 3, 0), records)}, POINT)})
    pages = list(pages_of(answer))
    assert sum(len(page) > PAGE_BYTES for page in pages) == 1
    assert plain(read_answer(pages, {"t": Want()})) == plain(answer)


def test_contents_of_the_store_are_sent_table_by_table() -> None:
    records = [Record(f"table-{number % 2}", f"k{number}", number, b"1") for number in range(6)]
    contents = contents_of("t", records)
    answer = SyncAnswer(POINT, {"t": Full({"t": TopicSnapshot(Head(POINT, 6, 0), contents)}, POINT)})
    pages = list(pages_of(answer))
    assert [msgspec.msgpack.decode(page)[:2] for page in pages[3:5]] == [[5, "table-0"], [5, "table-1"]]
    assert len(contents) == 6, "the contents were not taken"
