"""Inspection of the store for operators: the changelog in pages, an object's versions in it, a recount of a topic.

This module only reads, in pages, so that no statement takes long and no memory grows with the changelog.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from pubsub_lib.core import digest
from pubsub_lib.core.limits import check_key, check_name
from pubsub_lib.core.model import EMPTY, ZERO, Change, Full, Head, Link
from pubsub_lib.store import clock_comparison, object_pages, rows, schema, snapshot
from pubsub_lib.store.retry import Run
from pubsub_lib.store.types import Holds, NowMicroseconds
from pubsub_lib.store.verbs import Stored

T = TypeVar("T")
WINDOW: Final = 50_000
"""Positions that one statement searches for an object."""
RECENT: Final = 10_000
"""Number of newest links that are searched for the last link of each origin."""
MAX_DAMAGED: Final = 100
"""Maximum number of damaged objects that a verification names; it counts all of them."""

Cursor = tuple[int, str]
"""A place between two links: behind the link of this position and topic."""
START: Final[Cursor] = (0, "")


class Kept(msgspec.Struct, frozen=True):
    """A link of the changelog, and how many seconds ago it was stored, by the database's clock."""

    link: Link
    age: float


class Version(msgspec.Struct, frozen=True):
    """One change of an object, with the link that holds it."""

    change: Change
    link: Link


class Listed(msgspec.Struct, frozen=True):
    """An object of a list. ``value`` is None when the list has no values."""

    key: str
    topic: str
    version: int
    value: bytes | None = None


class Verified(msgspec.Struct, frozen=True):
    """A recount of a topic, in one snapshot.

    ``stored`` is the stored head; ``counted`` has count and digest of the rows themselves. ``damaged`` are objects
    whose stored fingerprint or bucket does not match their value and key (the first ``MAX_DAMAGED`` of ``damages``):
    they were changed without the library.
    """

    stored: Head
    counted: Head
    damaged: tuple[Stored, ...]
    damages: int
    complaints: Mapping[tuple[str, str], str] = {}
    """By table and key of a damaged object, a further defect of the row: text in place of bytes, or a wrong bucket."""

    @property
    def right(self) -> bool:
        """Whether nothing differs."""
        return self.stored == self.counted and not self.damages


def behind(position: int) -> Cursor:
    """The place behind every link of this position."""
    return (position + 1, "")


def cursor(link: Link) -> Cursor:
    """The place behind this link."""
    return (link.point.position, link.topic)


class Inspection:
    """The store's ``inspect``. Any thread; each method is a few short read-only transactions and raises StoreError."""

    def __init__(self, read: Run, page: int) -> None:
        self._read = read
        self._page = page

    def at_once(self, fn: Callable[["Inspection"], T]) -> T:
        """The result of ``fn``, whose argument reads one snapshot with all its methods. ``fn`` is called again after
        StoreBusy and StoreUnavailable, as often as other reads are.
        """
        return self._read("reading the store", lambda at: fn(Inspection(lambda _, each: each(at), self._page)))

    def contents(self) -> Full:
        """All objects, by topic; they are in memory. Raises StoreError (a damaged row)."""
        return self._read("reading objects", lambda connection: snapshot.everything(connection, self._page))

    def tables(self) -> Mapping[str, int]:
        """Number of objects per table that holds any. Costs one pass over the objects' primary key."""
        objects = schema.objects.c
        query = select(objects.table_name, func.count()).group_by(objects.table_name).order_by(objects.table_name)
        return self._read("counting objects", lambda connection: {row[0]: row[1] for row in connection.execute(query)})

    def keys(
        self,
        table: str,
        *,
        topic: str | None = None,
        prefix: str = "",
        maximum: int | None = None,
        values: bool = False,
    ) -> list[Listed]:
        """The objects of a table in the order of their keys' bytes, of one snapshot: on this topic (None: on all), with
        keys that begin with ``prefix``, at most ``maximum``. ``values``: with their values, all of them in memory.

        Raises InvalidValueError, StoreError (a damaged row).
        """
        check_name("table", table)
        if topic is not None:
            check_name("topic", topic)
        if prefix:
            check_key(prefix)

        def do(connection: Connection) -> list[Listed]:
            found = object_pages.by_key(connection, self._page, table, topic=topic, prefix=prefix, maximum=maximum)
            return [
                Listed(each.key, each.topic, each.version, each.value if values else None)
                for each in map(rows.stored, found)
            ]

        return self._read("listing objects", do)

    def oldest(self) -> Kept | None:
        """The oldest link that is kept; None when there is none."""
        found = self._select(_ordered(descending=False).limit(1), aged=True)
        return found[0] if found else None

    def newest(self, maximum: int, topic: str | None = None) -> list[Link]:
        """The newest links, of all topics or of one, oldest of them first. Raises InvalidValueError."""
        found = self._select(_of(topic, _ordered(descending=True)).limit(maximum))
        return [kept.link for kept in reversed(found)]

    def links(self, after: Cursor, maximum: int, topic: str | None = None) -> list[Link]:
        """At most ``maximum`` links after a cursor, in commit order, of all topics or one. Raises InvalidValueError."""
        columns = schema.links.c
        position, name = after
        # Written out: MySQL and MariaDB read the whole index for a comparison of rows.
        place = and_(columns.position >= position, or_(columns.position > position, columns.topic > name))
        query = _of(topic, _ordered(descending=False)).where(place).limit(maximum)
        return [kept.link for kept in self._select(query)]

    def every_link(self, after: Cursor = START, topic: str | None = None) -> Iterator[Link]:
        """All links behind a place, page by page, up to the links that exist when the last page is read."""
        while True:
            got = self.links(after, self._page, topic)
            yield from got
            if len(got) < self._page:
                return
            after = cursor(got[-1])

    def head_at(self, topic: str, position: int) -> Head | None:
        """The head that a topic had when the store was at this position; None when the changelog does not contain it.

        Raises InvalidValueError.
        """
        check_name("topic", topic)
        columns = schema.links.c
        mine = select(schema.links).where(columns.topic == topic)
        before = mine.where(columns.position <= position).order_by(columns.position.desc()).limit(1)
        oldest = mine.order_by(columns.position).limit(1)

        def do(connection: Connection) -> Head | None:
            now = snapshot.heads(connection, [topic])[topic]
            if now.point.position <= position:
                return now
            found = _fetch(connection, before, aged=False)
            if found:
                link = found[0].link
                return Head(link.point, link.count, link.digest)
            first = _fetch(connection, oldest, aged=False)
            return EMPTY if first and first[0].link.prev == ZERO else None

        return self._read("reading the changelog", do)

    def versions(self, table: str, key: str) -> Iterator[Version]:
        """The changes of an object that the changelog still has, oldest first. Raises InvalidValueError.

        Nothing indexes the changelog by key, so all of it is searched (by the database), ``WINDOW`` positions a
        statement.
        """
        check_name("table", table)
        check_key(key)
        first = self.oldest()
        if first is None:
            return
        columns = schema.links.c
        last = self._read("reading the store's head", snapshot.store_point).position
        for begin in range(first.link.point.position, last + 1, WINDOW):
            query = _ordered(descending=False).where(
                columns.position >= begin,
                columns.position < min(begin + WINDOW, last + 1),
                # The encoded changes hold every key verbatim; chance matches are filtered out below.
                Holds(columns.changes, key.encode()),
            )
            for kept in self._select(query):
                for change in kept.link.changes:
                    if (change.table, change.key) == (table, key):
                        yield Version(change, kept.link)

    def clock(self) -> clock_comparison.ClockComparison | None:
        """This host's clock, compared with the writers'; None: no recent link has the time of its commit."""
        return self._read("comparing clocks", clock_comparison.compare)

    def last_by_origin(self, read: Mapping[str, int]) -> Mapping[str, Kept]:
        """The newest link of each of these origins ("": none was named) at its position or before, among the ``RECENT``
        newest links. ``read``: position by origin.
        """
        if not read:
            return {}
        links = schema.links.c
        recent = select(links.position, links.origin).order_by(links.position.desc()).limit(RECENT).subquery().c
        theirs = select(recent.position, recent.origin).where(recent.position <= max(read.values()))

        def do(connection: Connection) -> dict[str, Kept]:
            newest: dict[str, int] = {}
            for position, origin in connection.execute(theirs.order_by(recent.position.desc())):
                if position <= read.get(origin, -1):
                    newest.setdefault(origin, position)
            found: dict[str, Kept] = {}
            for part in rows.chunks(sorted({*newest.values()})):
                for kept in _fetch(connection, _ordered(descending=False).where(links.position.in_(part)), aged=True):
                    if newest.get(kept.link.origin) == kept.link.point.position:
                        found[kept.link.origin] = kept
            return found

        return self._read("reading the changelog", do)

    def verify(self, topic: str) -> Verified:
        """Recount a topic from its rows and compare with its head, in one snapshot. Raises InvalidValueError."""
        check_name("topic", topic)

        def do(connection: Connection) -> Verified:
            stored = snapshot.heads(connection, [topic])[topic]
            count = total = damages = 0
            damaged: list[Stored] = []
            complaints: dict[tuple[str, str], str] = {}
            for each in snapshot.seen(connection, self._page, topic):
                item = each.item
                print_ = digest.fingerprint(item.table, item.key, item.version, item.value)
                count += 1
                total = digest.add(total, print_)
                if each.complaint or print_ != item.fingerprint:
                    damages += 1
                    if len(damaged) < MAX_DAMAGED:
                        damaged.append(item)
                        if each.complaint:
                            complaints[item.ident] = each.complaint
            return Verified(stored, Head(stored.point, count, total), tuple(damaged), damages, complaints)

        return self._read("verifying a topic", do)

    def _select(self, query: Select[Any], *, aged: bool = False) -> list[Kept]:
        return self._read("reading the changelog", lambda connection: _fetch(connection, query, aged=aged))


def _ordered(*, descending: bool) -> Select[Any]:
    columns: list[ColumnElement[Any]] = [schema.links.c.position, schema.links.c.topic]
    return select(schema.links).order_by(*(each.desc() if descending else each for each in columns))


def _of(topic: str | None, query: Select[Any]) -> Select[Any]:
    return query if topic is None else query.where(schema.links.c.topic == check_name("topic", topic))


def _fetch(connection: Connection, query: Select[Any], *, aged: bool) -> list[Kept]:
    now = connection.execute(select(NowMicroseconds())).scalar_one() if aged else 0
    # A database's clock may have been set back since then.
    return [
        Kept(rows.link(row), max(0.0, (now - row.stored_at) / 1e6) if aged else 0.0)
        for row in connection.execute(query)
    ]
