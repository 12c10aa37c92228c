"""The threads of a replica survive errors of the store."""

import logging
import threading
from collections.abc import Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import pytest

from pubsub_lib import Replica, Settings, Store
from pubsub_lib.core.events import Event
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.model import Point, SyncAnswer, Want
from pubsub_lib.core.replica_state import ReplicaState, StepResult
from pubsub_lib.errors import StoreUnavailable, WaitTimeout
from tests.unit.world import busy, settings

LONG = 120.0


@pytest.fixture
def store(config: Settings) -> Iterator[Store]:
    with Store(config.store_url) as store, store.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
        yield store


class Broken:
    """A real reader whose first answers are exceptions."""

    def __init__(self, store: Store, failures: list[Exception]) -> None:
        self._store = store
        self.failures = failures

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        if self.failures:
            raise self.failures.pop(0)
        return self._store.read_sync(wants)


def test_the_sync_thread_survives_every_exception_of_a_reader(
    config: Settings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Broken(store, [StoreUnavailable("out"), StoreUnavailable("out"), ZeroDivisionError("a bug")])
    with caplog.at_level(logging.WARNING), Replica(config, topics=["t"], store=reader) as replica:
        replica.wait_synced(timeout=LONG)
        assert replica.status().counters.syncs_failed == 3
    messages = [record.getMessage() for record in caplog.records if record.name.endswith("fault_log")]
    assert messages.count("a sync failed and will be retried: out") == 1, "an outage is logged once"
    assert sum("please report" in message for message in messages) == 1


def test_a_follow_up_step_has_its_notice_between_the_events(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = Point(9, 1)
    first, second = (
        Event("a", "2", "t", "delete", 5, 4, b"1", None, 9),
        Event("a", "2", "t", "create", 4, None, None, b"1", 9),
    )
    calls: SimpleQueue[object] = SimpleQueue()
    change = HistoryChange({"t": (point, point)})
    steps = [StepResult([first], then=StepResult([second], history=change))]
    with Replica(config, topics=["t"], store=store) as replica:
        replica.wait_synced(timeout=LONG)
        replica.on("a", lambda change: calls.put(change.version), key="2", on_history_changed=calls.put)
        monkeypatch.setattr(ReplicaState, "tick", lambda *_: steps.pop() if steps else StepResult())
        replica.resync("t")  # wakes the clock
        assert [calls.get(timeout=LONG) for _ in range(3)] == [5, change, 4]


def test_an_incomplete_answer_is_a_failed_sync(config: Settings, store: Store) -> None:
    reader = Incomplete(store)
    with Replica(config, topics=["t"], store=reader) as replica:
        replica.wait_synced(timeout=LONG)
        assert reader.failures == 0
        assert replica.status().counters.syncs_failed == 2


class Incomplete:
    """A real reader whose first answers are empty."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.failures = 2

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        answer = self._store.read_sync(wants)
        if self.failures:
            self.failures -= 1
            return SyncAnswer(answer.store, {})
        return answer


def test_rule_09_an_answer_that_comes_after_the_timeout_is_ignored(sqlite_url: str, store: Store) -> None:
    from msgspec.structs import replace

    from tests.unit.world import QUICK

    slow = Slow(store)
    config = settings(sqlite_url, timing=replace(QUICK, sync_timeout=0.2))
    with Replica(config, topics=["t"], store=slow) as replica:
        assert slow.reading.wait(LONG)
        while replica.status().counters.syncs_failed == 0:
            assert not slow.release.wait(0.01)
        slow.release.set()
        replica.wait_synced(timeout=LONG)
        assert replica.status().counters.late_answers == 1


class Slow:
    """A real reader that delays its first answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reading = threading.Event()
        self.release = threading.Event()

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        answer = self._store.read_sync(wants)
        self.reading.set()
        assert self.release.wait(LONG)
        return answer


def test_close_ends_all_threads(config: Settings, store: Store) -> None:
    before = set(threading.enumerate())  # another test's driver may still be ending a thread
    with Replica(config, topics=["t"]) as replica:
        replica.on("a", _nothing)
        replica.wait_synced(timeout=LONG)
        ours = set(threading.enumerate()) - before
        assert {"pubsub-clock", "pubsub-sync"} <= {thread.name for thread in ours}
    assert [thread for thread in ours if thread.is_alive()] == []


def _nothing(change: Any) -> None:
    pass


def test_a_wait_ends_by_a_step_or_by_its_timeout(config: Settings, store: Store) -> None:
    with Replica(config, topics=["t"], store=store) as replica:
        engine = replica._engine
        engine.wait(lambda state: state.tracker.synced, None, "the sync")
        with pytest.raises(WaitTimeout, match="timed out waiting for rain"):
            engine.wait(lambda state: False, engine.now() + 0.01, "rain")


def test_a_call_that_must_not_block_is_left_out_while_another_thread_holds_the_lock(
    config: Settings, store: Store
) -> None:
    replica = Replica(config, topics=["t"], store=store)
    assert replica._engine.call_if_free(replica.staleness) == (float("inf"),)
    with busy(replica):
        assert replica._engine.call_if_free(replica.staleness) is None
    with pytest.raises(ZeroDivisionError):
        replica._engine.call_if_free(lambda: 1 // 0)
    with busy(replica):  # the call released the lock
        pass
    replica.close()
