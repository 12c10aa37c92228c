"""The entry and the leases, on real databases: one holder per lease, and a removed entry is registered again."""

import threading
import time
from collections.abc import Iterator

import pytest

from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.service.leases import MAINTENANCE, ORPHANS, Leases
from pubsub_lib.store import Store

SECONDS = 60.0


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store(database_url) as store:
        yield store


def leases(store: Store, name: str, seconds: float = SECONDS) -> Leases:
    return Leases(store.directory, name, f"uuid-{name}", f"tcp://{name}:1", seconds, time.monotonic())


def test_first_service_holds_the_leases_and_the_second_does_not(store: Store) -> None:
    first, second = leases(store, "api-1"), leases(store, "api-2")
    again = first.step(time.monotonic())
    assert time.monotonic() < again <= time.monotonic() + SECONDS
    second.step(time.monotonic())
    now = time.monotonic()
    assert first.registered(now)
    assert second.registered(now)
    assert [(each.service, each.address) for each in store.directory.live()] == [
        ("api-1", "tcp://api-1:1"),
        ("api-2", "tcp://api-2:1"),
    ]
    assert (first.holds(ORPHANS, now), first.holds(MAINTENANCE, now)) == (True, True)
    assert second.orphans(now)[1] is False
    first.leave()
    assert [each.service for each in store.directory.live()] == ["api-2"]
    second.step(now + SECONDS)
    live, held = second.orphans(time.monotonic())
    assert held
    assert live == {"api-2"}


def test_relay_has_an_entry_and_takes_no_work_on_the_changelog(store: Store) -> None:
    relay = Leases(store.directory, "relay-1", "u-1", "tcp://relay-1:1", SECONDS, time.monotonic(), role="relay")
    again = relay.step(time.monotonic())
    assert again > time.monotonic()
    assert [(each.service, each.role) for each in store.directory.live()] == [("relay-1", "relay")]
    assert store.directory.holder(ORPHANS) is None
    assert store.directory.holder(MAINTENANCE) is None
    relay.leave()
    assert store.directory.live() == []


def test_last_reading_has_the_live_services_and_its_time(store: Store) -> None:
    mine = leases(store, "api-1")
    assert mine.last_reading[1] == float("-inf")
    begun = time.monotonic()
    mine.step(begun)
    entries, at = mine.last_reading
    assert begun <= at <= time.monotonic()
    assert [(each.service, each.uuid, each.address) for each in entries] == [("api-1", "uuid-api-1", "tcp://api-1:1")]
    assert 0 < entries[0].seconds_left <= SECONDS


def test_removed_entry_of_a_live_service_returns_at_the_next_renewal(store: Store) -> None:
    mine = leases(store, "api-1")
    mine.step(time.monotonic())
    store.directory.unregister("uuid-api-1")
    mine.step(time.monotonic() + SECONDS)
    assert [each.service for each in store.directory.live()] == ["api-1"]


def test_leaving_is_left_out_when_no_thread_can_be_started(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = leases(store, "api-1")
    mine.step(time.monotonic())

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    mine.leave_within(SECONDS)
    assert "the entry expires by itself: cannot start the thread 'pubsub-leaving'" in caplog.text


def test_leases_that_were_not_renewed_are_not_held(store: Store) -> None:
    mine = leases(store, "api-1")
    now = time.monotonic()
    mine.step(now)
    assert not mine.holds(MAINTENANCE, now + 2 * SECONDS)
    assert not mine.registered(now + 2 * SECONDS)


def test_orphans_lease_counts_only_with_a_new_list_of_services(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise links of a live service that is not in the old list would be taken for orphans."""
    with Store(sqlite_url) as store:
        mine = leases(store, "api-1")

        def fail() -> None:
            raise StoreUnavailable("out")

        monkeypatch.setattr(store.directory, "live", fail)
        with pytest.raises(StoreUnavailable):
            mine.step(time.monotonic())
        assert mine.orphans(time.monotonic()) == (frozenset(), False)


def services_of_one_name(store: Store, count: int) -> list[Leases]:
    now = time.monotonic() - SECONDS
    return [Leases(store.directory, "api-1", f"uuid-{number}", "tcp://same:1", SECONDS, now) for number in range(count)]


def test_one_of_two_services_with_one_name_must_stop(store: Store) -> None:
    """Both services are registered before either reads the directory."""
    first, second = services_of_one_name(store, 2)
    for uuid in ("uuid-0", "uuid-1"):
        store.directory.register("api-1", uuid, "tcp://same:1", SECONDS)
    for turn in range(1, 4):
        for each in (second, first):
            each.step(time.monotonic() + turn * SECONDS)
    assert second.name_conflicts.older is None
    assert second.name_conflicts.younger is not None
    assert first.name_conflicts.older is not None
    assert (first.name_conflicts.older.uuid, first.name_conflicts.younger) == ("uuid-1", None)
    first.leave()
    second.step(time.monotonic() + 5 * SECONDS)
    assert second.name_conflicts.younger is None


def test_dead_predecessor_is_not_a_name_conflict_with_a_slow_database(sqlite_url: str) -> None:
    """A step takes its time before its queries: with a slow first query the entry of a killed service once looked
    renewed at the second step."""
    with Store(sqlite_url) as store:
        killed, mine = services_of_one_name(store, 2)
        killed.step(time.monotonic())
        mine.step(time.monotonic() - 0.7 * SECONDS)
        for turn in range(4):
            mine.step(time.monotonic() + turn * SECONDS)
            assert (mine.name_conflicts.older, mine.name_conflicts.younger) == (None, None)
