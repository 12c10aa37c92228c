"""Trimming and removing expired entries: only by the lease holder, within the given bounds."""

import pytest

from pubsub_lib.service.maintenance import Maintenance
from pubsub_lib.store import Store


def filled(store: Store) -> None:
    for value in range(5):
        with store.transaction() as tx:
            tx.set("t", "k", value)
    store.directory.register("gone", "uuid-gone", "", 0.001)


def links_of(store: Store) -> int:
    return len(store.read_links(None, 100)[0])


def test_only_the_lease_holder_cleans_up(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        filled(store)
        held = [False]
        maintenance = Maintenance(store, lambda now: held[0], 60.0, 2, 0.0)
        assert maintenance.step(10.0) == 70.0
        assert links_of(store) == 5
        held[0] = True
        while not maintenance.counters()["collected"]:  # the lease of one millisecond expires by the database's clock
            maintenance.step(70.0)
        assert maintenance.counters() == {"trimmed": 3, "collected": 1}
        assert links_of(store) == 2


@pytest.mark.parametrize(("keep_links", "keep_time"), [(0, 0.0), (0, 3600.0), (100, 3600.0)])
def test_links_within_the_bounds_are_kept(keep_links: int, keep_time: float, sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        filled(store)
        maintenance = Maintenance(store, lambda now: True, 60.0, keep_links, keep_time)
        maintenance.step(0.0)
        assert maintenance.counters()["trimmed"] == 0
        assert links_of(store) == 5


def test_adjusted_bounds_and_interval_are_those_of_the_next_step(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        filled(store)
        maintenance = Maintenance(store, lambda now: True, 60.0, 0, 0.0)
        maintenance.step(0.0)
        maintenance.adjust(7.0, 2, 0.0)
        assert maintenance.step(1.0) == 8.0
        assert links_of(store) == 2
        maintenance.adjust(7.0, 0, 3600.0)
        with store.transaction() as tx:
            tx.set("t", "k", "last")
        maintenance.step(8.0)
        assert links_of(store) == 3
