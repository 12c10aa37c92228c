"""Following the changelog: the same result on each database; on PostgreSQL one round trip and one snapshot."""

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from _patience import longest
from _processes import poll
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, create_engine, delete, text
from sqlalchemy.exc import DBAPIError

from pubsub_lib.core.model import ZERO, Point
from pubsub_lib.errors import SchemaError
from pubsub_lib.store import Store, following, schema
from pubsub_lib.store.prepared import Call, Prepared
from tests.unit.store.conftest import Opener
from tests.unit.store.test_executor import idle_driver
from tests.unit.store.test_postgres_trip import data_segments, prepared_in_server, put

LONG = longest(60.0)


def readers_of(store: Store) -> Engine:
    """The engine of the store's readers."""
    return store._readers


def written(store: Store, *sizes: int) -> list[Point]:
    """Commit a transaction for each size, which is its number of topics; the points, also that before the first."""
    points = [ZERO]
    for number, size in enumerate(sizes):
        with store.transaction() as tx:
            for topic in range(size):
                tx.set("t", f"k{topic}", number, topic=f"topic-{topic}")
        assert tx.commit is not None
        points.append(tx.commit.point)
    return points


@pytest.mark.quick_variants(2)
def test_each_reading_equals_that_of_a_transaction(store: Store) -> None:
    points = written(store, 1, 3, 2, 1, 4)
    engine = readers_of(store)
    for after in (None, *points, Point(points[2].position, 1), Point(points[-1].position + 5, 1)):
        for maximum in range(1, 14):
            with engine.connect() as connection:
                expected = following._read(connection, after, maximum)
            assert following.read(engine, after, maximum) == expected, (after, maximum)
            assert store.read_links(after, maximum) == expected[:3]
            for max_bytes in (1, 60, 150, 10_000):
                with engine.connect() as connection:
                    expected = following._read(connection, after, maximum, max_bytes)
                assert following.read(engine, after, maximum, max_bytes) == expected, (after, maximum, max_bytes)
                assert store.read_links(after, maximum, max_bytes) == expected[:3]


def test_a_store_that_lost_its_row_is_named(open_store: Opener, database_url: str) -> None:
    store = open_store()
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(delete(schema.store))
    engine.dispose()
    with pytest.raises(SchemaError, match="pubsub_store has lost its row"):
        store.read_links(None, 5)


# -- PostgreSQL --


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[Store]:
    """A store with two commits."""
    with Store(postgres_url) as made:
        written(made, 1, 2)
        yield made


@pytest.mark.postgresql
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's count of segments is Linux's")
def test_a_reading_is_one_round_trip(postgres_store: Store) -> None:
    driver = idle_driver(readers_of(postgres_store))
    postgres_store.read_links(None, 5)
    before = data_segments(driver)
    for number in range(1, 9):
        put(postgres_store, f"value {number}")
        assert len(postgres_store.read_links(None, 50, 0 if number % 2 else 10_000)[0]) == 3 + number
        assert data_segments(driver) - before == number
        assert driver.info.transaction_status == TransactionStatus.IDLE
    assert idle_driver(readers_of(postgres_store)) is driver


@pytest.mark.postgresql
def test_isolation_the_statements_of_a_trip_see_one_snapshot(postgres_store: Store, postgres_url: str) -> None:
    """A commit between two statements of a trip shows in none of them."""
    engine, other = readers_of(postgres_store), create_engine(postgres_url)
    seen: list[Any] = []

    def read() -> None:
        with following.ReadingTrips(engine) as trips:
            wait = Prepared(text("SELECT pg_advisory_lock_shared(7)"), engine.dialect)
            seen.extend(trips.run(Call(trips.made.identity), Call(wait), Call(trips.made.identity)))

    with other.connect() as holder:
        holder.execute(text("SELECT pg_advisory_lock(7)"))
        thread = threading.Thread(target=read)
        thread.start()
        waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        assert poll(lambda: holder.execute(waiting).scalar_one() == 1, LONG)
        put(postgres_store, "meanwhile")
        holder.execute(text("SELECT pg_advisory_unlock(7)"))
        thread.join(LONG)
    other.dispose()
    first, _, last = seen
    assert first == last
    assert postgres_store.read_heads([]).store.position == first[0][0] + 1


@pytest.mark.postgresql
def test_a_reading_cannot_write(postgres_store: Store) -> None:
    engine = readers_of(postgres_store)
    write = Prepared(delete(schema.links), engine.dialect)
    with pytest.raises(DBAPIError, match="read-only"), following.ReadingTrips(engine) as trips:
        trips.run(Call(write))
    assert len(postgres_store.read_links(None, 5)[0]) == 3


@pytest.mark.postgresql
def test_statements_of_readings_stay_prepared_beside_other_reads(postgres_store: Store) -> None:
    engine = readers_of(postgres_store)
    driver = idle_driver(engine)
    for _ in range(8):
        postgres_store.read_links(None, 5)
        with engine.connect() as connection:  # psycopg prepares a statement that it executes six times
            for _ in range(8):
                connection.execute(text("SELECT 1"))
    with engine.connect() as connection:
        assert connection.connection.driver_connection is driver
        assert prepared_in_server(driver) == ["pubsub_0", "pubsub_1"]


@pytest.mark.postgresql
def test_a_reading_connects_again_after_a_loss(postgres_store: Store) -> None:
    postgres_store.read_links(None, 5)
    driver = idle_driver(readers_of(postgres_store))
    with postgres_store._writers.connect() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 60000)"), {"pid": driver.info.backend_pid})
    assert len(postgres_store.read_links(None, 5)[0]) == 3
