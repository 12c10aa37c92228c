"""Whole replicas on real ZeroMQ sockets: lost messages, cut connections and new topics under load; all end equal.

Tests of the driver alone are in tests/unit/drivers/zmq/test_sockets.py.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _processes import free_port, poll

from pubsub_lib import Publisher, Replica, Settings, Store, Timing
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import SyncAnswer, Want
from pubsub_zmq.options import ZmqOptions
from tests.conftest import IN_CI
from tests.e2e.network import Namespace, missing, namespaces
from tests.e2e.service_host import LONG, Host, Watched, fork, write
from tests.unit.drivers.zmq.world import RawSocket
from tests.unit.world import busy

TOPICS = ("a", "b", "c")
BACK_SECONDS = 2.0


def settings(url: str, timing: Timing, limits: Limits = Limits(), **options: Any) -> Settings:  # noqa: B008 - frozen
    """The settings of a program that publishes its commits, and of its replicas, over tcp on this host."""
    address = f"tcp://127.0.0.1:{free_port()}"
    return Settings(
        store_url=url,
        driver="zmq_pubsub_driver",
        service_name="writer",
        addresses=(address,),
        bind_address=address,
        timing=timing,
        limits=limits,
        discovery_interval=0.0,
        driver_options=options,
    )


def held(replica: Replica) -> dict[tuple[str, str], tuple[int, bytes]]:
    return {(each.table, each.key): (each.version, each.json) for each in replica.records()}


def stored(store: Store, *topics: str) -> dict[tuple[str, str], tuple[int, bytes]]:
    return {(each.table, each.key): (each.version, each.value) for each in store.objects() if each.topic in topics}


class Counting:
    """A slow store to sync from, which counts the readings that run at the same time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._running = 0
        self.maximum = 0
        self.wants: list[Mapping[str, Want]] = []

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        with self._lock:
            self.wants.append(wants)
            self._running += 1
            self.maximum = max(self.maximum, self._running)
        try:
            time.sleep(0.05)  # as a remote database
            return self._store.read_sync(wants)
        finally:
            with self._lock:
                self._running -= 1


def test_replica_over_its_high_water_mark_converges_by_single_deltas(sqlite_url: str) -> None:
    timing = Timing(max_idle_time=2.0, message_delay_window=0.1, sync_jitter=0.01, sync_interval=0.01)
    limits = Limits(max_value_bytes=250_000, max_frame_bytes=300_000)  # one message a frame
    config = settings(sqlite_url, timing, limits, send_hwm=5, receive_hwm=5)
    with ExitStack() as ending:
        store = ending.enter_context(Store(sqlite_url, limits=limits))
        publisher = ending.enter_context(Publisher(config, store))
        reader = Counting(ending.enter_context(Store(sqlite_url)))
        replica = ending.enter_context(Replica(config, TOPICS, store=reader))
        replica.wait_synced(LONG)
        fulls = sum(replica.status().counters.fulls.values())

        def put(number: int, size: int) -> None:
            with store.transaction() as tx:
                tx.set("t", f"k{number % 7}", f"{number}{'x' * size}", topic=TOPICS[number % 3])

        with busy(replica):  # the receiving thread blocks, as on a very slow machine
            for number in range(150):
                put(number, 200_000)
            assert poll(lambda: publisher.counters()["frames"] >= 150, LONG), "not all frames were handed to ZeroMQ"
        for number in range(150, 170):
            put(number, 10)
        head = store.read_heads(()).store.position
        replica.wait_for(head, LONG)
        assert held(replica) == stored(store, *TOPICS)
        assert poll(lambda: replica.status().sequences.holes > 0, LONG)  # a delta may be earlier than the messages
        status = replica.status()
    assert sum(status.counters.deltas.values()) > 0
    assert sum(status.counters.fulls.values()) == fulls, "a gap must not cause a full sync"
    assert reader.maximum == 1, "more than one sync at a time"
    assert (status.faults.guarded, status.faults.mismatches) == (0, 0)


def test_replica_reconnects_within_two_seconds_after_an_oversized_frame(sqlite_url: str) -> None:
    """The second publisher is a raw socket; its valid messages belong to a history unknown to the replica."""
    timing = Timing(max_idle_time=1.0, hello_wait=0.3, sync_jitter=0.01)
    limits = Limits(max_value_bytes=5000, max_frame_bytes=10_000)
    raw_socket = RawSocket()
    with ExitStack() as ending:
        ending.callback(raw_socket.close)
        config = settings(sqlite_url, timing, limits)
        config = msgspec.structs.replace(config, addresses=(*config.addresses, raw_socket.address))
        store = ending.enter_context(Store(sqlite_url, limits=limits))
        raw_socket.store_id = store.store_id
        ending.enter_context(Publisher(config, store))
        replica = ending.enter_context(Replica(config, ["a"]))
        with store.transaction() as tx:
            tx.set("t", "k", 1, topic="a")
        assert tx.commit is not None
        replica.wait_synced(LONG)
        replica.wait_for(tx.commit, LONG)

        def receives_raw_message() -> bool:
            before = replica.status().dropped["other_history"]

            def received() -> bool:
                raw_socket.send("a")
                return replica.status().dropped["other_history"] > before

            return poll(received, BACK_SECONDS)

        assert poll(receives_raw_message, LONG)
        took = []
        for times in (1, 2):
            began = time.monotonic()
            raw_socket.send("a", b"x" * 50_000)
            assert poll(lambda times=times: replica.status().dropped["oversized"] == times, LONG)  # type: ignore[misc]
            assert poll(receives_raw_message, LONG)
            took.append(time.monotonic() - began)
        assert min(took) < BACK_SECONDS, took  # a busy machine may delay one of them
        with store.transaction() as tx:
            tx.set("t", "k", 2, topic="a")
        assert tx.commit is not None
        replica.wait_for(tx.commit, LONG)
        assert held(replica) == stored(store, "a")
        assert replica.status().driver["disconnected"] == 2, "the other publisher's connection was disturbed"


def test_twenty_replicas_that_start_at_once_each_get_a_hello_reply(sqlite_url: str) -> None:
    """A replica first reads after a hello reply, or after ``hello_wait``, which is too long here."""
    timing = Timing(hello_wait=10 * LONG, max_idle_time=10 * LONG, sync_jitter=0.01)
    config = settings(sqlite_url, timing, answer_time=60.0)
    with ExitStack() as ending:
        store = ending.enter_context(Store(sqlite_url))
        with store.transaction() as tx:
            tx.set("t", "k", 1, topic="a")
        ending.enter_context(Publisher(config, store))
        replicas = [Replica(config, TOPICS) for _ in range(20)]
        for replica in replicas:
            ending.callback(replica.close)
        together = threading.Barrier(20)

        def start(replica: Replica) -> None:
            together.wait(LONG)
            replica.start()

        threads = [threading.Thread(target=start, args=(replica,)) for replica in replicas]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        for replica in replicas:
            replica.wait_synced(LONG)
            assert replica.get("t", "k") == 1
            assert not replica.status().polling


def test_hellos_about_long_topics_reach_a_replica_whose_frames_are_small(sqlite_url: str) -> None:
    """A replica without a hello reply reads after ``hello_wait``, which is too long here."""
    timing = Timing(hello_wait=10 * LONG, max_idle_time=1.0, reading_age=0.2, sync_jitter=0.01)
    limits = Limits(max_value_bytes=1, max_frame_bytes=4097)
    config = settings(sqlite_url, timing, limits)
    topics = [f"{number:04}" + "t" * 251 for number in range(100)]
    with ExitStack() as ending:
        store = ending.enter_context(Store(config))
        publisher = ending.enter_context(Publisher(config, store))
        for topic in topics:
            with store.transaction() as tx:
                tx.set("t", topic[:4], 1, topic=topic)
        replica = ending.enter_context(Replica(config, topics))
        replica.wait_synced(LONG)
        before = publisher.counters()["hellos"]
        assert poll(lambda: publisher.counters()["hellos"] > before, LONG), "no broadcast while it is idle"
        assert publisher.counters()["unsent"] == 0
        assert poll(lambda: replica.staleness() < timing.max_idle_time + 0.5, LONG)
        assert replica.status().dropped["oversized"] == 0


def test_topic_subscribed_under_load_converges(sqlite_url: str) -> None:
    timing = Timing(max_idle_time=1.0, message_delay_window=0.1, hello_wait=0.3, sync_jitter=0.01, sync_interval=0.01)
    config = settings(sqlite_url, timing)
    ceased = threading.Event()
    numbers = iter(range(1_000_000))

    def fire(store: Store) -> None:
        while not ceased.is_set():
            number = next(numbers)
            with store.transaction() as tx:
                tx.set("t", f"k{number % 50}", number, topic=TOPICS[number % 3])  # each object moves all the time
                if number % 5 == 0:
                    tx.delete("t", f"k{(number + 25) % 50}", missing_ok=True)

    with ExitStack() as ending:
        store = ending.enter_context(Store(sqlite_url))
        ending.enter_context(Publisher(config, store))
        replica = ending.enter_context(Replica(config, ["a"]))
        replica.wait_synced(LONG)

        def shots(count: int) -> int:
            """Wait for at least ``count`` more changes; return the store's position then."""
            wanted = store.read_heads(()).store.position + count
            assert poll(lambda: store.read_heads(()).store.position >= wanted, LONG)
            return wanted

        firing = threading.Thread(target=fire, args=(store,))
        firing.start()
        try:
            for _ in range(3):
                for topic in ("b", "c"):
                    shots(10)
                    replica.subscribe(topic)
                    replica.wait_for(shots(10), LONG, topics=[topic])  # synced, and applying while more changes come
                replica.unsubscribe("b")
                replica.unsubscribe("c")
            shots(10)
            replica.subscribe("b", "c")
            shots(10)
        finally:
            ceased.set()
            firing.join(LONG)
        head = store.read_heads(()).store.position
        replica.wait_for(head, LONG)
        assert held(replica) == stored(store, *TOPICS)
        status = replica.status()
    assert (status.faults.guarded, status.faults.mismatches) == (0, 0)


def test_worker_forked_after_its_parent_sent_delivers(tmp_path: Path, sqlite_url: str) -> None:
    host = Host(tmp_path, sqlite_url)
    try:
        host.service()
        with Watched(host.settings) as watched, Store(sqlite_url) as store:
            worker = host.worker()
            watched.must_come_to(write(worker, 5), store)
            watched.must_come_to(fork(worker, 5), store)
            watched.must_come_to(write(worker, 5), store)
            watched.must_come_to(fork(worker, 5), store)
            pushed = sum(len(link.changes) > 0 for link in store.read_links(None, 1000)[0])

            def taken() -> bool:
                # A link read from the changelog before it was received counts as repeated. On a busy machine, grace is
                # too short for some links.
                return host.metric("links_total", "handed") + host.metric("links_total", "repeated") == pushed

            assert poll(taken, LONG), "a pushed link did not arrive over the hop"
            assert host.metric("receiving_total", "lost") == 0
    finally:
        host.close()


def up(replica: Replica) -> int:
    """The number of the replica's established connections."""
    counters = replica.status().driver
    return counters["connected"] - counters["disconnected"]


@pytest.fixture
def network() -> Iterator[Namespace]:
    why = missing()
    if why:
        if IN_CI:
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    with namespaces(1) as (made,):
        yield made


def test_half_open_connection_is_detected_by_both_ends_within_the_bound(
    network: Namespace, tmp_path: Path, sqlite_url: str
) -> None:
    """The cable of the publisher's host is pulled: packets are lost without FIN and RST."""
    quick: dict[str, Any] = {"max_idle_time": 1.0, "reading_age": 0.5, "round_trip": 0.5, "poll_interval": 0.2}
    detected = ZmqOptions().max_silence
    host = Host(tmp_path / "there", sqlite_url, "api-1", network, **quick)
    here = Host(tmp_path / "here", sqlite_url, "here", discovery_interval=0.3, **quick)
    # A lease that expires on a busy machine removes the address, and the next connection would not be a reconnection.
    host.change("lease = 2", "lease = 600")
    try:
        host.service()
        with Watched(here.settings) as watched, Store(sqlite_url) as store:
            replica = watched.replica
            assert poll(lambda: replica.publishers == (host.settings.bind_address,), LONG)
            worker = host.worker()
            watched.must_come_to(write(worker, 5), store)
            assert replica.status().driver["disconnected"] == 0

            network.pull()
            cut = time.monotonic()
            assert poll(lambda: replica.status().driver["disconnected"] == 1, detected + 2.0), "not detected in time"
            assert time.monotonic() - cut > 0.5, "the connection was closed with a FIN or RST"
            watched.must_come_to(write(worker, 5), store)  # these commits are read from the database
            assert poll(lambda: replica.status().polling, LONG)

            network.plug()
            assert poll(lambda: up(replica) == 1, LONG), replica.status().driver
            assert replica.status().driver["reconnected"] >= 1
            assert poll(lambda: not replica.status().polling, LONG)
            assert poll(lambda: host.metric("sending_total", "disconnected") >= 1, LONG)
            watched.must_come_to(write(worker, 5), store)
    finally:
        here.close()
        host.close()
