"""PostgreSQL with LISTEN/NOTIFY by hand: a row and a notification for each change, in one transaction."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import psycopg
from _children import Children

from _bench.e2e.plan import Cell, Changes
from _bench.e2e.seen import Seen
from _bench.e2e.side import Facts, Put

TABLE = "CREATE TABLE objects (key text PRIMARY KEY, value jsonb NOT NULL)"
WRITE = "INSERT INTO objects VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
NOTIFY = "SELECT pg_notify('changes', %s)"
FACTS = Facts(
    "listen-notify",
    "psycopg",
    "synchronous_commit=on (default): fsync before a commit returns",
    "gap detection and resync (what is notified while a listener is disconnected is lost); a copy in the watcher, and "
    "a bound of its staleness; values over 8,000 bytes; a version guard except by own SQL",
)


class NotifySession:
    """One database."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def writer(self, number: int) -> Iterator[Put]:
        """A connection."""
        with psycopg.connect(self._url, autocommit=True) as connection:

            def put(changes: Changes) -> None:
                rows = [(key, msgspec.json.encode(value).decode()) for key, value in changes]
                payloads = [(f'{{"key":"{key}","value":{value}}}',) for key, value in rows]
                with connection.transaction(), connection.cursor() as cursor:
                    if len(rows) == 1:
                        cursor.execute(WRITE, rows[0])
                        cursor.execute(NOTIFY, payloads[0])
                    else:  # psycopg sends these in one pipeline
                        cursor.executemany(WRITE, rows)
                        cursor.executemany(NOTIFY, payloads)

            yield put

    def watch(self, seen: Seen) -> None:
        """A listener. The payload has the value, so that it reads no row."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("LISTEN changes")
            seen.connected()
            for notification in connection.notifies():
                change = msgspec.json.decode(notification.payload)
                seen.change(change["key"], change["value"])
                if seen.done:
                    return


class Notify:
    """The side, on the same server as ours. ``new_url``: makes an empty database, a URL of SQLAlchemy."""

    facts = FACTS

    def __init__(self, new_url: Callable[[], str]) -> None:
        self._new_url = new_url

    @contextmanager
    def session(self, children: Children, cell: Cell) -> Iterator[NotifySession]:
        """An empty database with the table."""
        url = self._new_url().replace("postgresql+psycopg://", "postgresql://")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE)
        yield NotifySession(url)
