"""A server that acknowledges commits before they are on disk, killed under load: no lost commit counts as applied."""

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest
from _private_server import PrivateServer
from _processes import poll
from _servers import PrivatePostgres
from sqlalchemy import create_engine, select, text

from pubsub_lib import Publisher, Replica, Settings, Store
from pubsub_lib.core.model import Point
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import HistoryChanged, OutcomeUnknown, StoreBusy, StoreUnavailable
from pubsub_lib.store import StoreSettings, schema
from pubsub_lib.store.links import Commit

KILLS, COMMITS, WRITERS = 4, 30, 2
TOPICS = ("a", "b")
TIMING = Timing(
    max_idle_time=0.5,
    hello_wait=0.2,
    reading_age=0.4,
    round_trip=0.4,
    message_delay_window=0.2,
    poll_interval=0.3,
    sync_jitter=0.05,
    sync_interval=0.05,
    sync_backoff=0.2,
    max_sync_backoff=0.5,
)


class Writers:
    """Threads that write, and store every commit that the server acknowledged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._numbers = itertools.count()  # all values differ, because writing an equal value changes nothing
        self.acknowledged: list[Commit] = []

    def write(self, thread: int, number: int) -> None:
        """Write ``number`` transactions, or fewer when the server does not answer."""
        for i in range(number):
            try:
                with self._store.transaction() as tx:
                    tx.set("port", f"{thread}-{i % 5}", {"n": next(self._numbers)}, topic=TOPICS[i % 2])
            except (StoreUnavailable, StoreBusy, OutcomeUnknown):
                return
            with self._lock:
                assert tx.commit is not None
                self.acknowledged.append(tx.commit)

    def wrote(self, thread: int, number: int) -> bool:
        """Write this number of transactions; whether the server acknowledged any."""
        before = len(self.acknowledged)
        self.write(thread, number)
        return len(self.acknowledged) > before

    def have(self, number: int) -> bool:
        """Whether at least ``number`` commits were acknowledged."""
        return len(self.acknowledged) >= number

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write in the background; the threads end when the server does not answer."""
        threads = [threading.Thread(target=self.write, args=(thread, 10_000)) for thread in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for each in threads:
                each.join()


def history(url: str) -> set[Point]:
    """Every transaction in the database, read by a separate connection."""
    engine = create_engine(url)
    links = schema.links.c
    with engine.connect() as connection:
        found = {Point(row.position, row.nonce) for row in connection.execute(select(links.position, links.nonce))}
    engine.dispose()
    return found


def checkpoint(url: str) -> None:
    """Let the server write all to disk."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CHECKPOINT"))
    engine.dispose()


@pytest.fixture
def forgetful_postgres() -> Iterator[PrivateServer]:
    """PostgreSQL that writes acknowledged commits to its log only at intervals."""
    options = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_buffers": "16MB"}
    with PrivatePostgres(options=options) as server:
        yield server


@pytest.mark.quick_variants(1)
@pytest.mark.usefixtures("postgres_server")  # skipped with the reason without a server
@pytest.mark.parametrize("driver", ["memory", "db_polling_pubsub_driver"])
def test_wait_for_never_reports_a_lost_acknowledged_commit_as_applied(
    driver: str, forgetful_postgres: PrivateServer
) -> None:
    server = forgetful_postgres
    settings = Settings(
        store_url=server.url,
        driver=driver,
        service_name="writer",
        timing=TIMING,
        store=StoreSettings(connect_timeout=2.0, retry_attempts=2, retry_max_seconds=1.0),
    )
    with Store(settings) as store, Replica(settings, topics=TOPICS) as replica:
        writers = Writers(store)
        writers.write(9, 1)
        checkpoint(server.url)  # else a kill that comes early also loses the tables
        publisher = Publisher(settings, store) if driver == "memory" else None
        try:
            if publisher is not None:
                publisher.start()
            for kill in range(1, KILLS + 1):
                with writers.writing():
                    assert poll(partial(writers.have, kill * COMMITS), 60)
                    server.kill()
                server.restart()
                assert poll(partial(writers.wrote, 9, 3), 60)  # other transactions take the positions of the lost ones
            last = writers.acknowledged[-1]
            replica.wait_for(last, 60)
            kept = history(server.url)
            lost = [commit for commit in writers.acknowledged if commit.point not in kept]
            print(f"{driver}: {len(lost)} of {len(writers.acknowledged)} acknowledged commits are lost")
            assert lost, "the server lost no commit, so that nothing was tested"
            assert reported_applied(replica, writers.acknowledged) == [
                commit.point for commit in writers.acknowledged if commit.point in kept
            ]
        finally:
            if publisher is not None:
                publisher.close()


def reported_applied(replica: Replica, commits: Sequence[Commit]) -> list[Point]:
    """The commits that the replica reports as applied; for all others it raises HistoryChanged."""
    applied = []
    for commit in commits:
        try:
            replica.wait_for(commit, 30)
        except HistoryChanged:
            continue
        applied.append(commit.point)
    return applied
