"""The byte form of a sync's answer: pages of bounded size, each one msgpack array (rule W6).

In this order: a :class:`Header`; for each chain a :class:`ChainPage` and what belongs to it (heads and links of a
delta; for each topic of a full answer a :class:`TopicPage`, records and changes); an :class:`End`. The records of a
topic may be of an older point; then the links that lead from there to its head follow them. So no page needs the whole
answer in memory, at either end, and an answer that was cut off is noticed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from pubsub_lib.core.envelope import Uuid, part_of
from pubsub_lib.core.model import (
    MAX_NAME_BYTES,
    AnswerAge,
    Change,
    Delta,
    Full,
    Head,
    Incomplete,
    Key,
    Link,
    Name,
    Point,
    Position,
    Record,
    Recorded,
    SyncAnswer,
    TopicSnapshot,
)
from pubsub_lib.sync.question import MAJOR, MINOR

PAGE_BYTES: Final = 256 * 1024
"""Bytes above which no further item is put into a page. A page exceeds it by at most one item."""
LINKS_BYTES: Final = 16 * 1024
"""The same for a page of links. The steps for each link are in Python, where other threads wait until a page is full:
about 0.1 ms with this size."""
ITEM_BYTES: Final = 64
"""Of an item beside its value and its key, at most."""
_HEADS: Final = 1000
"""Heads in one page: less than ``PAGE_BYTES`` also with the longest names."""
_UNKNOWN: Final = AnswerAge(float("inf"), float("inf"))

Kind = Literal["delta", "incomplete", "full"]
T = TypeVar("T", Record, Change)


class Header(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=0):
    """The first page. ``aged``: each chain states its age (a relay's answer); else the primary database answered."""

    major: int
    minor: int
    store: Point
    store_id: Uuid | None
    aged: bool


class ChainPage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """The begin of one chain's answer. ``age``, ``least`` and ``applied``: as :class:`.AnswerAge`, in an answer with
    ages. ``head`` is nil for ``incomplete``.
    """

    chain: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
    kind: Kind
    head: Point | None
    age: float = 0.0
    least: float = 0.0
    applied: float = 0.0
    contains_known: bool | None = None
    recorded: Recorded | None = None


class HeadsPage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Heads of a delta's topics."""

    heads: dict[Name, Head]


class LinksPage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """Links of a delta. ``open``: the last one's changes continue in the next page, in a link that is otherwise equal
    to it and that comes first there.
    """

    links: list[Link]
    open: bool = False


class TopicPage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """The begin of one topic of a full answer. ``buckets``: only the objects of these follow; nil: all objects."""

    topic: Name
    head: Head
    buckets: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None


class RecordsPage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """Objects of one table of the topic: keys, versions, values."""

    table: Name
    rows: list[tuple[Key, Position, bytes]]


class ChangesPage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    """Changes of the topic's objects in other buckets."""

    changes: list[Change]


class End(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7):
    """The last page. ``pages``: how many came before."""

    pages: Position


Page = Header | ChainPage | HeadsPage | LinksPage | TopicPage | RecordsPage | ChangesPage | End

encode_page: Final = msgspec.msgpack.Encoder().encode


def pages_of(answer: SyncAnswer) -> Iterator[bytes]:
    """The pages of an answer, one after the other."""
    count = 0
    for page in _pages(answer):
        yield encode_page(page)
        count += 1
    yield encode_page(End(count))


def _pages(answer: SyncAnswer) -> Iterator[Page]:
    yield header_page(answer)
    for chain, part in answer.chains.items():
        yield from chain_pages(answer, chain, part)


def header_page(answer: SyncAnswer) -> Header:
    """The first page of an answer."""
    return Header(MAJOR, MINOR, answer.store, answer.store_id or None, answer.ages is not None)


def chain_pages(answer: SyncAnswer, chain: str, part: Delta | Incomplete | Full) -> Iterator[Page]:
    """All pages of one chain's part."""
    yield begin_page(answer, chain, part)
    if isinstance(part, Delta):
        heads = list(part.heads.items())
        for start in range(0, len(heads), _HEADS):
            yield HeadsPage(dict(heads[start : start + _HEADS]))
        yield from link_pages(part.links)
    elif isinstance(part, Full):
        for topic, snapshot in part.topics.items():
            yield from _topic(topic, snapshot)


def begin_page(answer: SyncAnswer, chain: str, part: Delta | Incomplete | Full) -> ChainPage:
    """The first page of a chain in this answer."""
    age = None if answer.ages is None else answer.ages.get(chain, _UNKNOWN)
    ages = (0.0, 0.0, 0.0) if age is None else (age.age, age.least, age.applied)
    if isinstance(part, Incomplete):
        return ChainPage(chain, "incomplete", None, *ages)
    if isinstance(part, Delta):
        return ChainPage(chain, "delta", part.head, *ages)
    return ChainPage(chain, "full", part.head, *ages, part.contains_known, part.recorded)


def link_pages(links: Iterable[Link]) -> Iterator[LinksPage]:
    """The pages of these links. A link that is larger than a page gets pages of its own."""
    page: list[Link] = []
    room = LINKS_BYTES
    for link in links:
        size = _size(link.changes) + 4 * ITEM_BYTES + len(link.topic) + len(link.origin) + len(link.trace)
        if page and size > room:
            yield LinksPage(page)
            page, room = [], LINKS_BYTES
        if size > PAGE_BYTES:
            *parts, last = cut(link.changes)
            yield from (LinksPage([part_of(link, part)], open=True) for part in parts)
            page.append(part_of(link, last, link.trace))
            room -= _size(last)
        else:
            page.append(link)
            room -= size
    if page:
        yield LinksPage(page)


def _topic(topic: str, snapshot: TopicSnapshot) -> Iterator[Page]:
    yield topic_page(topic, snapshot)
    yield from record_pages(snapshot.records)
    yield from change_pages(snapshot.changes)


def topic_page(topic: str, snapshot: TopicSnapshot) -> TopicPage:
    """The first page of a topic of a full answer."""
    return TopicPage(topic, snapshot.head, None if snapshot.buckets is None else sorted(snapshot.buckets))


def change_pages(changes: Sequence[Change]) -> Iterator[ChangesPage]:
    """The pages of a topic's changes in other buckets."""
    return map(ChangesPage, cut(changes))


def record_pages(records: Iterable[Record]) -> Iterator[RecordsPage]:
    """The pages of a topic's objects, table by table."""
    for table, each_of in _by_table(records).items():
        for part in cut(each_of):
            yield RecordsPage(table, [(each.key, each.version, each.value) for each in part])


def _by_table(records: Iterable[Record]) -> Mapping[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for each in records:
        found.setdefault(each.table, []).append(each)
    return found


def cut(items: Sequence[T]) -> Iterator[list[T]]:
    """The items in parts of a page each."""
    part: list[T] = []
    room = PAGE_BYTES
    for each in items:
        size = _item_size(each)
        if part and size > room:
            yield part
            part, room = [], PAGE_BYTES
        part.append(each)
        room -= size
    if part:
        yield part


def _size(changes: Iterable[Change]) -> int:
    return sum(map(_item_size, changes))


def _item_size(item: Record | Change) -> int:
    """About the size of an item in a page; not smaller for names in ASCII."""
    return ITEM_BYTES + len(item.table) + len(item.key) + (0 if item.value is None else len(item.value))
