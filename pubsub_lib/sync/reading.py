"""Reads the pages of a sync's answer, which may hold any bytes, and checks that they fit the question."""

from collections.abc import Iterable, Mapping

import msgspec

from pubsub_lib.core.contents import contents_of
from pubsub_lib.core.envelope import part_of
from pubsub_lib.core.model import (
    ALL,
    NO_STORE,
    AnswerAge,
    Change,
    Delta,
    Full,
    Head,
    Incomplete,
    Link,
    Point,
    Record,
    Recorded,
    SyncAnswer,
    TopicSnapshot,
    Want,
)
from pubsub_lib.errors import FrameError
from pubsub_lib.sync.checks import advanced, check, check_changes, check_link, checked_age, foreign, is_bad_key
from pubsub_lib.sync.pages import (
    ChainPage,
    ChangesPage,
    End,
    Header,
    HeadsPage,
    LinksPage,
    Page,
    RecordsPage,
    TopicPage,
)
from pubsub_lib.sync.question import check_major, unreadable

_decode = msgspec.msgpack.Decoder(Page).decode


def read_answer(
    pages: Iterable[bytes], wants: Mapping[str, Want], arrived: dict[str, Full] | None = None
) -> SyncAnswer:
    """The answer to these wants. ``arrived`` gets each chain's objects when all of them have come. Raises FrameError
    for pages that no source of this library sends: ``truncated`` (they end too early), ``version`` (another major
    version), ``foreign`` (anything else); and what ``pages`` raises.
    """
    reader = _Reader(wants, {} if arrived is None else arrived)
    for data in pages:
        if reader.answer is not None:
            raise foreign("a page follows its end")
        reader.add(data)
    if reader.answer is None:
        raise FrameError("a sync's answer was cut off: its last page is missing", "truncated")
    return reader.answer


class _Topic:
    """One topic of a full answer, as far as it was read."""

    def __init__(self, page: TopicPage) -> None:
        self.page = page
        self.records: list[Record] = []
        self.changes: list[Change] = []


class _Chain:
    """One chain's answer, as far as it was read."""

    def __init__(self, page: ChainPage, want: Want) -> None:
        self.page = page
        self.want = want
        self.heads: dict[str, Head] = {}
        self.links: list[Link] = []
        self.parts: list[Link] = []
        """Of a link whose last part is still to come."""
        self.topics: dict[str, TopicSnapshot] = {}
        self.topic: _Topic | None = None

    def add(self, page: Page) -> None:
        """A further page of this chain."""
        kind = self.page.kind
        if isinstance(page, HeadsPage) and kind == "delta":
            for topic in page.heads:
                check("topic", topic)
            self.heads.update(page.heads)
        elif isinstance(page, LinksPage) and (kind == "delta" or self._is_first()):
            self._add_links(page)
        elif isinstance(page, TopicPage) and kind == "full":
            self._end_topic()
            check("topic", page.topic)
            self.topic = _Topic(page)
        elif isinstance(page, RecordsPage) and self.topic is not None and not (self.links or self.parts):
            check("table", page.table)
            if any(is_bad_key(key) for key, _, _ in page.rows):
                raise foreign("a key is too long or holds a NUL")
            self.topic.records.extend([Record(page.table, *row) for row in page.rows])
        elif isinstance(page, ChangesPage) and self.topic is not None and self.topic.page.buckets is not None:
            check_changes(page.changes)
            self.topic.changes.extend(page.changes)
        else:
            raise foreign(f"a {type(page).__name__} is out of place")

    def _is_first(self) -> bool:
        """Whether this is a topic of a first sync, whose objects may be followed by links."""
        return self.topic is not None and self.page.chain != ALL and self.want == Want()

    def _add_links(self, page: LinksPage) -> None:
        if not page.links:
            raise foreign("a page of links is empty")
        links = list(page.links)
        for link in links:
            check_link(link)
        if self.parts:
            begin, last = self.parts[0], links[0]
            if part_of(begin, []) != part_of(last, []):
                raise foreign("a link is not continued")
            self.parts.append(last)
            if page.open and len(links) == 1:
                return
            links[0] = part_of(last, [each for part in self.parts for each in part.changes], last.trace)
            self.parts = []
        if page.open:
            self.parts = [links.pop()]
        self.links.extend(links)

    def ended(self) -> Delta | Incomplete | Full:
        """The whole part. Raises FrameError when it is not whole, or contradicts itself or the question."""
        head, asks_delta = self.page.head, self.want.after is not None
        if (self.page.kind == "full") == asks_delta or (head is None) != (self.page.kind == "incomplete"):
            raise foreign("it is of another kind than its question")
        if head is None:
            return Incomplete()
        if self.page.kind == "delta":
            if self.parts:
                raise foreign("a link is not complete")
            self._check_delta(head)
            return Delta(self.links, head, self.heads)
        self._end_topic()
        self._check_topics(head)
        return Full(self.topics, head, self.page.contains_known, self._recorded())

    def _recorded(self) -> Recorded | None:
        """What the store has at the point that is to be judged. A record of another point is of no use."""
        recorded, judged = self.page.recorded, self.want.judged
        return None if recorded is None or judged is None or recorded.point != judged[1] else recorded

    def _end_topic(self) -> None:
        topic, self.topic = self.topic, None
        if topic is None:
            return
        page, want = topic.page, self.want
        if page.topic in self.topics:
            raise foreign("a topic comes twice")
        buckets = None if page.buckets is None else frozenset(page.buckets)
        if buckets is not None and want.buckets is None:
            raise foreign("only some objects of a topic come although all are wanted")
        if want.buckets is None and want.known is None:
            # As a store reads them: the entries are made here, without the replica's lock.
            records = self._advanced(topic) if self.links or self.parts else topic.records
            self.topics[page.topic] = TopicSnapshot(page.head, contents_of(page.topic, records))
        else:
            self.topics[page.topic] = TopicSnapshot(page.head, topic.records, buckets, topic.changes)

    def _advanced(self, topic: _Topic) -> list[Record]:
        """The objects after the links that follow them."""
        if self.parts:
            raise foreign("a link is not complete")
        links, self.links = self.links, []
        return advanced(topic.page.topic, topic.records, links, topic.page.head.point)

    def _check_delta(self, head: Point) -> None:
        everything = self.page.chain == ALL
        if not everything and any(topic != self.page.chain for topic in self.heads):
            raise foreign("a delta has another topic's head")
        if not self.links:
            return
        first = self.links[0]
        if (first.tx_prev if everything else first.prev) != self.want.after or self.links[-1].point != head:
            raise foreign("a delta does not lead from the wanted point to its head")
        position = -1
        for link in self.links:
            if not everything and (link.topic != self.page.chain or link.point.position == position):
                raise foreign("a delta has a link that is not of its chain")
            if link.point.position < position:
                raise foreign("a delta's links are not in order")
            position = link.point.position

    def _check_topics(self, head: Point) -> None:
        if self.page.chain == ALL:
            if any(each.head.point.position > head.position for each in self.topics.values()):
                raise foreign("a topic's head is above that of the whole")
        elif set(self.topics) != {self.page.chain} or self.topics[self.page.chain].head.point != head:
            raise foreign("a topic's objects are missing, or those of another one, or of another point")


class _Reader:
    """The state of one answer between its pages."""

    def __init__(self, wants: Mapping[str, Want], arrived: dict[str, Full]) -> None:
        self.answer: SyncAnswer | None = None
        self._arrived = arrived
        self._wants = wants
        self._header: Header | None = None
        self._pages = 0
        self._chain: _Chain | None = None
        self._chains: dict[str, Delta | Incomplete | Full] = {}
        self._ages: dict[str, AnswerAge] = {}

    def add(self, data: bytes) -> None:
        if self._header is None:
            check_major(data, 2, "answer")
        try:
            page = _decode(data)
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
            raise unreadable("a sync's answer", error) from error
        if self._header is None or isinstance(page, Header):
            self._begin(page)
        elif isinstance(page, ChainPage):
            self._end_chain()
            self._begin_chain(page, self._header)
        elif isinstance(page, End):
            self._end(page, self._header)
        elif self._chain is None:
            raise foreign(f"a {type(page).__name__} belongs to no chain")
        else:
            self._chain.add(page)
        self._pages += 1

    def _begin(self, page: Page) -> None:
        if self._header is not None or not isinstance(page, Header):
            raise foreign("its first page alone must be the header")
        self._header = page

    def _begin_chain(self, page: ChainPage, header: Header) -> None:
        want = self._wants.get(page.chain)
        if want is None or page.chain in self._chains:
            raise foreign("a chain was not asked for, or comes twice")
        if header.aged:
            self._ages[page.chain] = AnswerAge(*map(checked_age, (page.age, page.least, page.applied)))
        self._chain = _Chain(page, want)

    def _end_chain(self) -> None:
        chain, self._chain = self._chain, None
        if chain is not None:
            self._chains[chain.page.chain] = part = chain.ended()
            if isinstance(part, Full):
                self._arrived[chain.page.chain] = part

    def _end(self, page: End, header: Header) -> None:
        self._end_chain()
        if page.pages != self._pages:
            raise foreign(f"it has {self._pages} pages before its end but names {page.pages}")
        missing = self._wants.keys() - self._chains.keys()
        if missing and not header.aged:
            raise foreign(f"it lacks {len(missing)} of the wanted topics")
        ages = self._ages if header.aged else None
        self.answer = SyncAnswer(header.store, self._chains, header.store_id or NO_STORE, ages)
