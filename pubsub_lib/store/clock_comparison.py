"""Compares the clock of this host with that of the writers, by way of the database's clock."""

from time import time_ns
from typing import Final

import msgspec
from sqlalchemy import Connection, select, text

from pubsub_lib.store import schema
from pubsub_lib.store.types import NowMicroseconds

RECENT: Final = 200
"""Number of newest links that are looked at: their writers' clocks may have drifted since older ones."""


class ClockComparison(msgspec.Struct, frozen=True):
    """This host's clock is ``ahead`` (microseconds) of the clock of the writers with this ``origin``."""

    origin: str
    ahead: int


def compare(connection: Connection) -> ClockComparison | None:
    """Compare with the writers of the origin of the newest link. None: no recent link has the time of its commit.

    The database stored a link by its clock shortly after the commit had been given a time by the writer's clock; the
    shortest of these delays counts as none. SQLite has no clock of its own, and a standby has another clock than the
    primary, and older contents: there the present time counts as that of the newest commit.
    """
    columns = schema.links.c
    recent = select(columns.origin, columns.written_at, columns.stored_at).order_by(columns.position.desc())
    links = [row for row in connection.execute(recent.limit(RECENT)) if row.written_at > 0]
    if not links:
        return None
    origin, newest = links[0].origin, _micros(links[0].written_at)
    before = time_ns() // 1000
    at_database = connection.execute(select(NowMicroseconds())).scalar_one()
    here = (before + time_ns() // 1000) // 2
    if not _has_the_clock_of_commits(connection):
        return ClockComparison(origin, here - newest)
    delay = min(row.stored_at - _micros(row.written_at) for row in links if row.origin == origin)
    return ClockComparison(origin, here - (at_database - delay))


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)


def _has_the_clock_of_commits(connection: Connection) -> bool:
    """Whether this server stored the links, by its own clock."""
    dialect = connection.dialect.name
    if dialect == "sqlite":
        return False
    standby = "SELECT pg_is_in_recovery()" if dialect == "postgresql" else "SELECT @@global.read_only"
    return connection.execute(text(standby)).scalar_one() in (False, 0, "OFF")  # a word since MariaDB 12
