"""From before a commit to the handler in another process on PostgreSQL, at 100 transactions a second: our driver that
listens, beside LISTEN and NOTIFY by hand.

By hand the writer's transaction sets the same value in one table, and notifies with the value in the payload, so that
the listener reads no row, checks nothing, and keeps no copy. Both databases are on one server, with fsync. Timestamps
are of the machine's monotonic clock.
"""

import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import psycopg
from _children import Children, Line
from _processes import poll
from _servers import PrivatePostgres, postgres_binaries

from _bench.e2e import notify
from _bench.latency import paced
from _bench.measure import BenchError, Log, Row, Sizes, in_turns, row
from _bench.payload import DIGITS, TABLE, key
from pubsub_lib import Publisher, Replica, Settings, Store
from pubsub_lib.core.events import Event
from pubsub_lib.errors import ConfigError

RATE: Final = 100
"""Transactions per second."""
REQUIRED: Final = 3.0
"""Maximum p50, as a multiple of that by hand."""
PEER: Final = "LISTEN and NOTIFY by hand"
TOPIC: Final = "bench"
START: Final = 60.0
"""Maximum number of seconds until the replica listens."""
KEYS: Final = 1000


def run(sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """One row; none, with a line on stderr, without PostgreSQL's binaries: the report then names the missing ratio."""
    try:
        postgres_binaries()
    except ConfigError as error:
        print(f"pgnotify is left out: {error}", file=sys.stderr)
        return []
    count = max(10, sizes.latency_messages // 4)
    with PrivatePostgres(durable=True) as server:

        def median(prepare: Callable[[str], None], write: Work, watch: Work) -> float:
            url = server.create_database()
            prepare(url)
            return 1e6 * measured(url, write, watch, count)

        pairs = in_turns(
            rounds, lambda: median(prepare, write, watch), lambda: median(prepare_by_hand, notify_by_hand, listen), log
        )
        title = f"p50 from commit to handler at {RATE}/s, by NOTIFY"
        return [row("pgnotify-postgresql", title, "µs", PEER, list(pairs), "most", REQUIRED)]


Work = Callable[[Line, str, int], None]
"""A process: its line, the database, the number of transactions."""


def measured(url: str, write: Work, watch: Work, count: int) -> float:
    """The median, in seconds."""
    with Children() as children:
        watcher = children.fork(watch, url, count)
        watcher.receive()
        writer = children.fork(write, url, count)
        found = watcher.receive()
        writer.receive()
        return float(found)


class Seen:
    """The latencies of the values that a watcher got."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._took: list[float] = []
        self._last = 0
        self.done = threading.Event()

    def value(self, given: dict[str, Any]) -> None:
        """The watcher's callback. Raises BenchError when a value is missing."""
        self._took.append(time.monotonic() - given["at"])
        if given["n"] != self._last + 1:
            self.done.set()
            raise BenchError(f"the value {given['n']} came after {self._last}")
        self._last = given["n"]
        if self._last == self._count:
            self.done.set()

    def median(self) -> float:
        """Raises BenchError when values are missing."""
        if len(self._took) != self._count:
            raise BenchError(f"{len(self._took)} of {self._count} values came")
        return statistics.median(self._took)


def value(number: int) -> dict[str, Any]:
    """The value of this transaction, with the time before it."""
    return {"n": number + 1, "at": time.monotonic(), "data": "0" * DIGITS}


# -- ours ------------------------------------------------------------------------------------------------------------


def settings(url: str) -> Settings:
    """The configuration of both programs; all times have their defaults."""
    return Settings(store_url=url, driver="pgnotify_pubsub_driver", service_name="bench")


def prepare(url: str) -> None:
    """Make the tables."""
    with Store(settings(url)):
        pass


def write(line: Line, url: str, count: int) -> None:
    """A program that publishes by itself."""
    with Store(settings(url)) as store, Publisher(settings(url), store):

        def commit(number: int) -> None:
            with store.transaction() as tx:
                tx.set(TABLE, key(TOPIC, number % KEYS), value(number), topic=TOPIC)

        paced(count, commit, RATE)
        line.send()


def watch(line: Line, url: str, count: int) -> None:
    """A replica with a handler."""
    seen = Seen(count)

    def handler(change: Event) -> None:
        seen.value(change.new)

    with Replica(settings(url), [TOPIC]) as replica:
        replica.on(TABLE, handler)
        replica.wait_synced(START)
        if not poll(lambda: bool(replica.status().driver["connections"]), START):
            raise BenchError(f"the replica did not listen within {START:.0f} s")
        line.send()
        seen.done.wait()
        line.send(seen.median())


# -- the peer --------------------------------------------------------------------------------------------------------


def plain(url: str) -> str:
    """The URL as psycopg takes it."""
    return url.replace("postgresql+psycopg://", "postgresql://")


def prepare_by_hand(url: str) -> None:
    """Make the table."""
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute(notify.TABLE)


def notify_by_hand(line: Line, url: str, count: int) -> None:
    """A program with a connection."""
    with psycopg.connect(plain(url), autocommit=True) as connection:

        def commit(number: int) -> None:
            text = msgspec.json.encode(value(number)).decode()
            with connection.transaction():
                connection.execute(notify.WRITE, (key(TOPIC, number % KEYS), text))
                connection.execute(notify.NOTIFY, (text,))

        paced(count, commit, RATE)
        line.send()


def listen(line: Line, url: str, count: int) -> None:
    """A program that listens."""
    seen = Seen(count)
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute("LISTEN changes")
        line.send()
        for notification in connection.notifies():
            seen.value(msgspec.json.decode(notification.payload))
            if seen.done.is_set():
                break
    line.send(seen.median())
