"""Services and exclusive leases by the database's clock (rule S11)."""

import threading

import pytest
from sqlalchemy import create_engine, update

from pubsub_lib.errors import InvalidValueError
from pubsub_lib.store import Store, administration, schema
from tests.unit.store.conftest import Opener


def let_leases_end(url: str) -> None:
    """Let every lease expire: it ended a second ago, by the database's clock."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in (schema.services, schema.leases):
            connection.execute(update(table).values(lease_until=table.c.lease_until - 3_600_000_000))
    engine.dispose()


def test_leases_service_is_live_until_its_lease_expires(open_store: Opener, database_url: str) -> None:
    directory = open_store().directory
    directory.register("api", "u1", "tcp://host:1", 60)
    directory.register("api", "u2", "tcp://host:2", 60)
    directory.register("api", "u2", "tcp://host:3", 60)
    live = directory.live()
    assert [(each.service, each.uuid, each.address) for each in live] == [
        ("api", "u1", "tcp://host:1"),
        ("api", "u2", "tcp://host:3"),
    ]
    assert all(0 < each.seconds_left <= 60 for each in live)
    let_leases_end(database_url)
    assert directory.live() == []
    assert [(each.uuid, each.seconds_left < 0) for each in directory.entries()] == [("u1", True), ("u2", True)]
    directory.register("api", "u1", "tcp://host:1", 60)  # expired, but the entry is not yet removed
    assert [each.uuid for each in directory.live()] == ["u1"]
    assert directory.collect_garbage() == 1
    assert [each.uuid for each in directory.entries()] == ["u1"]
    assert directory.unregister("u1") is True
    assert directory.unregister("u1") is False


def test_leases_name_the_role_of_a_service(open_store: Opener) -> None:
    directory = open_store().directory
    directory.register("api", "u1", "tcp://host:1", 60)
    directory.register("relay", "u2", "tcp://host:2", 60, role="relay")
    assert [(each.service, each.role) for each in directory.live()] == [("api", "origin"), ("relay", "relay")]


def test_leases_have_one_holder(open_store: Opener, database_url: str) -> None:
    directory = open_store().directory
    assert directory.holder("l") is None
    assert directory.acquire("l", "a", 60) is True
    assert directory.acquire("l", "a", 60) is True  # renewed
    assert directory.acquire("l", "b", 60) is False
    assert directory.acquire("L", "b", 60) is True  # names are bytes
    assert directory.release("l", "b") is False
    assert directory.holder("l") == "a"
    let_leases_end(database_url)
    assert directory.holder("l") is None
    assert directory.acquire("l", "b", 60) is True
    assert directory.acquire("l", "a", 60) is False
    assert directory.release("l", "b") is True
    assert directory.acquire("l", "a", 60) is True


def test_leases_one_of_many_threads_acquires(store: Store) -> None:
    start, got = threading.Barrier(6), list[str]()

    def take(holder: str) -> None:
        start.wait()
        if store.directory.acquire("l", holder, 60):
            got.append(holder)

    threads = [threading.Thread(target=take, args=(f"h{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert store.directory.holder("l") == got[0]


def test_directory_rejects_invalid_arguments(store: Store) -> None:
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidValueError, match="lease"):
            store.directory.acquire("l", "a", seconds)
    with pytest.raises(InvalidValueError, match="service"):
        store.directory.register("", "u", "a", 1)
    with pytest.raises(InvalidValueError, match="address"):
        store.directory.register("s", "u", "a\0", 1)
    with pytest.raises(InvalidValueError, match="the key 'short' is not a CURVE key"):
        store.directory.register("s", "u", "a", 1, "short")


def test_entry_that_was_copied_with_the_database_is_not_live(store: Store, database_url: str) -> None:
    store.directory.register("original", "u1", "tcp://original", 60.0)
    administration.new_id(database_url)
    store.directory.register("copy", "u2", "tcp://copy", 60.0)
    assert [each.service for each in store.directory.live()] == ["copy"]
    entries = {each.service: each for each in store.directory.entries()}
    assert entries["original"].seconds_left > 0
    assert entries["original"].store_id != entries["copy"].store_id == store.read_heads([]).store_id.hex()
    store.directory.register("original", "u1", "tcp://original", 60.0)
    assert [each.service for each in store.directory.live()] == ["copy", "original"]
