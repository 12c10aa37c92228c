"""Columns and expressions that mean the same on every database."""

import time

import pytest
from sqlalchemy import select

from pubsub_lib.store import Store
from pubsub_lib.store.types import NowMicroseconds
from tests.unit.store.conftest import Opener


def test_leases_now_is_utc_in_microseconds(store: Store) -> None:
    before = time.time()
    now = store._read("asking", lambda connection: connection.execute(select(NowMicroseconds())).scalar_one())
    # The server runs on this host; a time zone would be off by at least a quarter of an hour.
    assert before - 5 < now / 1e6 < time.time() + 5


def test_now_advances_within_a_transaction(store: Store) -> None:
    def ask(connection: object) -> tuple[int, int]:
        first = connection.execute(select(NowMicroseconds())).scalar_one()  # type: ignore[attr-defined]
        while (second := connection.execute(select(NowMicroseconds())).scalar_one()) == first:  # type: ignore[attr-defined]
            pass
        return first, second

    first, second = store._read("asking", ask)
    assert second > first


@pytest.mark.parametrize("time_zone", ["+05:45", "-11:00"])
def test_now_does_not_depend_on_the_servers_time_zone(time_zone: str, mariadb_url: str) -> None:
    with Store(mariadb_url) as store, store._readers.connect() as connection:
        connection.exec_driver_sql(f"SET time_zone = '{time_zone}'")
        now = connection.execute(select(NowMicroseconds())).scalar_one()
    assert abs(now / 1e6 - time.time()) < 5


def test_names_are_returned_as_text_sorted_as_bytes(open_store: Opener) -> None:
    store = open_store()
    names = ["b", "a ", "Z", "a", "ä", "\U0001f600", "\uffff"]
    with store.transaction() as tx:
        for name in names:
            tx.set("t", "k" + name, 1, topic=name)
    assert set(store.topics()) == set(names)
    links, _, _ = store.read_links(None, 100)
    assert [link.topic for link in links] == sorted(names, key=str.encode)
