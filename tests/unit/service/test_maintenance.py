"""Trimming and removing expired entries: only by the lease holder, within the given bounds."""

from collections.abc import Iterator

import pytest

from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.service.maintenance import TRIMMING, Maintenance
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


class Endless:
    """A store with links beyond the bounds; removing a part of them takes a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.bounds: list[object] = []
        self.parts = 7
        """Number of parts that are left."""
        self.failing = self.collected = 0

    @property
    def directory(self) -> "Endless":
        return self

    def collect_garbage(self) -> int:
        self.collected += 1
        return 0

    def trim_batches(self, *, keep_links: int | None = None, keep_seconds: float | None = None) -> Iterator[int]:
        self.bounds.append(keep_links)
        while self.parts:
            self.now += 1.0
            if self.failing:
                raise StoreUnavailable("the database does not answer in time")
            self.parts -= 1
            yield 1000


def trimming(store: Endless, held: list[bool]) -> Maintenance:
    return Maintenance(store, lambda now: held[0], 60.0, 5, 0.0, clock=lambda: store.now)


def test_step_trims_for_a_bounded_time_and_is_then_due_at_once() -> None:
    """A step that trims all would count as one of a thread that hangs."""
    store = Endless()
    maintenance = trimming(store, [True])
    for left in (5, 3, 1):
        begun = store.now
        assert maintenance.step(begun) == begun
        assert store.now == begun + TRIMMING
        assert store.parts == left
    assert maintenance.step(store.now) == store.now - 1.0 + 60.0
    assert maintenance.counters() == {"trimmed": 7000, "collected": 0}
    assert (store.bounds, store.collected) == ([5], 1), "the cut is computed once"
    maintenance.step(store.now)
    assert (store.bounds, store.collected) == ([5, 5], 2)


def test_trimming_of_several_steps_ends_with_the_lease_and_uses_new_bounds() -> None:
    store, held = Endless(), [True]
    maintenance = trimming(store, held)
    maintenance.step(store.now)
    maintenance.adjust(60.0, 4, 0.0)
    maintenance.step(store.now)
    assert (store.bounds, store.parts) == ([5, 4], 3)
    held[0] = False
    assert maintenance.step(store.now) == store.now + 60.0
    assert store.parts == 3
    held[0] = True
    maintenance.step(store.now)
    assert store.bounds == [5, 4, 4]


def test_trimming_that_failed_begins_again() -> None:
    store = Endless()
    maintenance = trimming(store, [True])
    maintenance.step(store.now)
    store.failing = 1
    with pytest.raises(StoreUnavailable):
        maintenance.step(store.now)
    store.failing = 0
    maintenance.step(store.now)
    assert (store.bounds, store.parts) == ([5, 5], 3)
    assert maintenance.counters()["trimmed"] == 4000
