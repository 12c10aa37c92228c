"""The stored links: deltas of chosen topics, all links in commit order, trimming.

A delta from a point is complete if its first link's previous point is that point, or, when there is no link, if the
head equals that point (rule S3). This one check covers trimming, restored backups and fail-overs alike.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, func, select

from pubsub_lib.core.model import ALL, EMPTY, ZERO, Delta, Head, Incomplete, Link, Point, Recorded
from pubsub_lib.failpoints import hit
from pubsub_lib.store import rows, schema, statements
from pubsub_lib.store.engine import BINARY_RESULT
from pubsub_lib.store.executor import Executor
from pubsub_lib.store.prepared import Call
from pubsub_lib.store.types import NowMicroseconds

_NEXT: Final = statements.next_links(schema.links.c)
_BOUNDED: Final = statements.bounded_links(schema.links.c)
_BATCH = 1000
"""Links that trimming removes in one transaction, so that writers never wait long."""


def topic_delta(
    connection: Connection, topic: str, after: Point, head: Head, page: int, maximum: int
) -> Delta | Incomplete:
    """The links of one topic after a point, read in pages inside the caller's snapshot. At the head none can follow,
    and no query is needed: with many topics nearly all are there. None follows a point beyond the head either.
    """
    hit("sync.during_delta")
    if after == head.point:
        return Delta([], after, {topic: head})
    if after.position >= head.point.position:
        return Incomplete()
    links = schema.links.c
    found: list[Link] = []
    known = after
    while True:
        query = (
            select(schema.links)
            .where(links.topic == topic, links.position > known.position)
            .order_by(links.position)
            .limit(page)
        )
        got = [rows.link(row) for row in connection.execute(query, execution_options=BINARY_RESULT)]
        if got and not found and got[0].prev != after:
            return Incomplete()
        found += got
        if len(found) > maximum:
            return Incomplete()
        if got:
            known = got[-1].point
        hit("sync.during_delta")
        if len(got) < page:
            break
    return Delta(found, known, {topic: head}) if known == head.point else Incomplete()


def store_delta(
    connection: Connection, after: Point, head: Point, heads: Mapping[str, Head], page: int, maximum: int
) -> Delta | Incomplete:
    """The links of all topics after a transaction's point, in commit order, inside the caller's snapshot. ``head`` is
    the store's point, ``heads`` are those of all topics.
    """
    found: list[Link] = []
    known = after
    while True:
        got = _whole_transactions(connection, known, page)
        if got and not found and got[0].tx_prev != after:
            return Incomplete()
        found += got
        if len(found) > maximum:
            return Incomplete()
        hit("sync.during_delta")
        if not got:
            break
        known = got[-1].point
    return Delta(found, head, heads) if known == head else Incomplete()


def follow(
    connection: Connection, after: Point | None, maximum: int, head: Point, max_bytes: int | None = None
) -> tuple[list[Link], bool]:
    """At most about ``maximum`` links in commit order, and ``max_bytes`` of their changes (None: any number), never a
    part of a transaction, and whether they connect.

    They connect to ``after``, or (None) to the point before the very first transaction.
    """
    begin = after if after is not None else ZERO
    got = _whole_transactions(connection, begin, maximum, max_bytes)
    return got, connects(got, begin, head)


def connects(got: Sequence[Link], begin: Point, head: Point) -> bool:
    """Whether these links, which are all that are read after ``begin``, connect to it, in a store with this head."""
    return (got[0].tx_prev if got else head) == begin


def whole(got: list[Link], maximum: int) -> list[Link] | None:
    """The whole transactions among at most ``maximum`` links that were read; None: the first one has more links."""
    if len(got) < maximum:
        return got
    last = got[-1].point.position
    first_of_last = next(i for i, link in enumerate(got) if link.point.position == last)
    if len(got) - first_of_last == got[-1].tx_links:
        return got
    return got[:first_of_last] or None


def _whole_transactions(
    connection: Connection, after: Point, maximum: int, max_bytes: int | None = None
) -> list[Link]:
    values = {"after": after.position, "maximum": maximum}
    query = _NEXT
    if max_bytes is not None:
        query, values = _BOUNDED, {**values, "max_bytes": max_bytes}
    got = [rows.link(row) for row in connection.execute(query, values, execution_options=BINARY_RESULT)]
    found = whole(got, maximum)
    if found is not None:
        return found
    links = schema.links.c
    first = select(schema.links).where(links.position == got[0].point.position).order_by(links.topic)
    return [rows.link(row) for row in connection.execute(first)]


def holds(connection: Connection, asked: Sequence[tuple[str, Point, Point]]) -> list[bool | None]:
    """For each (topic, point, head): whether the point is in the history of the topic (``ALL``: of the store) that has
    this head; None when the changelog no longer reaches back to the point. Costs one look-up for each ``rows.CHUNK``
    points, and one more.
    """
    kept = _kept(connection, sorted({point.position for _, point, head in asked if point.position < head.position}))
    oldest = select(schema.links.c.tx_prev_position).order_by(schema.links.c.position).limit(1)
    begin = connection.execute(oldest).scalar_one_or_none() if kept is not None else None
    return [_holds(topic, point, head, kept or {}, begin) for topic, point, head in asked]


def _kept(connection: Connection, positions: Sequence[int]) -> dict[tuple[str, int], int] | None:
    """The nonces of the links at these positions, by topic and, as ``ALL``, of the store; None: no positions given."""
    if not positions:
        return None
    links = schema.links.c
    found: dict[tuple[str, int], int] = {}
    for part in rows.chunks(positions):
        query = select(links.topic, links.position, links.nonce).where(links.position.in_(part))
        for topic, position, nonce in connection.execute(query):
            found[topic, position] = found[ALL, position] = nonce
    return found


def _holds(
    topic: str, point: Point, head: Point, kept: Mapping[tuple[str, int], int], begin: int | None
) -> bool | None:
    if point in (head, ZERO):
        return True
    if point.position >= head.position:
        return False
    nonce = kept.get((topic, point.position))
    if nonce is not None:
        return nonce == point.nonce
    return False if begin is not None and begin < point.position else None


def recorded(connection: Connection, asked: Sequence[tuple[str, Point, Head]], store: Point) -> list[Recorded | None]:
    """For each (topic, point, head of the topic): what the store, with this head, has at the point. Costs as much as
    ``holds``, and one look-up for each ``rows.CHUNK`` points.
    """
    # A topic without a row was never written, or its row was lost: then only the changelog has its points.
    held = holds(connection, [(topic, point, store if head == EMPTY else head.point) for topic, point, head in asked])
    kept = _links_at(connection, sorted({point.position for _, point, _ in asked}))
    return [
        _recorded(point, is_held, head, kept.get((topic, point.position)))
        for (topic, point, head), is_held in zip(asked, held, strict=True)
    ]


def _recorded(point: Point, held: bool | None, head: Head, link: Sequence[Any] | None) -> Recorded | None:
    if not held:
        return None if held is None else Recorded(point, held=False)
    own = head if head.point == point else None
    logged = None if link is None else rows.recorded(link)
    if own is not None and logged is not None and own != logged:
        return None  # the topic's row was altered or repaired, or the changelog's: none of them can be relied on
    found = logged or own
    return None if found is None or found.point != point else Recorded(point, True, found.count, found.digest)


def _links_at(connection: Connection, positions: Sequence[int]) -> dict[tuple[str, int], Sequence[Any]]:
    """Of the links at these positions what ``rows.recorded`` reads, by topic and position."""
    links = schema.links.c
    columns = (links.topic, links.position, links.nonce, links.count, links.digest_lo, links.digest_hi)
    found: dict[tuple[str, int], Sequence[Any]] = {}
    for part in rows.chunks(positions):
        for topic, *row in connection.execute(select(*columns).where(links.position.in_(part))):
            found[topic, row[0]] = row
    return found


def newest(executor: Executor, topic: str) -> Head | None:
    """The head that the topic's newest link records."""
    (found,) = executor.run(Call(executor.made.newest_head, [{"of_topic": topic}]))
    return rows.head(found[0]) if found else None


def cut_by_count(connection: Connection, keep: int) -> int:
    """The last position to remove so that at least ``keep`` links stay; -1: none. Costs ``keep`` index entries."""
    links = schema.links.c
    query = select(func.max(links.position))
    if keep > 0:
        nth = select(links.position).order_by(links.position.desc()).offset(keep - 1).limit(1)
        oldest_kept = connection.execute(nth).scalar_one_or_none()
        if oldest_kept is None:
            return -1
        query = query.where(links.position < oldest_kept)
    last = connection.execute(query).scalar_one()
    return -1 if last is None else int(last)


def trim_batch(connection: Connection, cut: int, keep_us: int | None) -> int:
    """Remove one batch of whole transactions, oldest first; the number of links removed.

    Removes links up to the position ``cut`` (-1: none), and links that were stored longer than ``keep_us`` microseconds
    ago (None: none). The caller commits, and calls again until nothing is removed.
    """
    links = schema.links.c
    oldest = select(links.position, links.stored_at).order_by(links.position).limit(_BATCH)
    candidates: Sequence[tuple[int, int]] = [(row.position, row.stored_at) for row in connection.execute(oldest)]
    if not candidates:
        return 0
    if keep_us is not None:
        limit = int(connection.execute(select(NowMicroseconds())).scalar_one()) - keep_us
        # stored_at follows the commit order, but a database's clock may be set back: stop at the first young link.
        for position, stored_at in candidates:
            if stored_at >= limit:
                break
            cut = max(cut, position)
    cut = min(cut, candidates[-1][0])
    if cut < candidates[0][0]:
        return 0
    return connection.execute(delete(schema.links).where(links.position <= cut)).rowcount
