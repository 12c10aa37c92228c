"""Whole replicas over a NATS server that is killed, and that cuts off a slow consumer; all end equal."""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from _processes import poll

from pubsub_lib import Publisher, Replica, Settings, Store, Timing
from pubsub_lib.api import DriverSettings, Subscriber
from pubsub_lib.core.limits import Limits
from pubsub_nats.driver import NatsDriver
from pubsub_nats.subscriber import NatsSubscriber
from tests.conformance.nats_wire import server
from tests.e2e.service_host import LONG
from tests.e2e.test_real_sockets import TOPICS, held, stored
from tests.unit.world import busy

LIMITS = Limits(max_value_bytes=250_000, max_frame_bytes=300_000)
TIMING = Timing(max_idle_time=2.0, message_delay_window=0.1, sync_jitter=0.01, sync_interval=0.01)
KILLS = 3


def settings(url: str, server_url: str, **options: Any) -> Settings:
    """The settings of a program that publishes its commits, and of its replicas."""
    return Settings(
        store_url=url,
        driver="nats_pubsub_driver",
        service_name="writer",
        timing=TIMING,
        limits=LIMITS,
        driver_options={
            "servers": (server_url,), "reconnect_interval": 0.02, "max_reconnect_interval": 0.1, **options
        },
    )  # fmt: skip


class Writing:
    """Commits changes until the end of the block; the transport's failures must not reach the writer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.number = 0

    def __enter__(self) -> "Writing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(LONG)

    def _write(self) -> None:
        while not self._ended.wait(0.005):
            put(self._store, self.number, 10)
            self.number += 1

    def until_more(self, changes: int) -> None:
        """Wait for this number of further commits."""
        wanted = self.number + changes
        assert poll(lambda: self.number >= wanted, LONG), "a writer is blocked"


def put(store: Store, number: int, size: int) -> None:
    with store.transaction() as tx:
        tx.set("t", f"k{number % 7}", f"{number}{'x' * size}", topic=TOPICS[number % 3])


def _counters(replica: Replica) -> Mapping[str, int]:
    """The counters of its driver."""
    return replica.status().driver


def assert_equal(replica: Replica, store: Store) -> None:
    replica.wait_for(store.read_heads(()).store.position, LONG)
    assert held(replica) == stored(store, *TOPICS)
    faults = replica.status().faults
    assert (faults.guarded, faults.mismatches) == (0, 0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[NatsSubscriber]:
    """The subscribers that replicas make."""
    made: list[NatsSubscriber] = []
    real = NatsDriver.subscriber

    def subscriber(settings: DriverSettings) -> Subscriber:
        found = real(settings)
        assert isinstance(found, NatsSubscriber)
        made.append(found)
        return found

    monkeypatch.setattr(NatsDriver, "subscriber", subscriber)
    return made


def test_replicas_end_equal_when_the_server_is_killed_while_messages_flow(sqlite_url: str) -> None:
    with server() as broker, ExitStack() as ending:
        config = settings(sqlite_url, broker.url)
        store = ending.enter_context(Store(sqlite_url, limits=LIMITS))
        publisher = ending.enter_context(Publisher(config, store))
        replicas = [ending.enter_context(Replica(config, topics)) for topics in (TOPICS, ("",))]
        for replica in replicas:
            replica.wait_synced(LONG)
        with Writing(store) as writing:
            for number in range(KILLS):
                writing.until_more(20)
                broker.kill()
                writing.until_more(20)
                broker.restart()
                for half in (publisher.counters, *(partial(_counters, each) for each in replicas)):
                    assert poll(lambda half=half, number=number: half()["connected"] >= number + 2, LONG)  # type: ignore[misc]
            before = [_counters(each)["received"] for each in replicas]
            writing.until_more(20)
            for replica, received in zip(replicas, before, strict=True):
                assert poll(lambda one=replica, received=received: _counters(one)["received"] > received, LONG)  # type: ignore[misc]
        for replica in replicas:
            assert_equal(replica, store)


def test_replica_started_without_a_server_receives_when_it_comes(sqlite_url: str) -> None:
    with server() as broker, ExitStack() as ending:
        config = settings(sqlite_url, broker.url)
        store = ending.enter_context(Store(sqlite_url, limits=LIMITS))
        broker.kill()
        replica = ending.enter_context(Replica(config, TOPICS))
        replica.wait_synced(LONG)
        broker.restart()
        ending.enter_context(Publisher(config, store))
        assert poll(lambda: replica.status().driver["connected"] == 1, LONG)
        before = replica.status().driver["received"]
        put(store, 1, 10)
        assert poll(lambda: replica.status().driver["received"] > before, LONG), "no message came"
        assert poll(lambda: not replica.status().polling, LONG)
        assert_equal(replica, store)


def test_slow_replica_counts_lost_messages_and_converges_by_deltas(sqlite_url: str, made: list[NatsSubscriber]) -> None:
    with server() as broker, ExitStack() as ending:
        config = settings(sqlite_url, broker.url, pending_messages=5)
        store = ending.enter_context(Store(sqlite_url, limits=LIMITS))
        publisher = ending.enter_context(Publisher(config, store))
        replica = ending.enter_context(Replica(config, TOPICS))
        replica.wait_synced(LONG)
        fulls = sum(replica.status().counters.fulls.values())
        with busy(replica):  # the receiving thread blocks, as on a very slow machine
            for number in range(60):
                put(store, number, 200_000)
            assert poll(lambda: made[0].counters()["lost"] > 0, LONG), "no message was lost"
        put(store, 61, 10)
        assert_equal(replica, store)
        assert sum(replica.status().counters.fulls.values()) == fulls, "a gap must not cause a full sync"
        assert publisher.counters()["lost"] == 0


def test_slow_consumer_cut_off_by_the_server_resyncs(sqlite_url: str, made: list[NatsSubscriber]) -> None:
    with server("max_payload: 400000\nmax_pending: 1000000\nwrite_deadline: '1s'\n") as broker, ExitStack() as ending:
        config = settings(sqlite_url, broker.url)
        store = ending.enter_context(Store(sqlite_url, limits=LIMITS))
        ending.enter_context(Publisher(config, store))
        replica = ending.enter_context(Replica(config, TOPICS))
        replica.wait_synced(LONG)
        reading = threading.Event()

        def pause() -> None:
            """As a process that is paused."""
            reading.wait(LONG)

        made[0]._connection._call(pause)
        try:
            for number in range(150):  # more than the kernel's buffers
                put(store, number, 200_000)
            assert poll(lambda: "Slow Consumer" in broker.log.read_text(), LONG), "the server did not cut it off"
        finally:
            reading.set()
        put(store, 151, 10)
        assert_equal(replica, store)
        assert poll(lambda: made[0].counters()["connected"] == 2, LONG)
