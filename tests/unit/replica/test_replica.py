"""The replica's public methods, with a real SQLite store and the real in-process driver."""

import contextlib
import multiprocessing
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from _patience import longest
from _processes import free_port, poll

from pubsub_lib import DEFAULT_TOPIC, Publisher, Replica, Settings, Store, Table, loader
from pubsub_lib.api import Subscriber
from pubsub_lib.core.model import Point
from pubsub_lib.errors import (
    ClosedError,
    InvalidValueError,
    NotSubscribedError,
    PubSubError,
    TransportError,
    UsageError,
    WaitTimeout,
)
from pubsub_lib.replica.scheduling import Scheduler, Threads
from tests.unit.replica.test_parent_subscriber import Driver
from tests.unit.world import Recorder, busy, settings

LONG = longest(120.0)
"""Seconds; far longer than the waits of these tests, unless something fails."""


@pytest.fixture
def published(config: Settings, store: Store) -> Iterator[Store]:
    """A store whose commits are sent at once."""
    with Publisher(config, store):
        yield store


def test_replica_receives_committed_changes(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("lport", "p1", {"switch": "s1"}, topic="tenant-1")
        tx.set("lport", "q1", {"switch": "s2"}, topic="tenant-2")
    recorder = Recorder()
    with Replica(config, topics=["tenant-1"]) as replica:
        replica.on("lport", recorder)
        replica.wait_synced(timeout=LONG)
        assert replica.synced
        assert replica.get("lport", "p1") == {"switch": "s1"}
        assert replica.get("lport", "q1") is None
        with published.transaction() as tx:
            tx.update("lport", "p1", {"switch": "s3"})
            tx.create("lport", "p2", {"switch": "s3"}, topic="tenant-1")
        with published.transaction() as tx2:
            tx2.delete("lport", "p2")
        assert tx2.commit is not None
        replica.wait_handled(tx2.commit, timeout=LONG)
        assert recorder.brief == [
            ("create", "p1", {"switch": "s1"}),
            ("set", "p1", {"switch": "s3"}),
            ("create", "p2", {"switch": "s3"}),
            ("delete", "p2", None),
        ]
        assert recorder.changes[1].old == {"switch": "s1"}
        status = replica.status()
        assert status.counters.fulls == {"greeted": 2}  # the default topic is one
        assert status.faults.guarded == status.faults.mismatches == 0
        assert status.staleness < LONG


@pytest.mark.parametrize("late", [False, True])
def test_wait_handled_waits_for_the_changes_that_a_sync_brought(config: Settings, store: Store, late: bool) -> None:
    with store.transaction() as tx1:
        tx1.set("port", "1", 1, topic="t")
    with store.transaction() as tx2:
        tx2.set("port", "2", 2, topic="t")
    assert tx1.commit is not None
    release = threading.Event()
    with Replica(config, ["t"], default_topic=False) as replica:
        if late:  # the handler's initial events are those of the existing objects
            replica.wait_synced(LONG)
        replica.on("port", lambda change: release.wait(LONG))
        replica.wait_for(tx2.commit, LONG)
        for position in (tx1.commit, tx1.commit.point.position):
            with pytest.raises(WaitTimeout, match="did not handle the events up to position 1 in time"):
                replica.wait_handled(position, 0.1)
        release.set()
        replica.wait_handled(tx1.commit, LONG)


def test_replica_without_topics_subscribes_to_everything(config: Settings, published: Store) -> None:
    with Replica(config) as replica:
        replica.wait_synced(timeout=LONG)
        with published.transaction() as tx:
            tx.set("a", "1", 1, topic="one")
            tx.set("a", "2", 2, topic="two")
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=LONG)
        assert dict(replica.iterate("a")) == {"1": 1, "2": 2}
        assert dict(replica.iterate("a", topic="two")) == {"2": 2}
        replica.wait_for(tx.commit.point.position, timeout=LONG)
        (everything,) = replica.topics
        assert dict(replica.iterate("a", topic=everything)) == {"1": 1, "2": 2}
        recorder = Recorder()
        replica.on("a", recorder, topic=everything)
        with published.transaction() as tx:
            tx.set("a", "1", 3)
        replica.wait_handled(tx.commit, timeout=LONG)
        assert recorder.brief == [("create", "1", 1), ("create", "2", 2), ("set", "1", 3)]


def test_wait_for_a_position_ends_although_a_subscribed_topic_did_not_change(
    config: Settings, published: Store
) -> None:
    with published.transaction() as tx:
        tx.set("a", "1", 1, topic="quiet")
    with Replica(config, topics=["quiet", "busy"]) as replica:
        replica.wait_synced(timeout=LONG)
        with published.transaction() as tx:
            tx.set("a", "2", 2, topic="busy")
        assert tx.commit is not None
        replica.wait_for(tx.commit.point.position, timeout=LONG)
        assert replica.get("a", "2") == 2


def test_wait_for_refuses_a_transaction_without_a_subscribed_topic(config: Settings, published: Store) -> None:
    with Replica(config, topics=["mine"]) as replica:
        with published.transaction() as tx:
            tx.set("a", "1", 1, topic="theirs")
        assert tx.commit is not None
        with pytest.raises(NotSubscribedError, match="theirs"):
            replica.wait_for(tx.commit, timeout=LONG)


@pytest.mark.parametrize(
    ("topics", "error", "sentence"),
    [
        (["typo"], NotSubscribedError, "not subscribed to the topic 'typo'"),
        (["mine", "typo"], NotSubscribedError, "not subscribed to the topic 'typo'"),
        ([""], NotSubscribedError, "not subscribed to the topic ''"),
        ([], UsageError, "to wait for all that are subscribed to"),
        ("mine", UsageError, r"write \['mine'\]"),
    ],
)
def test_a_wait_for_topics_that_are_not_subscribed_is_refused(
    config: Settings, store: Store, topics: Any, error: type[PubSubError], sentence: str
) -> None:
    with Replica(config, topics=["mine"]) as replica:
        for wait in (replica.wait_for, replica.wait_handled):
            with pytest.raises(error, match=sentence):
                wait(0, LONG, topics=topics)


class InterruptedReplica(Replica):
    """Calls ``meanwhile``, when it is set, as soon as a thread waits."""

    meanwhile: Callable[[], object] | None = None

    def _make_scheduler(self) -> Scheduler:
        return Interrupting(self)


class Interrupting(Threads):
    def __init__(self, replica: InterruptedReplica) -> None:
        super().__init__()
        self._replica = replica

    def condition(self, lock: "threading.RLock | None" = None) -> threading.Condition:
        replica = self._replica

        class Waits(threading.Condition):
            def wait(self, timeout: float | None = None) -> bool:
                return super().wait(timeout) if replica.meanwhile is None else bool(replica.meanwhile())

        return Waits(lock)


@pytest.mark.parametrize("topics", [["mine"], None])
def test_a_wait_ends_when_its_topic_is_dropped(config: Settings, store: Store, topics: list[str] | None) -> None:
    with (replica := InterruptedReplica(config, topics=["mine"])):
        replica.meanwhile = lambda: replica.unsubscribe("mine")
        with pytest.raises(NotSubscribedError):
            replica.wait_for(10**6, LONG, topics=topics)


def test_a_wait_for_a_transaction_ends_when_one_of_its_topics_is_dropped(config: Settings, published: Store) -> None:
    with (replica := InterruptedReplica(config, topics=["mine", "yours"])):
        replica.wait_synced(LONG)
        with published.transaction() as tx:
            tx.set("a", "1", 1, topic="mine")
            tx.set("a", "2", 1, topic="yours")
        assert tx.commit is not None
        later = Point(tx.commit.point.position + 10**6, 1)  # never comes
        commit = msgspec.structs.replace(tx.commit, point=later)
        replica.meanwhile = lambda: replica.unsubscribe("yours")
        with pytest.raises(NotSubscribedError, match="not subscribed to the topic 'yours'"):
            replica.wait_for(commit, LONG)


def test_a_replica_that_is_closed_while_it_starts_raises_closed_error(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(config, ["a"])
    subscribe = replica._subscriber.register_topic

    def close_first(topic: str) -> None:
        closing = threading.Thread(target=replica.close)
        closing.start()
        closing.join()
        subscribe(topic)

    monkeypatch.setattr(replica._subscriber, "register_topic", close_first)
    with pytest.raises(ClosedError, match="this replica was closed while it started"):
        replica.start()


def test_wait_for_none_returns_at_once(config: Settings, store: Store) -> None:
    with Replica(config, topics=["mine"]) as replica:
        replica.wait_for(None, 0.0)
        replica.wait_handled(None, 0.0, topics=["mine"])


def test_rule_08_topics_can_be_subscribed_and_unsubscribed_at_any_time(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("a", "1", 1, topic="one")
        tx.set("a", "2", 2, topic="two")
    recorder = Recorder()
    with Replica(config, topics=["one"], default_topic=False) as replica:
        replica.on("a", recorder)
        replica.wait_synced(timeout=LONG)
        replica.subscribe("two")
        replica.wait_synced(timeout=LONG)
        assert replica.get("a", "2") == 2
        replica.unsubscribe("one")
        assert replica.get("a", "1") is None
        assert replica.topics == ("two",)
        assert tx.commit is not None
        replica.wait_handled(tx.commit.point.position, timeout=LONG)
        assert recorder.brief == [("create", "1", 1), ("create", "2", 2), ("delete", "1", None)]
        with pytest.raises(NotSubscribedError, match="'one'"):
            replica.unsubscribe("one")


def test_named_topics_and_everything_exclude_each_other(config: Settings, store: Store) -> None:
    with Replica(config) as replica, pytest.raises(NotSubscribedError, match="two replicas"):
        replica.subscribe("one")


def test_a_late_handler_gets_the_existing_objects_and_a_removed_one_no_changes(
    config: Settings, published: Store
) -> None:
    with published.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
        tx.set("b", "1", 1, topic="t")
    late = Recorder()
    with Replica(config, topics=["t"]) as replica:
        replica.wait_synced(timeout=LONG)
        handle = replica.on("a", late)
        replica.wait_synced(timeout=LONG)
        assert late.brief == [("create", "1", 1)]
        handle.remove()
        with published.transaction() as tx:
            tx.set("a", "1", 2)
        assert tx.commit is not None
        replica.wait_handled(tx.commit, timeout=LONG)
        assert late.brief == [("create", "1", 1)]


def test_a_handler_that_raises_or_blocks_does_not_stop_other_handlers_or_the_sync(
    config: Settings, published: Store
) -> None:
    release = threading.Event()
    broken, blocked, fine = Recorder(_explode), Recorder(lambda change: _block(release)), Recorder()
    with Replica(config, topics=["t"]) as replica:
        for handler in (broken, blocked, fine):
            replica.on("a", handler)
        replica.wait_synced(timeout=LONG)
        with published.transaction() as tx:
            for number in range(5):
                tx.set("a", str(number), number, topic="t")
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=LONG)
        assert replica.get("a", "4") == 4
        release.set()
        replica.wait_handled(tx.commit, timeout=LONG)
        assert len(fine.changes) == 5
        assert replica.status().handlers.parked == 5


def _explode(change: Any) -> None:
    raise ValueError("this handler is broken")


def _block(release: threading.Event) -> None:
    assert release.wait(LONG)


def test_a_handler_may_call_back_into_the_replica_but_not_wait_for_itself(config: Settings, published: Store) -> None:
    answers: list[Any] = []

    def ask(change: Any) -> None:
        answers.append(replica.get("a", change.key))
        with pytest.raises(UsageError):
            replica.wait_synced(LONG)
        with pytest.raises(UsageError):
            replica.wait_handled(1, LONG)
        replica.on("b", Recorder())
        replica.close()
        closed.set()

    with published.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
    replica = Replica(config, topics=["t"])
    closed = threading.Event()
    with replica:
        replica.on("a", Recorder(ask))
        assert closed.wait(LONG)
    assert answers == [1]
    with pytest.raises(ClosedError):
        replica.get("a", "1")


def test_close_wakes_a_waiter_from_any_thread_and_may_be_repeated(config: Settings, store: Store) -> None:
    replica = Replica(config, topics=["t"])
    replica.start()
    caught: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            replica.wait_for(10**9, timeout=LONG)
        except ClosedError as error:
            caught.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert waiting.wait(LONG)
    closer = threading.Thread(target=replica.close)
    closer.start()
    closer.join(LONG)
    waiter.join(LONG)
    replica.close()
    assert len(caught) == 1
    with pytest.raises(ClosedError):
        replica.start()


def test_iterate_returns_the_objects_of_one_moment(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
        tx.set("a", "2", 2, topic="t")
    with Replica(config, topics=["t"]) as replica:
        replica.wait_synced(timeout=LONG)
        view = replica.iterate("a")
        first = next(view)
        with published.transaction() as tx:
            tx.delete("a", "1")
            tx.delete("a", "2")
            tx.create("a", "3", 3, topic="t")
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=LONG)
        assert sorted([first, *view]) == [("1", 1), ("2", 2)]
        assert dict(replica.iterate("a")) == {"3": 3}


def test_indexes_and_typed_tables(config: Settings, published: Store) -> None:
    class Port(msgspec.Struct):
        switch: str

    with published.transaction() as tx:
        tx.set("lport", "p1", {"switch": "s1"}, topic="t")
        tx.set("lport", "p2", {"switch": "s2"}, topic="t")
    with Replica(config, topics=["t"], tables={"lport": Port}) as replica:
        replica.wait_synced(timeout=LONG)
        replica.add_index("by switch", "lport", "switch")
        assert replica.lookup("by switch", "s2") == [("p2", Port("s2"))]
        with pytest.raises(NotSubscribedError, match="by chassis"):
            replica.lookup("by chassis", "x")


def test_changes_to_a_returned_value_do_not_change_the_cache(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("a", "1", {"list": [1]}, topic="t")
    with Replica(config, topics=["t"]) as replica:
        replica.wait_synced(timeout=LONG)
        replica.get("a", "1")["list"].append(2)
        assert replica.get("a", "1") == {"list": [1]}


def test_a_replica_without_any_publisher_polls_and_reports_it(sqlite_url: str, store: Store) -> None:
    alone = settings(sqlite_url)
    with Replica(alone, topics=["t"]) as replica:
        replica.wait_synced(timeout=LONG)
        with store.transaction() as tx:
            tx.set("a", "1", 1, topic="t")
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=LONG)
        status = replica.status()
        assert status.polling
        assert "polled" in status.counters.deltas


@pytest.mark.empty_database
def test_a_missing_database_is_named_by_the_wait_and_used_when_it_is_created(sqlite_url: str) -> None:
    config = settings(sqlite_url)
    with Replica(config, topics=["t"]) as replica:
        assert any("store.sqlite" in _why_not_synced(replica) for _ in range(int(LONG / 0.2))), (
            "the database is not named"
        )
        assert not Path(sqlite_url.removeprefix("sqlite:///")).exists(), "a mistyped name must not create a database"
        with Store(config.store_url) as store, store.transaction() as tx:
            tx.set("a", "1", 1, topic="t")
        assert tx.commit is not None
        replica.wait_synced(timeout=LONG)  # this sync may have been before the commit
        replica.wait_for(tx.commit, timeout=LONG)
        assert replica.get("a", "1") == 1


def _why_not_synced(replica: Replica) -> str:
    with pytest.raises(WaitTimeout) as caught:
        replica.wait_synced(timeout=0.2)
    return str(caught.value)


def test_while_the_store_is_unavailable_objects_stay_and_the_reason_is_reported(config: Settings, store: Store) -> None:
    with store.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
    reader = Moody(store)
    with Replica(config, topics=["t"], store=reader) as replica:
        replica.wait_synced(timeout=LONG)
        reader.moody = True
        while replica.status().counters.syncs_failed == 0:
            with pytest.raises(WaitTimeout):
                replica.wait_for(10**6, timeout=0.2)
        with pytest.raises(WaitTimeout, match="the database is out"):
            replica.wait_for(10**6, timeout=0.1)
        assert replica.get("a", "1") == 1
        assert replica.status().counters.syncs_failed > 0
        reader.moody = False
        with store.transaction() as tx:
            tx.set("a", "1", 2)
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=LONG)
        assert replica.status().last_error == ""


class Moody:
    """A real store's reader that raises while ``moody`` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.moody = False

    def read_sync(self, wants: Any) -> Any:
        if self.moody:
            raise PubSubError("the database is out")
        return self._store.read_sync(wants)


def test_replica_equals_the_store_after_lost_and_reordered_messages(
    config: Settings, published: Store, seed: int
) -> None:
    from pubsub_lib.fault_injection import Loss
    from pubsub_memory import bus

    lossy = bus(config.driver_options["bus"])
    with Replica(config, topics=["t"]) as replica:
        replica.wait_synced(timeout=LONG)
        lossy.set_loss(Loss(drop=0.2, duplicate=0.2, reorder=0.2, delay=0.2, max_delay=0.05), seed)
        for number in range(100):
            with published.transaction() as tx:
                tx.set("a", str(number % 7), number, topic="t")
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=LONG)
        expected = {stored.key: (stored.version, stored.value) for stored in published.objects()}
        assert {record.key: (record.version, record.json) for record in replica.records("a")} == expected
        assert replica.status().faults.guarded == 0


def test_paranoid_replica_fails_when_its_cache_was_altered(config: Settings, store: Store) -> None:
    with store.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
    replica = Replica(config, topics=["t"])
    with pytest.raises(PubSubError, match="a '1' of topic 't'"), replica:
        replica.wait_synced(timeout=LONG)
        entry = replica._engine.read(lambda state: state.cache._topics["t"].tables["a"]["1"])
        entry.value = b"2"
        replica.wait_for(10**6, timeout=LONG)


@pytest.mark.parametrize(
    ("topics", "error"), [("tenant-1", UsageError), ([""] * 2, InvalidValueError), (["a\0"], InvalidValueError)]
)
def test_invalid_topics_are_refused(config: Settings, topics: Any, error: type[PubSubError]) -> None:
    with pytest.raises(error):
        Replica(config, topics=topics)


def test_a_topic_that_is_not_subscribed_is_refused_by_name(config: Settings, store: Store) -> None:
    with Replica(config, topics=["t"]) as replica:
        for ask in (lambda: replica.on("a", print, topic="u"), lambda: replica.iterate("a", topic="u")):
            with pytest.raises(NotSubscribedError, match="'u'"):
                ask()


def test_replica_works_in_parent_and_child_after_a_fork(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
    with Replica(config, topics=["t"]) as replica:
        replica.wait_synced(timeout=LONG)
        child = multiprocessing.get_context("fork").Process(target=_in_the_child, args=(replica, config))
        child.start()
        child.join(LONG)
        assert child.exitcode == 0
        with published.transaction() as tx:
            tx.set("a", "1", 2)
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=LONG)
        assert replica.get("a", "1") == 2


def _in_the_child(replica: Replica, config: Settings) -> None:
    try:
        replica.get("a", "1")
    except ClosedError:
        replica.close()
        with Replica(config, topics=["t"]) as own:
            own.wait_synced(timeout=LONG)
            if own.get("a", "1") == 1:
                os._exit(0)
    os._exit(1)


class Odd:
    """A subscriber that receives no messages and raises where it is configured to."""

    def __init__(
        self, refuse_start: bool = False, refuse_requests: bool = False, close_error: BaseException | None = None
    ) -> None:
        self.refuse_start = refuse_start
        self.refuse_requests = refuse_requests
        self.close_error = close_error
        self.topics: set[str] = set()
        self.asked = threading.Event()
        self.closed = False

    def initialize(self, on_envelope: Any, on_connected: Any) -> None:
        pass

    def register_topic(self, topic: str) -> None:
        self.topics.add(topic)

    def unregister_topic(self, topic: str) -> None:
        self.topics.discard(topic)

    def register_listen_address(self, address: str) -> None:
        pass

    def unregister_listen_address(self, address: str) -> None:
        pass

    def request_hello(self, nonce: str, topics: Any) -> None:
        self.asked.set()
        if self.refuse_requests:
            raise ValueError("a bug in the driver")

    def daemonize(self) -> None:
        if self.refuse_start:
            raise TransportError("the address is unavailable")

    def counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self.closed = True
        if self.close_error is not None:
            raise self.close_error


def test_the_clock_thread_survives_exceptions_of_the_driver(config: Settings, store: Store) -> None:
    driver = Odd(refuse_requests=True)
    with Replica(config, topics=["t"], subscriber=cast(Subscriber, driver)) as replica:
        replica.wait_synced(timeout=LONG)
        driver.asked.clear()
        assert driver.asked.wait(LONG), "no further hello request was sent"


def test_a_start_that_fails_releases_everything(config: Settings, store: Store) -> None:
    driver = Odd(refuse_start=True)
    with pytest.raises(TransportError), Replica(config, topics=["t"], subscriber=cast(Subscriber, driver)):
        pass
    assert driver.closed


def test_close_before_start_closes_the_driver(config: Settings, store: Store) -> None:
    driver = Odd()
    Replica(config, topics=["t"], subscriber=cast(Subscriber, driver)).close()
    assert driver.closed


@pytest.mark.parametrize("error", [ValueError("a bug in the driver"), KeyboardInterrupt()])
def test_close_that_is_interrupted_or_fails_ends_everything(
    config: Settings, store: Store, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = set(threading.enumerate())
    closed: list[Store] = []
    close_store = Store.close

    def close(of: Store) -> None:
        closed.append(of)
        close_store(of)

    monkeypatch.setattr(Store, "close", close)
    replica = Replica(config, topics=["t"], subscriber=cast(Subscriber, Odd(close_error=error)))
    replica.on("a", Recorder())
    replica.start()
    replica.wait_synced(timeout=LONG)
    with pytest.raises(type(error)):
        replica.close()
    assert closed == [replica._sources.store]
    assert poll(lambda: not set(threading.enumerate()) - others, LONG)
    assert replica._ended.is_set()
    replica.close()


def test_later_close_waits_as_long_as_the_first_may_take(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(config, topics=["t"])
    replica.close()
    waits: list[float] = []
    monkeypatch.setattr(replica._ended, "wait", waits.append)
    replica.close()
    assert waits == [8.0]


def test_an_empty_list_of_topics_is_refused(config: Settings, published: Store) -> None:
    with pytest.raises(UsageError, match="the list of topics is empty"):
        Replica(config, topics=[])
    with Replica(config, topics=["t"], default_topic=False) as replica:
        replica.unsubscribe("t")
        with pytest.raises(UsageError, match="the list of topics is empty"):
            replica.subscribe()
        assert replica.topics == ()


def test_a_refused_topic_is_not_subscribed(config: Settings, store: Store) -> None:
    driver = Odd()
    with Replica(config, topics=["t"], subscriber=cast(Subscriber, driver)) as replica:
        with pytest.raises(NotSubscribedError):
            replica.subscribe("")
        assert driver.topics == {"t", DEFAULT_TOPIC}


def test_replica_and_driver_keep_the_same_topics(config: Settings, store: Store) -> None:
    driver = Odd()
    with Replica(config, topics=["keep"], subscriber=cast(Subscriber, driver)) as replica:

        def churn() -> None:
            for _ in range(200):
                with contextlib.suppress(NotSubscribedError):
                    replica.unsubscribe("x")
                replica.subscribe("x")

        threads = [threading.Thread(target=churn) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(replica.topics) == driver.topics == {"keep", DEFAULT_TOPIC, "x"}


def test_a_replica_without_topics_is_neither_synced_nor_ready(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("a", "1", 1, topic="t")
    with Replica(config, topics=["t"], default_topic=False) as replica:
        replica.wait_synced(LONG)
        assert replica.unsubscribe("t")
        assert not replica.synced
        assert replica.staleness() == float("inf")
        status = replica.status()
        assert not status.ready
        assert status.problems == ["no topic is subscribed to, so the replica is empty; call subscribe()"]
        with pytest.raises(NotSubscribedError, match="no topic is subscribed to"):
            replica.wait_synced(LONG)
        with pytest.raises(NotSubscribedError, match="no topic is subscribed to"):
            replica.wait_for(1, LONG)
        replica.subscribe("t")
        replica.wait_synced(LONG)
        assert replica.get("a", "1") == 1


def test_a_wait_for_the_first_sync_ends_when_the_last_topic_is_dropped(config: Settings, store: Store) -> None:
    slow = msgspec.structs.replace(config, timing=msgspec.structs.replace(config.timing, hello_wait=LONG))
    with (replica := InterruptedReplica(slow, topics=["t"], default_topic=False)):
        replica.meanwhile = lambda: replica.unsubscribe("t")
        with pytest.raises(NotSubscribedError, match="no topic is subscribed to"):
            replica.wait_synced(LONG)


def test_endpoint_does_not_answer_ready_before_the_first_sync(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    answers: list[int | str] = []

    def look() -> None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=LONG) as answer:
                answers.append(answer.status)
        except urllib.error.HTTPError as error:
            answers.append(error.code)
            error.close()
        except OSError as error:
            answers.append(type(error).__name__)
        answers.append(f"synced {replica.synced}, ready {replica.status().ready}, {replica.staleness()} s")

    away = msgspec.structs.replace(config, replica_metrics_port=port, store_url="sqlite:////nowhere/none.db")
    driver = loader.load(config.driver).subscriber(config.for_driver())
    replica = Replica(away, topics=["t"], subscriber=driver)

    def after_a_look(step: Callable[..., None]) -> Callable[..., None]:
        def looked(*given: Any) -> None:
            look()
            step(*given)

        return looked

    for name in ("initialize", "register_topic", "daemonize"):
        monkeypatch.setattr(driver, name, after_a_look(getattr(driver, name)))
    with replica:
        look()
    assert len(answers) >= 8
    assert set(answers) <= {503, "URLError", "synced False, ready False, inf s"}, answers
    assert answers[-2] == 503


def test_the_users_of_a_topic_are_counted(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("a", "1", 1, topic="one")
        tx.set("a", "2", 2, topic="two")
    recorder = Recorder()
    with Replica(config, topics=["one"], default_topic=False) as replica:
        replica.on("a", recorder)
        replica.subscribe("one", "two", "two")
        replica.subscribe("two")
        replica.wait_handled(tx.commit, LONG)
        assert not replica.unsubscribe("one")
        assert not replica.unsubscribe("two")
        assert replica.topics == ("one", "two")
        assert recorder.brief == [("create", "1", 1), ("create", "2", 2)]
        assert replica.unsubscribe("two")
        assert replica.unsubscribe("one"), "the constructor was the last user"
        with pytest.raises(NotSubscribedError):
            replica.unsubscribe("one")
        assert not replica.topics


def test_a_failed_subscribe_adds_no_user(config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(topic: str) -> None:
        raise TransportError("no room")

    driver = loader.load(config.driver).subscriber(config.for_driver())
    with Replica(config, topics=["one"], subscriber=driver) as replica:
        with monkeypatch.context() as patch, pytest.raises(TransportError, match="no room"):
            patch.setattr(driver, "register_topic", broken)
            replica.subscribe("two")
        replica.subscribe("two")
        assert replica.unsubscribe("two")


def test_a_handler_for_a_topic_that_was_dropped_is_refused(config: Settings, store: Store) -> None:
    with Replica(config, topics=["t"]) as replica:
        replica.unsubscribe("t")
        with pytest.raises(NotSubscribedError):
            replica.on("a", print, topic="t")


def test_a_forked_child_does_not_wait_for_a_lock_of_its_parent(config: Settings, published: Store) -> None:
    with Replica(config, topics=["t"]) as replica:
        replica.wait_synced(timeout=LONG)
        with busy(replica):
            child = multiprocessing.get_context("fork").Process(target=_everything_refuses, args=(replica,))
            child.start()
            child.join(LONG)
            assert child.exitcode == 0


def _everything_refuses(replica: Replica) -> None:
    refused = 0
    for ask in (lambda: replica.synced, lambda: replica.topics, lambda: replica.wait_synced(1), replica.status):
        try:
            ask()
        except ClosedError:
            refused += 1
    replica.close()
    os._exit(0 if refused == 4 else 1)


TABLES = ("lswitch", "lport")


def write_in_the_wrong_order(store: Store) -> None:
    """Change switches after their ports were created, so that by version each port comes before its switch."""
    with store.transaction() as tx:
        tx.set("lswitch", "s1", 1, topic="a")
        tx.set("lport", "p1", "s1", topic="a")
        tx.set("lswitch", "s2", 1, topic="b")
        tx.set("lport", "p2", "s2", topic="b")
    with store.transaction() as tx:
        tx.set("lswitch", "s1", 2)
        tx.set("lswitch", "s2", 2)


def brief(recorder: Recorder) -> list[tuple[str, str]]:
    return [(change.action, change.key) for change in recorder.changes]


def test_a_handler_of_several_tables_is_called_in_chain_order(config: Settings, published: Store) -> None:
    recorder = Recorder()
    with Replica(config, topics=["t"]) as replica:
        replica.on(TABLES, recorder)
        replica.wait_synced(LONG)
        for number in range(20):
            with published.transaction() as tx:
                tx.create("lswitch", f"s{number}", 1, topic="t")
                tx.create("other", f"o{number}", 1, topic="t")
                tx.create("lport", f"p{number}", 1, topic="t")
        replica.wait_handled(tx.commit, LONG)
    assert brief(recorder) == [("create", f"{kind}{number}") for number in range(20) for kind in "sp"]


@pytest.mark.parametrize("early", [True, False])
def test_changes_of_a_full_sync_come_in_the_order_of_tables(config: Settings, published: Store, early: bool) -> None:
    write_in_the_wrong_order(published)
    recorder = Recorder()
    replica = Replica(config, topics=["a", "b"])
    if early:
        replica.on(TABLES, recorder, order=TABLES)
    with replica:
        replica.wait_synced(LONG)
        if not early:
            replica.on(TABLES, recorder, order=TABLES)
            replica.wait_synced(LONG)
        made = brief(recorder)
        assert [key[0] for _, key in made] == ["s", "s", "p", "p"], "over both topics"
        recorder.changes.clear()
        replica.unsubscribe("a")
        replica.wait_handled(6, LONG)
        assert brief(recorder) == [("delete", "p1"), ("delete", "s1")]


def test_changes_of_a_later_full_sync_come_in_the_order_of_tables(config: Settings, store: Store) -> None:
    with store.transaction() as tx:
        tx.set("lswitch", "s1", 1, topic="t")
        tx.set("lport", "p1", "s1", topic="t")
    recorder = Recorder()
    blind = msgspec.structs.replace(config, timing=msgspec.structs.replace(config.timing, max_idle_time=LONG))
    with Replica(blind, topics=["t"], default_topic=False) as replica:
        replica.on(TABLES, recorder, order=TABLES)
        replica.wait_synced(LONG)
        recorder.changes.clear()
        with store.transaction() as tx:
            tx.delete("lswitch", "s1")
            tx.delete("lport", "p1")
            tx.create("lport", "p2", "s2", topic="t")
            tx.create("lswitch", "s2", 1, topic="t")
        replica.resync("t")
        replica.wait_handled(tx.commit, LONG)
        assert replica.status().counters.fulls == {"greeted": 1, "asked": 1}
    assert brief(recorder) == [("create", "s2"), ("create", "p2"), ("delete", "p1"), ("delete", "s1")]


def test_order_with_other_tables_than_the_handlers_is_refused(config: Settings, store: Store) -> None:
    with Replica(config, topics=["t"]) as replica:
        with pytest.raises(UsageError, match="order names"):
            replica.on(["lport"], print, order=["lprot"])
        with pytest.raises(UsageError, match="no table was named"):
            replica.on([], print)


# -- objects without a topic ---------------------------------------------------------------------------------------


def test_an_object_without_a_topic_reaches_a_replica_of_named_topics(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("chassis", "c1", 1)
        tx.set("lport", "p1", 1, topic="tenant-1")
        tx.set("lport", "q1", 1, topic="tenant-2")
    recorder = Recorder()
    with Replica(config, topics=["tenant-1"]) as replica:
        replica.on("chassis", recorder)
        replica.wait_synced(timeout=LONG)
        assert replica.topics == ("tenant-1", DEFAULT_TOPIC)
        assert (replica.get("chassis", "c1"), replica.get("lport", "q1")) == (1, None)
        with published.transaction() as tx:
            tx.set("chassis", "c2", 2)
        replica.wait_handled(tx.commit, timeout=LONG)
        assert recorder.brief == [("create", "c1", 1), ("create", "c2", 2)]
        assert replica.contents(DEFAULT_TOPIC).records
        assert dict(replica.iterate("chassis", topic=DEFAULT_TOPIC)) == {"c1": 1, "c2": 2}


def test_default_topic_false_leaves_the_default_topic_out(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("chassis", "c1", 1)
        tx.set("lport", "p1", 1, topic="tenant-1")
    by_settings = msgspec.structs.replace(config, default_topic=False)
    for replica in (Replica(config, ["tenant-1"], default_topic=False), Replica(by_settings, ["tenant-1"])):
        with replica:
            replica.wait_synced(timeout=LONG)
            assert replica.topics == ("tenant-1",)
            assert (replica.get("lport", "p1"), replica.get("chassis", "c1")) == (1, None)
    with Replica(by_settings, ["tenant-1"], default_topic=True) as replica:
        replica.wait_synced(timeout=LONG)
        assert replica.get("chassis", "c1") == 1


@pytest.mark.parametrize("topics", [None, [DEFAULT_TOPIC], ["tenant-1", DEFAULT_TOPIC]])
def test_the_default_topic_is_not_added_twice(topics: list[str] | None, config: Settings, published: Store) -> None:
    with Replica(config, topics) as replica:
        replica.wait_synced(timeout=LONG)
        assert replica.topics == tuple(topics or [""])


def test_wait_for_a_number_includes_the_default_topic_and_wait_for_a_commit_does_not(
    config: Settings, published: Store
) -> None:
    with published.transaction() as tx:
        tx.set("chassis", "c1", 1)
    with Replica(config, ["tenant-1"]) as replica:
        replica.wait_synced(timeout=LONG)
        with published.transaction() as tx:
            tx.set("lport", "p1", 1, topic="tenant-1")
        assert tx.commit is not None
        replica.wait_for(tx.commit, timeout=LONG)
        replica.wait_for(tx.commit.point.position, timeout=LONG, topics=["tenant-1"])
        replica.wait_for(tx.commit.point.position, timeout=LONG)
        covered = replica._engine.read(lambda state: state.tracker.covered([DEFAULT_TOPIC]))
        assert covered >= tx.commit.point.position


def test_the_default_topic_can_be_unsubscribed_and_subscribed_again(config: Settings, published: Store) -> None:
    recorder = Recorder()
    with published.transaction() as tx:
        tx.set("chassis", "c1", 1)
        tx.set("lport", "p1", 1, topic="tenant-1")
    with Replica(config, ["tenant-1"]) as replica:
        replica.wait_synced(timeout=LONG)
        replica.on("chassis", recorder)
        replica.unsubscribe(DEFAULT_TOPIC)
        assert replica.topics == ("tenant-1",)
        assert (replica.get("chassis", "c1"), replica.get("lport", "p1")) == (None, 1)
        replica.subscribe(DEFAULT_TOPIC)
        replica.wait_synced(timeout=LONG)
        assert replica.get("chassis", "c1") == 1
        replica.unsubscribe("tenant-1")
        assert replica.topics == (DEFAULT_TOPIC,)
        with pytest.raises(NotSubscribedError, match="default"):
            replica.subscribe("")  # everything, beside a topic by name
        replica.unsubscribe(DEFAULT_TOPIC)
        replica.subscribe("")
        replica.wait_synced(timeout=LONG)
        assert replica.get("lport", "p1") == 1
        replica.wait_handled(tx.commit, timeout=LONG)
    assert recorder.brief[0] == ("create", "c1", 1)
    assert ("delete", "c1", None) in recorder.brief


def test_an_object_that_gets_a_topic_is_removed_from_other_replicas(config: Settings, published: Store) -> None:
    with published.transaction() as tx:
        tx.set("chassis", "c1", 1)
    with Replica(config, ["tenant-1"]) as replica:
        replica.wait_synced(timeout=LONG)
        with published.transaction() as tx:
            tx.set("chassis", "c1", 2, topic="tenant-2")
        replica.wait_for(tx.commit, timeout=LONG)
        assert replica.get("chassis", "c1") is None
        with published.transaction() as tx:
            tx.set("chassis", "c1", 3, topic="tenant-1")
        replica.wait_for(tx.commit, timeout=LONG)
        assert replica.get("chassis", "c1") == 3


# -- typed tables --------------------------------------------------------------------------------------------------


class Port(msgspec.Struct):
    switch: str


PORTS = Table("lport", Port)
OTHERS = Table("other", Port)


def test_table_handles_are_accepted_instead_of_names(config: Settings, published: Store) -> None:
    recorder = Recorder()
    with Replica(config, ["t"], tables=[PORTS]) as replica:
        with published.transaction() as tx:
            tx.set("lport", "p1", {"switch": "s1"}, topic="t")
        replica.wait_for(tx.commit, LONG)
        assert replica.get(PORTS, "p1") == replica.get("lport", "p1") == Port("s1")
        assert list(replica.iterate(PORTS, topic="t")) == [("p1", Port("s1"))]
        (record,) = replica.records(PORTS)
        assert record == replica.record(PORTS, "p1")
        assert (record.table, record.key, record.topic, record.version) == ("lport", "p1", "t", 1)
        assert (record.value, record.json) == (Port("s1"), b'{"switch":"s1"}')
        replica.add_index("by switch", PORTS, lambda port: port.switch)
        assert replica.lookup("by switch", "s1") == [("p1", Port("s1"))]
        replica.on(PORTS, recorder)
        replica.on([PORTS], recorder, order=[PORTS])
        replica.wait_synced(LONG)
        assert recorder.brief == [("create", "p1", Port("s1"))] * 2


@pytest.mark.parametrize("table", ["lprot", OTHERS, Table("lport", dict)])
def test_an_undeclared_table_is_refused_when_tables_are_declared(
    table: Any, config: Settings, published: Store
) -> None:
    with Replica(config, ["t"], tables=[PORTS]) as replica:
        for call in (
            lambda: replica.get(table, "p1"),
            lambda: replica.record(table, "p1"),
            lambda: replica.records(table),
            lambda: replica.iterate(table),
            lambda: replica.add_index("by", table, "switch"),
            lambda: replica.on(table, print),
            lambda: replica.on([PORTS, table], print),
            lambda: replica.on(None, print, order=[table]),
        ):
            with pytest.raises(InvalidValueError, match="is not declared"):
                call()
        assert replica.records() == []


def test_an_undeclared_table_handle_is_refused(config: Settings, published: Store) -> None:
    with Replica(config, ["t"]) as replica, pytest.raises(InvalidValueError, match=r"put its handle into tables=\[…\]"):
        replica.get(PORTS, "p1")


def test_rule_09_failures_at_the_old_parent_delay_no_sync_at_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings(parents=("tcp://127.0.0.1:1", "tcp://127.0.0.1:2"))
    replica = Replica(given, topics=["t"], subscriber=Driver())
    engine, parents = replica._engine, replica._parents
    assert parents is not None
    woken: list[str] = []
    monkeypatch.setattr(engine.clock, "wake", lambda: woken.append("clock"))
    syncs = engine.read(lambda state: state.tracker.syncs)
    for _ in range(4):
        syncs.begin(engine.now(), 1)
        syncs.failed(engine.now())
    syncs.need(engine.now())
    assert syncs.next_time() > engine.now() + given.timing.sync_jitter
    parents.initialize(engine.on_envelope, lambda: None)
    assert parents._parents.leave(time.monotonic())
    parents.step(time.monotonic())
    assert syncs.next_time() <= engine.now() + given.timing.sync_jitter
    assert woken == ["clock"]
    replica.close()
