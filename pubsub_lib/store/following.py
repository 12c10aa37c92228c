"""Following the changelog: the next links, the store's head and its id, of one snapshot.

SQLAlchemy takes four round trips to PostgreSQL for that: BEGIN, the head, the links, ROLLBACK. Here both statements are
sent together. PostgreSQL executes the statements up to a Sync in one transaction, and the sessions of readers are
REPEATABLE READ, so that both see one snapshot (rule S4), also without a BEGIN.
"""

from typing import NamedTuple, Self

from sqlalchemy import Connection, Engine

from pubsub_lib.core.model import ZERO, Link, Point
from pubsub_lib.store import changelog, rows, snapshot
from pubsub_lib.store.commit import dropped_on_error
from pubsub_lib.store.executor import OwnTransaction
from pubsub_lib.store.prepared import Call


class Reading(NamedTuple):
    """What one reading found. ``complete``: whether the links connect to the point after which they were read."""

    links: list[Link]
    head: Point
    complete: bool
    store_id: bytes


class ReadingTrips(OwnTransaction):
    """A context manager on a reader's connection to PostgreSQL: each :meth:`run` is a transaction of its own, and one
    round trip. Nothing is committed or rolled back."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._unsent = []  # without the BEGIN
        # From now on psycopg prepares nothing on this connection: it would also deallocate the statements of the trips.
        self._driver.prepare_threshold = None
        return self


def read(engine: Engine, after: Point | None, maximum: int, max_bytes: int | None = None) -> Reading:
    """At most about ``maximum`` links after this point, and ``max_bytes`` of their changes, as
    :func:`.changelog.follow`. Raises SQLAlchemy's errors.
    """
    if engine.dialect.name == "postgresql":
        reading = _in_one_trip(engine, after or ZERO, maximum, max_bytes)
        if reading is not None:
            return reading
    with engine.connect() as connection:
        return dropped_on_error(connection, lambda at: _read(at, after, maximum, max_bytes))


def _in_one_trip(engine: Engine, begin: Point, maximum: int, max_bytes: int | None) -> Reading | None:
    """None: the first transaction has more than ``maximum`` links."""
    with ReadingTrips(engine) as trips:
        values = {"after": begin.position, "maximum": maximum}
        statement = trips.made.next_links
        if max_bytes is not None:
            statement, values = trips.made.bounded_links, {**values, "max_bytes": max_bytes}
        counter, found = trips.run(Call(trips.made.identity), Call(statement, [values]))
    head, store_id = rows.identity(counter)
    links = changelog.whole([rows.link(each) for each in found], maximum)
    return None if links is None else Reading(links, head, changelog.connects(links, begin, head), store_id)


def _read(connection: Connection, after: Point | None, maximum: int, max_bytes: int | None = None) -> Reading:
    head, store_id = snapshot.identity(connection)
    links, complete = changelog.follow(connection, after, maximum, head, max_bytes)
    return Reading(links, head, complete, store_id)
