"""The whole service in one process: worker, hop, service, replica, on a real store and two in-process buses."""

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _patience import longest
from _processes import free_port, poll
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import create_engine, update

from pubsub_lib import Replica, Settings, Store
from pubsub_lib.api import DriverSettings, OnConnected, OnEnvelope, Subscriber
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Link
from pubsub_lib.errors import ConfigError, DriverError, TransportError
from pubsub_lib.journal import JournalSettings
from pubsub_lib.journal.reading import find, read
from pubsub_lib.publisher.worker import Worker
from pubsub_lib.service import main
from pubsub_lib.service.metrics import endpoint_of
from pubsub_lib.service.service import PublisherService, drivers
from pubsub_lib.store import schema
from pubsub_lib.testing.forwarding import ForwardingSubscriber
from pubsub_lib.testing.rig import Collector
from pubsub_memory import MemoryDriver
from tests.unit.world import settings

LONG = longest(120.0)
QUICK = ServiceSettings(
    address="memory://x", lease=5.0, follow_interval=0.02, grace=0.05, trim_interval=0.05, metrics_port=0
)


def both(url: str, **changes: Any) -> Settings:
    """Settings with a bus to the replicas and another bus between workers and service."""
    made = settings(url, service_name="api-1")
    hop = {"bus": f"{made.driver_options['bus']}-hop"}
    given: dict[str, Any] = {"multiproc_driver": "memory", "multiproc_socket": "/x", "multiproc_options": hop}
    return settings(url, **{"service_name": "api-1", "driver_options": made.driver_options, **given, **changes})


@pytest.fixture
def config(sqlite_url: str) -> Settings:
    return both(sqlite_url)


@pytest.fixture
def store(config: Settings) -> Iterator[Store]:
    with Store(config.store_url, origin="api-1") as store:
        yield store


def write(store: Store, value: int, origin: str | None = None) -> Any:
    with store.transaction(origin=origin) as tx:
        tx.set("a", str(value % 3), value, topic="t")
    assert tx.commit is not None
    return tx.commit


class HoldsBack(ForwardingSubscriber):
    """A hop that delivers what workers pushed only while it is closed, as a busy one does."""

    def __init__(self, inner: Subscriber, pushed: list[Envelope]) -> None:
        super().__init__(inner)
        self._pushed = pushed

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        self._deliver = on_envelope
        super().initialize(on_envelope, on_connected)

    def close(self) -> None:
        while self._pushed:
            self._deliver(self._pushed.pop(0))
        super().close()


def test_workers_commit_reaches_the_replica_through_the_service(config: Settings, store: Store) -> None:
    patient = ServiceSettings(grace=60.0)  # so that no link comes from the changelog
    with PublisherService(config, patient) as service, Replica(config, ["t"]) as replica, Worker(config, store):
        replica.wait_synced(LONG)
        for value in range(20):
            commit = write(store, value)
        replica.wait_for(commit, timeout=LONG)
        assert replica.get("a", "1") == 19
        # The replica may have read the last links from the store, before the service has them all.
        assert poll(lambda: service.counters()["links"]["handed"] == 20, LONG), service.counters()


def test_time_from_the_commit_is_counted_at_service_and_replica(config: Settings, store: Store) -> None:
    """Over HTTP, from a service and a replica of their own endpoints."""
    watched = msgspec.structs.replace(config, replica_metrics_port=free_port())
    with (
        PublisherService(config, ServiceSettings(grace=60.0)) as service,
        Replica(watched, ["t"], default_topic=False) as replica,
        Worker(config, store),
    ):
        endpoint = endpoint_of(
            ServiceSettings(metrics_port=0), service.counters, service.gauges, service.latencies, service.problems
        )
        endpoint.start()
        try:
            replica.on("a", lambda change: None)
            replica.wait_handled(write(store, 0), LONG)
            before = scraped(watched.replica_metrics_port)
            for value in range(1, 21):
                commit = write(store, value)
            replica.wait_handled(commit, LONG)
            after = scraped(watched.replica_metrics_port)
            sent = "pubsub_service_commit_to_sent_seconds"  # counted a moment after the replica has received a link
            assert poll(lambda: scraped(endpoint.port)[f"{sent}_count"] == 21.0, LONG), scraped(endpoint.port)
            assert 0.0 <= scraped(endpoint.port)[f"{sent}_sum"] < 21 * LONG
        finally:
            endpoint.close()
    for step in ("applied", "handled"):
        name = f"pubsub_replica_commit_to_{step}_seconds"
        assert after[f"{name}_count"] - before[f"{name}_count"] == 20.0, step
        assert 0.0 <= after[f"{name}_sum"] - before[f"{name}_sum"] < 20 * LONG, step


def scraped(port: int) -> dict[str, float]:
    """The values of all metrics without labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LONG) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


def published(service: PublisherService) -> float:
    """The links that were handed over, and those from the changelog."""
    links = service.counters()["links"]
    return links["handed"] + links["followed"]


@pytest.mark.parametrize("traced", [False, True])
def test_service_commits_for_workers_and_publishes_once(traced: bool, sqlite_url: str, tmp_path: Path) -> None:
    """It publishes what it commits, but for a worker with trace contexts, which only the worker has."""
    config = both(sqlite_url, group_commit="host", multiproc_socket=f"{tmp_path}/hop/socket")
    with PublisherService(config, QUICK) as service, Replica(config, ["t"]) as replica:
        with Store(config) as store, Worker(config, store, trace=(lambda: "00-1-2-01") if traced else None):
            replica.wait_synced(LONG)
            for value in range(20):
                commit = write(store, value)
            replica.wait_for(commit, timeout=LONG)
        assert replica.get("a", "1") == 19
        assert service.counters()["commits"]["requests"] == 20
        # The replica may have read the last links from the store, before the service has published them all.
        assert poll(lambda: service.counters()["receiving"]["received"] == (20 if traced else 0), LONG)
        assert poll(lambda: published(service) == 20, LONG), service.counters()
        assert service.stuck() == []
    assert not (tmp_path / "hop" / "socket.commit").exists()


def test_service_without_the_option_takes_no_transactions(config: Settings, store: Store) -> None:
    with PublisherService(config, QUICK) as service:
        write(store, 1)
        assert "commits" not in service.counters()


def test_unwritable_journal_is_counted_and_stops_nothing(config: Settings, store: Store) -> None:
    config = msgspec.structs.replace(config, journal=JournalSettings("/proc/nowhere"))
    with PublisherService(config, QUICK) as service:
        # The changelog is followed from the head of its first reading.
        assert poll(lambda: service.problems() == [], LONG), service.problems()
        write(store, 1)
        assert poll(lambda: service.counters()["links"]["followed"] == 1, LONG), service.counters()
        assert service.counters()["journal"]["written"] == 0
        assert service.counters()["journal"]["lost"] >= 2, "the open record and the sent messages"
        assert service.gauges()["broken"] == {"journal": 1.0}


def test_links_not_handed_over_are_followed_and_orphans_are_taken_over(config: Settings, store: Store) -> None:
    with PublisherService(config, QUICK) as service:
        assert poll(lambda: service.problems() == [], LONG), service.problems()
        write(store, 1)
        write(store, 2, origin="")
        write(store, 3, origin="no-live-service")
        assert poll(lambda: service.counters()["links"]["took_over"] == 2, LONG), service.counters()
        assert service.counters()["links"]["followed"] == 1
        held = {"orphans": 1.0, "maintenance": 1.0, "entry": 1.0}  # the leases are acquired one after the other
        assert poll(lambda: service.gauges()["leases"] == held, LONG), service.gauges()


def test_links_of_a_live_service_are_not_taken_over(config: Settings, store: Store) -> None:
    with PublisherService(config, QUICK) as first:
        assert poll(lambda: first.problems() == [], LONG)
        store.directory.register("api-2", "0" * 32, "", 60.0)
        renewed = store.directory.live()
        assert [each.service for each in renewed] == ["api-1", "api-2"]
        # The list is read with each renewal of the lease: links written after the next renewal must wait.
        assert poll(lambda: "api-2" in first._leases.orphans(time.monotonic())[0], LONG)
        write(store, 1, origin="api-2")
        write(store, 2, origin="")
        assert poll(lambda: first.counters()["links"]["took_over"] == 1, LONG)
        assert first.counters()["links"]["took_over"] == 1


def test_service_is_registered_while_it_runs(
    config: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub_lib.service.service.CLOSE_TIMEOUT", LONG)
    with PublisherService(config, QUICK) as service:
        assert poll(lambda: [each.uuid for each in store.directory.live()] == [service.uuid], LONG)
        assert store.directory.live()[0].address == "memory://x"
        assert poll(lambda: service.gauges()["leases"]["maintenance"] == 1.0, LONG)
    assert store.directory.live() == []
    assert (store.directory.holder("orphans"), store.directory.holder("maintenance")) == (None, None)
    assert service.problems()[0] == "the service is not running"


def test_ready_its_metric_and_the_page_name_a_hanging_thread(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = "the thread 'publisher' has not ended its step for 500 s"
    with PublisherService(config, QUICK) as service:
        assert poll(lambda: not service.problems(), LONG)
        monkeypatch.setattr(service, "stuck", lambda: [hangs])
        serving = msgspec.structs.replace(QUICK, metrics_port=-1)
        with closing(main._endpoint(service, config, serving)) as endpoint:
            at = f"http://127.0.0.1:{endpoint.port}"
            with pytest.raises(urllib.error.HTTPError, match="503") as caught:
                urllib.request.urlopen(f"{at}/ready", timeout=LONG)
            assert hangs in caught.value.read().decode()
            with urllib.request.urlopen(f"{at}/metrics", timeout=LONG) as answer:
                assert "pubsub_service_ready 0.0" in answer.read().decode()
            with urllib.request.urlopen(f"{at}/status", timeout=LONG) as answer:
                assert "Not ready: 1 problem" in answer.read().decode()


def test_service_enters_the_free_port_that_it_bound(sqlite_url: str) -> None:
    config = settings(
        sqlite_url,
        service_name="api-1",
        driver="zmq_pubsub_driver",
        driver_options={},
        bind_address="tcp://127.0.0.1:0",
    )
    known = msgspec.structs.replace(QUICK, address="tcp://host.example:0")
    with Store(sqlite_url) as store, PublisherService(config, known) as service:
        port = service._sender.bound_address().rpartition(":")[2]
        assert service.address == f"tcp://host.example:{port}"
        assert int(port) > 0
        assert poll(lambda: [each.address for each in store.directory.live()] == [service.address], LONG)


def test_driver_that_does_not_name_its_port_is_refused(config: Settings) -> None:
    service = PublisherService(config, msgspec.structs.replace(QUICK, address="tcp://host.example:0"))
    with pytest.raises(TransportError, match="does not name the port that it bound for tcp://host"):
        service.start()
    assert service.problems()[0] == "the service is not running"


def test_service_trims_while_it_holds_the_lease(config: Settings, store: Store) -> None:
    for value in range(5):
        write(store, value)
    keep = ServiceSettings(keep_links=2, trim_interval=0.02, follow_interval=0.02)
    with PublisherService(config, keep) as service:
        assert poll(lambda: service.counters()["maintenance"]["trimmed"] == 3, LONG), service.counters()
    assert len(_links(store)) == 2


def test_adjusted_service_trims_recounts_and_reads_at_once(config: Settings, store: Store) -> None:
    """Without the adjustment the next steps would be an hour away."""
    slow = ServiceSettings(keep_links=0, trim_interval=3600.0, follow_interval=3600.0, recount_time=0.0)
    with PublisherService(config, slow) as service:
        assert poll(lambda: service.gauges()["leases"]["maintenance"] == 1.0, LONG)
        # The changelog is followed from the head of its first reading.
        assert poll(lambda: service.problems() == [], LONG), service.problems()
        for value in range(5):
            write(store, value)
        reading = ServiceSettings(keep_links=0, trim_interval=3600.0, follow_interval=0.02, recount_time=0.0)
        service.adjust(reading)
        assert poll(lambda: service.counters()["links"]["followed"] == 5, LONG), service.counters()
        # Not before: links that are trimmed at once are never followed.
        quick = ServiceSettings(keep_links=2, trim_interval=0.02, follow_interval=0.02, recount_time=0.1, lease=99.0)
        service.adjust(quick)
        assert poll(lambda: service.counters()["maintenance"]["trimmed"] == 3, LONG), service.counters()
        assert poll(lambda: service.counters()["recount"]["rounds"] > 1, LONG), service.counters()
        assert service._health._max_quiet == slow.lease, "another lease needs a restart"


def test_service_recounts_while_it_holds_the_lease(config: Settings, store: Store, tmp_path: Path) -> None:
    for value in range(5):
        write(store, value)
    engine = create_engine(config.store_url)
    with engine.begin() as connection:
        connection.execute(update(schema.objects).where(schema.objects.c.object_key == "1").values(value=b'"rot"'))
    engine.dispose()
    often = ServiceSettings(recount_time=0.1, follow_interval=0.02)
    folder = tmp_path / "journal"
    journalled = msgspec.structs.replace(config, journal=JournalSettings(str(folder), to_parquet=False))
    with PublisherService(journalled, often) as service:
        assert poll(lambda: service.counters()["recount"]["repaired"] == 1, LONG), service.counters()
    assert store.get("a", "1") == 4
    found = [row for path in find([folder]).append for row in read(path) if row.kind == "rot"]
    assert [(row.side, row.topic, row.cause, row.count, row.size) for row in found] == [("service", "t", "store", 1, 1)]


def test_links_pushed_before_the_end_are_sent_before_the_goodbye(config: Settings, store: Store) -> None:
    service = PublisherService(config, ServiceSettings(grace=60.0))  # so that no link comes from the changelog
    assert service._receiving is not None
    pushed: list[Envelope] = []
    hop, received = HoldsBack(service._receiving._subscriber, pushed), Collector(LONG)
    service._receiving._subscriber = hop
    service.start()
    listener = MemoryDriver.subscriber(DriverSettings(options=config.driver_options))
    listener.initialize(received, lambda: None)
    listener.register_topic("t")
    listener.daemonize()
    with closing(listener):
        (link,) = write(store, 1).links
        [message] = codec.split(link, config.limits)
        pushed.append(Envelope("api-1", "a" * 32, "t", 1, [message], None, store.store_id))
        service.close()
        service.close()
        received.until(lambda: any(each.hello and each.hello.goodbye for each in list(received.envelopes)), "a goodbye")
    ends = [each for each in received.envelopes if each.messages or (each.hello and each.hello.goodbye)]
    assert [message.link.point for message in ends[0].messages] == [link.point]
    assert [bool(each.hello and each.hello.goodbye) for each in ends] == [False, True]
    assert service.counters()["links"]["handed"] == 1
    assert service.counters()["links"]["unsent"] == 0


def test_hanging_database_delays_neither_goodbye_nor_end(
    config: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stopped server: its host still acknowledges packets, so no connection timeout ends the query."""
    service = PublisherService(config, QUICK)
    goodbye_first: list[bool] = []
    answered, ended = threading.Event(), threading.Event()

    def stopped() -> None:
        goodbye_first.append(service._publisher._closing)
        answered.wait(LONG)
        ended.set()

    monkeypatch.setattr(service._leases, "leave", stopped)
    service.start()
    service.close()
    assert not ended.is_set()
    assert goodbye_first == [True]
    assert "cannot leave the directory; the entry expires by itself: the database does not answer" in caplog.text
    answered.set()
    assert ended.wait(LONG)


@pytest.mark.parametrize("what", ["the worker socket", "the last thread"])
def test_failed_start_releases_everything(config: Settings, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    service = PublisherService(config, QUICK)

    def refuse() -> None:
        raise TransportError(f"{what} is unavailable")

    assert service._receiving is not None
    last = list(service._loops.values())[-1]
    monkeypatch.setattr(service._receiving if what == "the worker socket" else last, "start", refuse)
    with pytest.raises(TransportError, match=f"{what} is unavailable"):
        service.start()
    assert service._publisher._closing
    assert all(loop.close(LONG) for loop in service._loops.values()), "no thread runs any more"


def test_second_service_of_the_same_name_stops_and_the_first_continues(config: Settings, store: Store) -> None:
    # Long enough for a busy machine: if the first service's lease expires, the first one must stop.
    quick = ServiceSettings(address="memory://x", lease=9.0, follow_interval=0.02, metrics_port=0)
    gave_up = threading.Event()
    with PublisherService(config, quick) as first:
        assert poll(lambda: first.problems() == [], LONG)
        with PublisherService(both(config.store_url), quick, gave_up.set) as second:
            assert gave_up.wait(LONG)
            assert isinstance(second.failure, ConfigError)
            assert "another live service has the name 'api-1', at memory://x" in str(second.failure)
            assert poll(lambda: any("another service 'api-1'" in each for each in first.problems()), LONG)
        assert poll(lambda: first.problems() == [], LONG), first.problems()
        assert first.failure is None


def test_service_without_a_hop_only_follows_the_changelog(sqlite_url: str) -> None:
    config = both(sqlite_url, multiproc_driver="")
    with Store(sqlite_url, origin="api-1") as store, PublisherService(config, QUICK) as service:
        assert poll(lambda: service.problems() == [], LONG)
        write(store, 1)
        assert poll(lambda: service.counters()["links"]["followed"] == 1, LONG)
        assert service.counters()["receiving"] == {}


def test_invalid_service_settings_are_rejected(sqlite_url: str) -> None:
    with pytest.raises(ConfigError, match="service_name"):
        PublisherService(both(sqlite_url, service_name=""))
    with pytest.raises(ConfigError, match="enable_pub_sub"):
        PublisherService(both(sqlite_url, driver="db_polling_pubsub_driver"))
    with pytest.raises(DriverError, match="'zmq_pubsub_multiproc_driver' lacks the capability 'fan_out'"):
        drivers(both(sqlite_url, driver="zmq_pubsub_multiproc_driver", driver_options={}))


def _links(store: Store) -> list[Link]:
    return store.read_links(None, 100)[0]
