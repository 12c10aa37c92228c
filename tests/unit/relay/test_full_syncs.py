"""A relay's full syncs from the database: two at a time, also after a holder of a lease has died."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core.model import ZERO, Point, SyncAnswer, Want
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import StoreBusy, StoreUnavailable
from pubsub_lib.relay import full_syncs
from pubsub_lib.relay.full_syncs import LEASES, MAX_WAIT, FullSyncReader, longest_wait
from pubsub_lib.replica.sync_reader import interrupt
from pubsub_lib.sync.client import Busy
from pubsub_lib.sync.question import SyncQuestion
from tests.unit.world import LONG

FULL = {"t": Want()}
ANSWER = SyncAnswer(ZERO, {})
FROM_SIBLING = SyncAnswer(ZERO, {}, ages={})
SECONDS = 5.0


class Database:
    """Answers when ``go`` is set. ``most``: readings that ran at the same time."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = self.most = 0
        self.read: list[Mapping[str, Want]] = []
        self._lock = threading.Lock()

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.go.wait(LONG)
        with self._lock:
            self.running -= 1
            self.read.append(wants)
        return ANSWER


class Beside:
    """Another relay, which has nothing until it is ``ready``."""

    def __init__(self, error: StoreUnavailable | None = None) -> None:
        self.error = error or StoreUnavailable("it cannot be reached")
        self.ready = self.closed = False
        self.asked = self.forgot = 0

    def ask(self, question: SyncQuestion) -> SyncAnswer:
        self.asked += 1
        if not self.ready:
            raise self.error
        return FROM_SIBLING

    def close(self) -> None:
        self.closed = True

    def forget(self) -> None:
        self.forgot += 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_syncs, "LOOK", 0.02)


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with Store(sqlite_url) as store:
        yield store


@pytest.fixture
def database() -> Database:
    return Database()


def reader(
    store: Store, database: Database, wait: float = LONG, seconds: float = SECONDS, **more: Any
) -> FullSyncReader:
    return FullSyncReader(database, store.directory, seconds, wait, rng=Random(0), **more)


@contextmanager
def held_by_others(store: Store, seconds: float = LONG) -> Iterator[None]:
    for name in LEASES:
        assert store.directory.acquire(name, "another relay", seconds)
    yield
    for name in LEASES:
        store.directory.release(name, "another relay")


def test_of_many_relays_two_read_all_objects_at_the_same_time(store: Store, database: Database) -> None:
    relays = [reader(store, database) for _ in range(5)]
    with ThreadPoolExecutor(5) as threads:
        answers = [threads.submit(each.ask, SyncQuestion(FULL)) for each in relays]
        assert poll(lambda: sum(each.holds for each in relays) == 2 and sum(each.waits for each in relays) == 3, LONG)
        waiting = next(each for each in relays if each.waits)
        assert waiting.problems() == [
            "the relay waits for one of the 2 leases for reading all objects from the database; other relays have them"
        ]
        database.go.set()
        assert [each.result(LONG) for each in answers] == [ANSWER] * 5
    assert (database.most, len(database.read)) == (2, 5)
    assert not any(each.holds or each.waits or each.problems() for each in relays)
    assert [store.directory.holder(name) for name in LEASES] == [None, None]


def test_of_relays_that_name_each_other_one_reads_all_objects(store: Store, database: Database) -> None:
    beside = Beside()
    first, second = (reader(store, database, siblings=beside) for _ in range(2))
    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(each.ask, SyncQuestion(FULL)) for each in (first, second)]
        assert poll(lambda: {first.holds, second.waits} == {True} or {second.holds, first.waits} == {True}, LONG)
        waiting = second if second.waits else first
        assert waiting.problems() == [
            f"the relay waits for the lease {LEASES[0]} for reading all objects from the database; another relay has it"
        ]
        beside.ready = True
        assert poll(lambda: not waiting.waits, LONG), "the sibling has all objects, before the reading ends"
        database.go.set()
        assert [each.result(LONG) for each in answers].count(FROM_SIBLING) == 1
    assert len(database.read) == 1


def test_relay_that_gets_no_lease_is_to_come_again_soon(store: Store, database: Database) -> None:
    with held_by_others(store):
        with pytest.raises(Busy, match="the 2 leases for reading all objects from the database are held by") as caught:
            reader(store, database, wait=0.05).ask(SyncQuestion(FULL))
        assert caught.value.seconds == full_syncs.LOOK
        with pytest.raises(Busy, match=f"the lease {LEASES[0]} for reading all objects from the database is held by"):
            reader(store, database, wait=0.05, siblings=Beside()).ask(SyncQuestion(FULL))


def test_deltas_and_repairs_of_some_buckets_need_no_lease(store: Store, database: Database) -> None:
    database.go.set()
    wants = {"t": Want(Point(1, 1)), "u": Want(buckets={1: 2})}
    with held_by_others(store):
        assert reader(store, database).ask(SyncQuestion(wants)) == ANSWER
        with pytest.raises(StoreUnavailable, match="2 leases for reading all objects"):
            reader(store, database, wait=0.05).ask(SyncQuestion({**wants, "v": Want(known=Point(1, 1))}))
    assert database.read == [wants]


def test_relay_that_gets_no_lease_fails_its_sync_and_still_waits(store: Store, database: Database) -> None:
    database.go.set()
    relay = reader(store, database, wait=0.05)
    with held_by_others(store):
        with pytest.raises(StoreUnavailable, match="held by other relays"):
            relay.ask(SyncQuestion(FULL))
        assert relay.problems()
        relay.ask(SyncQuestion({"t": Want(Point(1, 1))}))
        assert not relay.problems(), "it needs no full sync any more"
        with pytest.raises(StoreUnavailable):
            relay.ask(SyncQuestion(FULL))
    assert relay.ask(SyncQuestion(FULL)) == ANSWER
    assert not relay.problems()


def test_lease_of_a_dead_relay_expires(store: Store, database: Database) -> None:
    database.go.set()
    begun = time.monotonic()
    for name in LEASES:
        assert store.directory.acquire(name, "dead", 0.3)
    assert reader(store, database).ask(SyncQuestion(FULL)) == ANSWER
    assert time.monotonic() - begun >= 0.25


def test_lease_is_renewed_while_the_reading_runs(store: Store, database: Database) -> None:
    lease = 3.0  # on a busy machine a renewal may be late by two seconds
    first, second, third = (reader(store, database, seconds=lease) for _ in range(3))
    with ThreadPoolExecutor(3) as threads:
        answers = [threads.submit(each.ask, SyncQuestion(FULL)) for each in (first, second)]
        assert poll(lambda: first.holds and second.holds, LONG)
        answers.append(threads.submit(third.ask, SyncQuestion(FULL)))
        until = time.monotonic() + 2 * lease
        assert not poll(lambda: third.holds, until - time.monotonic())
        database.go.set()
        assert [each.result(LONG) for each in answers] == [ANSWER] * 3
    assert database.most == 2


def test_lease_that_is_taken_by_two_at_once_belongs_to_one(store: Store, database: Database) -> None:
    database.go.set()
    directory = store.directory

    class Collides:
        """The first attempt for each lease meets another one."""

        met: set[str] = set()  # noqa: RUF012 - of one test

        def acquire(self, name: str, holder: str, seconds: float) -> bool:
            if name not in self.met:
                self.met.add(name)
                raise StoreBusy("two at once")
            return directory.acquire(name, holder, seconds)

        def release(self, name: str, holder: str) -> bool:
            return directory.release(name, holder)

    assert FullSyncReader(database, Collides(), SECONDS, LONG).ask(SyncQuestion(FULL)) == ANSWER
    assert Collides.met == set(LEASES)


def test_objects_come_from_a_sibling_as_soon_as_it_has_them(store: Store, database: Database) -> None:
    sibling = Beside()
    relay = reader(store, database, siblings=sibling)
    with held_by_others(store), ThreadPoolExecutor(1) as threads:
        answer = threads.submit(relay.ask, SyncQuestion(FULL))
        assert poll(lambda: relay.waits and sibling.asked >= 2, LONG)
        sibling.ready = True
        assert answer.result(LONG) is FROM_SIBLING
    assert not relay.problems()
    assert database.read == []


def test_sibling_that_read_the_database_is_waited_for(store: Store, database: Database) -> None:
    """It released its lease, and does not answer yet."""
    database.go.set()
    sibling = Beside(Busy("it is not synced", 1.0))
    relay = reader(store, database, siblings=sibling)
    with ThreadPoolExecutor(1) as threads:
        with held_by_others(store):
            answer = threads.submit(relay.ask, SyncQuestion(FULL))
            assert poll(lambda: relay.waits, LONG)
        asked = sibling.asked
        assert poll(lambda: sibling.asked >= asked + 3, LONG)
        sibling.ready = True
        assert answer.result(LONG) is FROM_SIBLING
    assert database.read == []


def test_sibling_that_never_has_the_objects_delays_one_sync(store: Store, database: Database) -> None:
    database.go.set()
    relay = reader(store, database, wait=0.2, siblings=Beside(Busy("it is not synced", 1.0)))
    with held_by_others(store), pytest.raises(Busy):
        relay.ask(SyncQuestion(FULL))
    assert relay.ask(SyncQuestion(FULL)) is ANSWER


def test_after_a_siblings_answer_that_did_not_help_the_database_is_read(store: Store, database: Database) -> None:
    database.go.set()
    sibling = Beside()
    sibling.ready = True
    relay = reader(store, database, siblings=sibling)
    assert relay.ask(SyncQuestion(FULL)) is FROM_SIBLING
    assert sibling.forgot == 0
    assert relay.ask(SyncQuestion(FULL, refresh=True)) is ANSWER
    assert sibling.forgot == 1, "it needs no memory for a part of an answer"
    assert relay.ask(SyncQuestion(FULL)) is FROM_SIBLING
    assert relay.ask(SyncQuestion({"t": Want(Point(1, 1))})) is ANSWER, "links come from the database"
    assert sibling.asked == 2


def test_consistency_check_of_tests_needs_no_lease(store: Store, database: Database) -> None:
    database.go.set()
    relay = reader(store, database, siblings=Beside())
    with held_by_others(store):
        assert relay.read_sync(FULL) is ANSWER
    assert not relay.waits


def test_closing_ends_the_wait_and_a_question_to_a_sibling(store: Store, database: Database) -> None:
    sibling = Beside()
    relay = reader(store, database, siblings=sibling)
    with held_by_others(store), ThreadPoolExecutor(1) as threads:
        answer = threads.submit(relay.ask, SyncQuestion(FULL))
        assert poll(lambda: relay.waits, LONG)
        interrupt(relay)
        with pytest.raises(StoreUnavailable):
            answer.result(LONG)
    assert sibling.closed


def test_wait_is_a_small_part_of_the_time_that_a_sync_has() -> None:
    assert longest_wait(Timing()) == MAX_WAIT
    assert longest_wait(Timing(sync_timeout=10.0)) == 1.0
