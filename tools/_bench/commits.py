"""Commits of 1, 20 and 1,000 changes by 1, 4 and 8 threads on three databases, beside the bare driver of each.

Each thread writes to a topic of its own; the counter is common. On SQLite the processor time of a transaction is
measured, because its speed is that of the disk; on servers the transactions per second, with fsync.
"""

import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

import msgspec
from _servers import PrivateMariaDB, PrivatePostgres, mariadb_binaries, postgres_binaries
from sqlalchemy import make_url

from _bench.bare_writer import open_bare
from _bench.measure import Log, Row, Sizes, in_turns, row
from _bench.payload import DIGITS, TABLE, key, value
from pubsub_lib import Store
from pubsub_lib.errors import ConfigError

KEYS: Final = 1000
"""Objects of each topic."""
WRITERS: Final = 8
REQUIRED: Final[Mapping[tuple[str, int, int], float]] = {
    ("SQLite", 1, 1): 3.0,
    ("SQLite", 20, 1): 2.0,
    ("PostgreSQL", 1, 1): 0.8,
    ("PostgreSQL", 1, 8): 0.9,
}
"""(database, changes, threads) → the required ratio to the bare driver."""
PEER: Final = "bare driver"


Commit = Callable[[Sequence[int], int], object]
"""Sets these keys of one thread's topic to values made of the number, in one transaction."""
Opened = Callable[[str], AbstractContextManager[Callable[[int], Commit]]]
"""Opens a database; gives the function from a thread's number to its way to commit."""


OfHost = Callable[[str, str, int, int, Log], Row]
"""The row of a database: its name and URL, the transactions of a round, the number of rounds."""


class Load(msgspec.Struct, frozen=True):
    """One round: ``transactions`` of ``changes`` by each of ``threads``."""

    changes: int
    transactions: int
    threads: int


def run(of_host: OfHost, sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """All rows; ``of_host`` measures those of processes (:mod:`.host_commits`). A database without binaries is left
    out, with a note at the first row.
    """
    rows, missing = [], []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pubsub-bench-"))
        urls = {"SQLite": f"sqlite:///{folder}/store.db"}
        for server, probe in ((PrivatePostgres, postgres_binaries), (PrivateMariaDB, mariadb_binaries)):
            try:
                probe()
            except ConfigError as error:
                missing.append(str(error))
            else:
                urls[server.label] = stack.enter_context(server(durable=True)).create_database()
        for name, url in urls.items():
            fill(url)
            for changes, transactions in sizes.commits:
                for threads in (1, 4, WRITERS):
                    load = Load(changes, max(1, transactions // threads), threads)
                    rows.append(measured(name, url, load, rounds, log))
            if name != "SQLite":
                rows.append(of_host(name, url, 4 * sizes.commits[0][1], rounds, log))
    if missing:
        rows[0] = msgspec.structs.replace(rows[0], note="; ".join(missing))
    return rows


def measured(name: str, url: str, load: Load, rounds: int, log: Log) -> Row:
    """The row of one load on one database."""
    title = f"{name}, {load.changes:,} changes, {load.threads} writers"

    def one(opened: Opened) -> float:
        processor, seconds = timed(opened, url, load)
        total = load.transactions * load.threads
        return 1e6 * processor / total if name == "SQLite" else total / seconds

    pairs = in_turns(rounds, lambda: one(ours), lambda: one(bare), lambda text: log(f"{title}, {text}"))
    required = REQUIRED.get((name, load.changes, load.threads))
    unit, at = ("µs cpu", "most") if name == "SQLite" else ("tx/s", "least")
    short = f"store-{name.lower()}-{load.changes}-{load.threads}"
    return row(short, title, unit, PEER, list(pairs), at, required)  # type: ignore[arg-type]


def fill(url: str) -> None:
    """Write the objects of all topics."""
    with Store(url) as store:
        for topic in map(topic_of, range(WRITERS)):
            with store.transaction() as transaction:
                for number in range(KEYS):
                    transaction.set(TABLE, key(topic, number), {"data": "0"}, topic=topic)


def timed(opened: Opened, url: str, load: Load) -> tuple[float, float]:
    """Seconds of the processor and of the clock for one round."""
    rng = random.Random(load.transactions)
    with opened(url) as writer, ThreadPoolExecutor(load.threads) as pool:
        commits = [writer(number) for number in range(load.threads)]
        list(pool.map(lambda commit: commit([0], 0), commits))  # connects, and prepares the statements
        plans = [[rng.sample(range(KEYS), load.changes) for _ in range(load.transactions)] for _ in commits]
        first = itertools.repeat(time.monotonic_ns())  # values of an earlier round would write nothing
        processor, begun = time.process_time(), time.monotonic()
        list(pool.map(_write, commits, plans, first))
        return time.process_time() - processor, time.monotonic() - begun


def _write(commit: Commit, plan: Sequence[Sequence[int]], first: int) -> None:
    for number, keys in enumerate(plan):
        commit(keys, first + number)


@contextmanager
def ours(url: str) -> Iterator[Callable[[int], Commit]]:
    """The threads of one program share its store."""
    with Store(url, origin="bench") as store:

        yield lambda number: writer_of(store, number)


def writer_of(store: Store, number: int) -> Commit:
    """A thread's way to commit by this store."""
    topic = topic_of(number)
    names = [key(topic, each) for each in range(KEYS)]

    def commit(keys: Sequence[int], stamp: int) -> None:
        with store.transaction() as transaction:
            for each in keys:
                transaction.set(TABLE, names[each], _value(stamp, each), topic=topic)

    return commit


@contextmanager
def bare(url: str) -> Iterator[Callable[[int], Commit]]:
    """Each thread has a connection of its own."""
    with ExitStack() as stack:

        def writer(number: int) -> Commit:
            topic = topic_of(number)
            names = [key(topic, each) for each in range(KEYS)]
            connection = stack.enter_context(open_bare(make_url(url)))

            def commit(keys: Sequence[int], stamp: int) -> None:
                connection(topic, [names[each] for each in keys], [value(stamp * KEYS + each) for each in keys])

            return commit

        yield writer


def topic_of(number: int) -> str:
    """The topic of a thread."""
    return f"topic{number}"


def _value(stamp: int, number: int) -> Any:
    return {"data": f"{stamp * KEYS + number:0{DIGITS}}"}
