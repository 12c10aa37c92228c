"""A program's own publisher enters itself in the directory; with keys it follows the store's clients."""

import threading
import time
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from _patience import longest
from _processes import poll

from pubsub_lib import Publisher, Settings, Store
from pubsub_lib.api import Client
from pubsub_lib.errors import ConfigError, StoreUnavailable, UsageError
from pubsub_lib.publisher.admission import LEASE, Admission, Entry, admission_of

LONG = longest(30.0)
KEY = "a" * 40
ONE = Client("one", "b" * 40, frozenset({"t1"}))


class DriverDouble:
    def __init__(self) -> None:
        self.admitted: list[set[Client]] = []

    def admit(self, clients: Collection[Client]) -> None:
        self.admitted.append(set(clients))

    def public_key(self) -> str:
        return KEY


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry is removed before the publisher is closed, also when the database is slow."""
    monkeypatch.setattr("pubsub_lib.publisher.admission._LEAVE", LONG)


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with Store(sqlite_url) as store:
        yield store


def settings(store_url: str, **options: Any) -> Settings:
    given = {"driver": "zmq_pubsub_driver", "service_name": "api-1", "bind_address": "tcp://127.0.0.1:*", "keys": True}
    return Settings(store_url=store_url, **{**given, **options})


def test_clients_are_admitted_when_they_change(store: Store) -> None:
    driver: Any = DriverDouble()
    admission = Admission(store.directory, driver, 2.0, None)
    assert admission.clients == frozenset()
    assert admission.step(1.0) == 3.0
    admission.step(3.0)
    store.directory.clients.add(ONE)
    admission.step(5.0)
    assert admission.clients == {ONE}
    admission.step(7.0)
    store.directory.clients.revoke("one")
    admission.step(9.0)
    assert driver.admitted == [set(), {ONE}, set()]
    assert store.directory.entries() == []


def test_clients_stay_while_the_database_is_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Any = DriverDouble()
    store.directory.clients.add(ONE)
    admission = Admission(store.directory, driver, 2.0, None)
    admission.step(1.0)

    def fail() -> None:
        raise StoreUnavailable("out")

    monkeypatch.setattr(store.directory.clients, "all", fail)
    with pytest.raises(StoreUnavailable):
        admission.step(3.0)
    assert driver.admitted == [{ONE}]


def test_own_publisher_renews_and_removes_its_entry(store: Store) -> None:
    driver: Any = DriverDouble()
    admission = Admission(store.directory, driver, 2.0, Entry("api-1", "u1", "tcp://host:1", KEY))
    admission.step(1.0)
    first = store.directory.live()[0]
    assert (first.service, first.uuid, first.address, first.public_key) == ("api-1", "u1", "tcp://host:1", KEY)
    admission.step(1.0 + LEASE / 4)
    assert store.directory.live()[0].lease_until == first.lease_until
    admission.step(1.0 + LEASE / 2)
    assert store.directory.live()[0].lease_until > first.lease_until
    admission.close()
    assert store.directory.live() == []


def test_entry_expires_by_itself_when_no_thread_can_be_started(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    admission = Admission(store.directory, None, 2.0, Entry("api-1", "u1"))
    admission.step(1.0)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    admission.close()
    assert "the entry expires by itself: cannot start the thread 'pubsub-leaving'" in caplog.text


@pytest.mark.parametrize("interval", [0.1, 2.0, 60.0])
def test_own_entry_never_expires_between_two_steps(store: Store, interval: float) -> None:
    """Also with seldom reading of the clients: replicas trust no publisher without a live entry."""
    driver: Any = DriverDouble()
    admission = Admission(store.directory, driver, interval, Entry("api-1", "u1", "tcp://host:1", KEY))
    renewed, now = 0.0, 0.0
    before = -1
    while now < 3 * LEASE:
        after = admission.step(now)
        until = store.directory.live()[0].lease_until
        if until > before:
            renewed, before = now, until
        assert now < after <= now + interval
        assert after - renewed <= LEASE / 2
        now = after


def test_publisher_with_keys_is_in_the_directory_while_it_runs(store: Store, sqlite_url: str) -> None:
    with Publisher(settings(sqlite_url), store) as publisher:
        assert poll(lambda: bool(store.directory.live()), LONG)
        entry = store.directory.live()[0]
        assert (entry.service, entry.uuid) == ("api-1", publisher.uuid)
        assert len(entry.public_key) == 40
    assert store.directory.live() == []


def test_clients_that_are_not_read_become_stale(store: Store) -> None:
    driver: Any = DriverDouble()
    admission = Admission(store.directory, driver, 0.1, None)
    admission.start()
    try:
        assert poll(lambda: driver.admitted == [set()], LONG)
        assert poll(lambda: not admission.is_stale(time.monotonic()), LONG)
        assert admission.is_stale(time.monotonic() + 2 * LEASE)
    finally:
        admission.close()


def test_publisher_with_keys_needs_an_address_and_a_directory(store: Store, sqlite_url: str) -> None:
    with pytest.raises(ConfigError, match=r"tcp://\*:8866 names no host"):
        Publisher(settings(sqlite_url, bind_address="tcp://*:8866"), store)
    Publisher(settings(sqlite_url, bind_address="tcp://*:8866"), store, entered=True).close()
    for keys in (True, False):
        free = settings(sqlite_url, bind_address="tcp://127.0.0.1:0", keys=keys)
        with pytest.raises(ConfigError, match="by which no replica finds a program's own publisher"):
            Publisher(free, store)
        Publisher(free, store, entered=True).close()
    driver: Any = DriverDouble()
    with pytest.raises(UsageError, match="pass a Store"):
        admission_of(settings(sqlite_url), object(), driver, "")


def test_publisher_without_keys_is_in_the_directory_while_it_runs(store: Store, sqlite_url: str) -> None:
    """Replicas that know the directory use no message of another UUID. They find the publisher by their settings only,
    so no address is given: it may be one of this host only.
    """
    with Publisher(settings(sqlite_url, keys=False), store) as publisher:
        assert poll(lambda: bool(store.directory.live()), LONG)
        entry = store.directory.live()[0]
        assert (entry.service, entry.uuid, entry.address, entry.public_key) == ("api-1", publisher.uuid, "", "")
    assert store.directory.live() == []


def test_entry_without_keys_is_renewed_and_no_client_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(store.directory, "clients")
    admission = Admission(store.directory, None, LEASE, Entry("api-1", "u1"))
    assert admission.step(1.0) < 1.0 + LEASE / 2
    first = store.directory.live()[0].lease_until
    assert admission.step(1.0 + LEASE / 2) < 1.0 + LEASE
    assert store.directory.live()[0].lease_until > first
    assert admission.clients == frozenset()
    admission.close()
    assert store.directory.live() == []


def test_publisher_that_needs_no_entry_makes_none(store: Store, sqlite_url: str) -> None:
    """The service makes its own; other drivers' replicas do not read the directory; a store need not have one."""
    driver: Any = DriverDouble()
    given = settings(sqlite_url, keys=False)
    assert admission_of(given, store, driver, "") is None
    assert admission_of(settings(sqlite_url, keys=False, driver="memory"), store, driver, "u1") is None
    assert admission_of(given, object(), driver, "u1") is None
    assert admission_of(given, store, driver, "u1") is not None


def test_publisher_that_never_started_removes_no_entry(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(store.directory, "unregister", removed.append)
    admission = Admission(store.directory, None, LEASE, Entry("api-1", "u1"))
    admission.close()
    assert removed == []
    admission.step(1.0)
    admission.close()
    assert removed == ["u1"]
