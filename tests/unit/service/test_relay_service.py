"""A relay as a service: its entry in the directory, readiness, metrics, status, and what it refuses."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from _processes import free_port, poll

from pubsub_lib import Replica, Settings, Store
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.model import Full, Want
from pubsub_lib.errors import ConfigError, DriverError, TransportError
from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.relay.full_syncs import LEASES
from pubsub_lib.service.metrics import ServiceMetrics
from pubsub_lib.service.relay_service import RelayService
from pubsub_lib.service.service import PublisherService
from pubsub_lib.service.status_page import page
from pubsub_lib.sync.agents_server import GET_ROUTE, POST_ROUTE
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.sync.server import ROUTE, SyncRoute
from pubsub_lib.sync.urls import known_urls
from tests.unit.relay.sockets import TOPICS, below, bound
from tests.unit.sync.test_agents_server import Nothing, Served
from tests.unit.sync.test_client import service as channel
from tests.unit.world import LONG, settings


def service_of(config: Settings, role: Literal["origin", "relay"] = "relay") -> ServiceSettings:
    return ServiceSettings(
        role=role, address=config.bind_address, lease=5.0, follow_interval=0.02, grace=0.05, metrics_port=0
    )


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No relay gives up an answer, or leaves without the last word, because its threads do not run for a moment."""
    monkeypatch.setattr("pubsub_lib.relay.engine.SLACK", LONG)
    monkeypatch.setattr("pubsub_lib.service.relay_service.CLOSE_TIMEOUT", LONG)
    monkeypatch.setattr("pubsub_lib.sync.announcer.LEAVE_TIMEOUT", LONG)


@pytest.fixture
def origin(sqlite_url: str, tmp_path: Path) -> Iterator[Settings]:
    hop = {"multiproc_driver": "zmq_pubsub_multiproc_driver", "multiproc_socket": f"{tmp_path}/hop/socket"}
    config = bound(sqlite_url, "api-1", discovery_interval=0.2, **hop)
    with PublisherService(config, service_of(config, "origin")):
        yield config


@pytest.fixture
def store(origin: Settings) -> Iterator[Store]:
    with Store(origin.store_url) as store:
        yield store


def relay_settings(origin: Settings, name: str = "relay-1") -> Settings:
    # As a file has it: publishers_ips is for replicas, and names the origin here.
    return bound(origin.store_url, name, discovery_interval=0.2, addresses=(origin.bind_address,))


def write(store: Store, value: int) -> int:
    with store.transaction() as tx:
        tx.set("a", str(value), value, topic="t")
    assert tx.commit is not None
    return tx.commit.point.position


def test_relay_finds_the_origin_and_serves_a_replica_that_names_it(origin: Settings, store: Store) -> None:
    config = relay_settings(origin)
    with (
        RelayService(config, service_of(config)) as relay,
        Replica(below(origin, config), TOPICS) as replica,
        Replica(origin, TOPICS) as ordinary,
    ):
        replica.wait_synced(LONG)
        assert poll(lambda: not relay.problems(), LONG), relay.problems()
        assert poll(lambda: {(each.service, each.role) for each in store.directory.live()} == {
            ("api-1", "origin"), ("relay-1", "relay"),
        }, LONG)  # fmt: skip
        replica.wait_for(write(store, 1), LONG, topics=TOPICS)
        assert poll(lambda: relay.counters()["relayed"]["links"] >= 1, LONG)
        assert poll(lambda: replica._engine.read(lambda state: relay.uuid in state.leased.live), LONG)
        assert poll(lambda: ordinary.publishers == (origin.bind_address,), LONG), "it does not listen to the relay"
        assert relay.answer_sync(SyncQuestion({"t": Want()})) is not None
        gauges = relay.gauges()["relay"]
        assert (gauges["topics"], gauges["served"]) == (3.0, 3.0)
        assert gauges["proof_age"] < LONG
        assert (gauges["polling"], gauges["quarantined"]) == (0.0, 0.0)
        assert relay.counters()["faults"] == {"guarded": 0, "mismatches": 0, "rotted": 0, "contradicted": 0}
    assert [each.service for each in store.directory.live()] == ["api-1"]


def test_relay_reads_all_objects_under_a_lease_and_names_it_when_it_waits(origin: Settings, store: Store) -> None:
    write(store, 1)
    config = relay_settings(origin)
    for name in LEASES:
        assert store.directory.acquire(name, "relays that start, too", LONG)
    with RelayService(config, service_of(config)) as relay:
        assert poll(lambda: any("2 leases for reading all objects" in each for each in relay.problems()), LONG)
        assert relay.gauges()["leases"]["full_sync"] == 0.0
        assert relay.answer_sync(SyncQuestion({"t": Want()})) is None
        store.directory.release(LEASES[0], "relays that start, too")
        assert poll(lambda: not relay.problems(), LONG), relay.problems()
        assert store.directory.holder(LEASES[0]) is None


def test_relay_that_gets_no_lease_reads_from_its_sibling(origin: Settings, store: Store) -> None:
    write(store, 1)
    config, later = relay_settings(origin), relay_settings(origin, "relay-2")
    with RelayService(config, service_of(config)) as ready:
        assert poll(lambda: not ready.problems(), LONG), ready.problems()
        for name in LEASES:
            assert store.directory.acquire(name, "relays that start, too", LONG)
        route = SyncRoute(ready.answer_sync, 4, LONG)
        served = Endpoint("127.0.0.1", 0, Nothing(), list, "p", {}, streams={ROUTE: route})
        served.start()
        try:
            beside = f"http://127.0.0.1:{served.port}"
            with RelayService(later, msgspec.structs.replace(service_of(later), sibling_urls=beside)) as relay:
                assert poll(lambda: not relay.problems(), LONG), relay.problems()
                answer = relay.answer_sync(SyncQuestion({"t": Want()}))
                assert answer is not None
                part = answer.chains["t"]
                assert isinstance(part, Full)
                assert [each.value for each in part.topics["t"].records] == [b"1"]
        finally:
            served.close()
    assert route.counters()["answered"] >= 1


def test_status_page_and_metrics_name_the_role_and_what_is_above(origin: Settings, store: Store) -> None:
    upper, config = relay_settings(origin), relay_settings(origin, "relay-2")
    config = msgspec.structs.replace(config, parents=(upper.bind_address,))
    with RelayService(upper, service_of(upper)), RelayService(config, service_of(config)) as relay:
        assert poll(lambda: not relay.problems(), LONG), relay.problems()
        status = relay.status_reader("zmq_pubsub_driver", config.bind_address)
        assert poll(lambda: status().entries_age is not None, LONG)
        found = status()
        assert (found.role, found.listens_to) == ("relay", (upper.bind_address,))
        shown = page(found, 0)
        assert "<dt>Role</dt><dd>relay</dd>" in shown
        assert f"<dt>Listens to</dt><dd>{upper.bind_address}</dd>" in shown
        metrics = ServiceMetrics(relay.counters, relay.gauges, relay.latencies, relay.problems)
        names = {sample.name for family in metrics.collect() for sample in family.samples}
        assert {"pubsub_service_relayed_total", "pubsub_service_relay", "pubsub_service_ready"} <= names
        assert relay.stuck() == []
        relay.adjust(service_of(config))


@contextmanager
def endpoint(relay: RelayService, config: Settings) -> Iterator[str]:
    """The URL of an endpoint of this relay, with the agents."""
    route = relay.agents_route(config.bind_address)
    served = Endpoint("127.0.0.1", 0, Nothing(), list, "p", {GET_ROUTE: route.answer}, streams={POST_ROUTE: route})
    served.start()
    try:
        yield f"http://127.0.0.1:{served.port}"
    finally:
        served.close()


def test_relay_announces_itself_and_the_agents_below_it(origin: Settings, store: Store) -> None:
    top = Served()
    url = f"http://127.0.0.1:{top.endpoint.port}"

    def known() -> dict[str, tuple[str, int]]:
        return {each.name: (each.parent, each.hops) for each in top.route._registry.known(time.monotonic()).agents}

    # It is also the time that an announcement may take, and on a busy machine a shorter one fails.
    quick: dict[str, Any] = {"announce_interval": 2.0}
    upper = msgspec.structs.replace(relay_settings(origin), sync_url=url, **quick)
    try:
        with RelayService(upper, service_of(upper), reader=store) as one, endpoint(one, upper) as at:
            lower = msgspec.structs.replace(
                relay_settings(origin, "relay-2"), sync_url=at, parents=(upper.bind_address,), **quick
            )
            with RelayService(lower, service_of(lower), reader=store) as two:
                assert poll(lambda: known() == {"relay-1": ("", 0), "relay-2": ("relay-1", 1)}, LONG), known()
                assert poll(
                    lambda: two._announcer is not None and two._announcer.above == (one.uuid, "u-own", "u-above"), LONG
                )
                assert poll(lambda: two.counters()["relayed"]["announcements"] >= 2, LONG)
                assert two.counters()["relayed"]["announcements_failed"] == 0
                below_two = {each.name: each for each in top.route._registry.known(time.monotonic()).agents}["relay-2"]
                assert (below_two.role, below_two.address) == ("relay", lower.bind_address)
                assert below_two.topics == ("default", "t", "u")
                assert below_two.listens_to == (upper.bind_address,)
            assert poll(lambda: known() == {"relay-1": ("", 0)}, LONG), "relay-2 left"
        assert known() == {}
    finally:
        top.endpoint.close()


def test_relays_that_name_one_another_find_the_service_above(origin: Settings, store: Store) -> None:
    top = Served()
    last = f"http://127.0.0.1:{top.endpoint.port}"
    try:
        one = msgspec.structs.replace(relay_settings(origin), sync_url=last)
        two = relay_settings(origin, "relay-2")
        with RelayService(one, service_of(one), reader=store) as first, endpoint(first, one) as at_first:
            two = msgspec.structs.replace(two, sync_url=at_first)
            with RelayService(two, service_of(two), reader=store) as second, endpoint(second, two) as at_second:
                assert first._announcer is not None
                assert second._announcer is not None
                for announcer in (second._announcer, first._announcer):
                    announcer._loop.close(LONG)  # the steps are those of this test alone
                first._announcer._known = known_urls(f"{at_second},{last}")
                for _ in range(3):
                    for announcer in (second._announcer, first._announcer):
                        announcer._begun = True
                        announcer.step(time.monotonic())
                found = top.route._registry.known(time.monotonic()).agents
                assert [(each.name, each.hops) for each in found] == [("relay-1", 0), ("relay-2", 1)]
    finally:
        top.endpoint.close()


def bare(config: Settings, url: str, **changes: Any) -> Settings:
    """Without a database, and with this sync channel."""
    return msgspec.structs.replace(config, store_url="", sync_url=url, discovery_interval=0.0, **changes)


def test_relays_without_a_database_serve_a_replica_without_one(origin: Settings, store: Store) -> None:
    with channel(lambda question: store.read_sync(question.wants)) as (url, _):
        one = bare(relay_settings(origin), url)  # it listens to publishers_ips
        two = bare(relay_settings(origin, "relay-2"), url, parents=(one.bind_address,))
        with (
            RelayService(one, service_of(one)) as upper,
            RelayService(two, service_of(two)) as lower,
            Replica(bare(below(origin, two), url), TOPICS) as replica,
        ):
            replica.wait_synced(LONG)
            assert poll(lambda: not upper.problems() and not lower.problems(), LONG), lower.problems()
            assert poll(lambda: not replica.status().polling, LONG)
            with store.transaction() as tx:
                tx.set("a", "k", 1, topic="t")
            assert tx.commit is not None
            replica.wait_for(tx.commit, LONG, topics=TOPICS)
            assert poll(lambda: lower.counters()["relayed"]["links"] >= 1, LONG)
            ids = {each._relay._engine.core.relay.sequencer.store_id.hex() for each in (upper, lower)}
            assert ids == {replica.status().store_id} == {store.store_id.hex()}
            above = [each.status_reader("d", "")() for each in (upper, lower)]
            assert [each.listens_to for each in above] == [(origin.bind_address,), (one.bind_address,)]
            assert [(each.database, each.threads) for each in above] == [(False, []), (False, [])]
            assert "leases" not in lower.gauges()
            assert lower.counters()["failures"] == {}
            assert (lower.stuck(), lower.failure) == ([], None)
            assert {each.service for each in store.directory.live()} == {"api-1"}
        assert lower.problems() == ["the service is not running"]


@contextmanager
def serving(relay: RelayService, config: Settings) -> Iterator[SyncRoute]:
    """An endpoint of this relay, whose port its hellos name: it answers syncs, and takes announcements."""
    route, agents = SyncRoute(relay.answer_sync, 4, LONG), relay.agents_route(config.bind_address)
    served = Endpoint("127.0.0.1", 0, Nothing(), list, "p", {}, streams={ROUTE: route, POST_ROUTE: agents})
    served.start()
    try:
        relay.serve_syncs_at(served.port)
        yield route
    finally:
        relay.serve_syncs_at(0)
        served.close()


def test_relay_with_parents_alone_reads_and_announces_itself_at_its_current_parent(
    origin: Settings, store: Store
) -> None:
    position = write(store, 1)
    one, two = relay_settings(origin), relay_settings(origin, "relay-2")
    parents = (one.bind_address, two.bind_address)
    lower = bare(relay_settings(origin, "relay-3"), "", parents=parents, announce_interval=0.2)
    with (
        RelayService(two, service_of(two)) as second,
        serving(second, two) as at_two,
        RelayService(one, service_of(one)) as first,
        serving(first, one) as at_one,
        RelayService(lower, service_of(lower)) as relay,
    ):
        assert poll(lambda: not relay.problems(), LONG), relay.problems()
        assert at_one.counters()["answered"] + at_two.counters()["answered"] >= 1
        answer = relay.answer_sync(SyncQuestion({"t": Want()}))
        assert answer is not None
        assert isinstance(answer.chains["t"], Full)
        assert relay._relay._engine.core.relay.sequencer.store_id == store.store_id
        announcer = relay._announcer
        assert announcer is not None
        # On a busy machine it may have left the first parent already.
        served = {one.bind_address: (first, at_one), two.bind_address: (second, at_two)}
        assert poll(lambda: announcer.above == (served[relay._relay.listens_to[0]][0].uuid,), LONG)
        left = relay._relay.listens_to[0]
        (other,) = served.keys() - {left}
        before = served[other][1].counters()["answered"]
        served[left][0].close()
        assert poll(lambda: relay._relay.listens_to == (other,), LONG)
        relay._relay._engine.resync(["t"])
        assert poll(lambda: served[other][1].counters()["answered"] > before, LONG)
        assert poll(lambda: announcer.above == (served[other][0].uuid,), LONG)
        assert poll(lambda: not relay.problems(), LONG), relay.problems()
        with Replica(bare(below(origin, lower), "http://127.0.0.1:1"), TOPICS, store=store) as replica:
            replica.wait_handled(position, LONG, topics=TOPICS)
            assert poll(lambda: not replica.status().polling, LONG)


def test_relay_below_a_parent_that_names_no_channel_reports_it(origin: Settings, store: Store) -> None:
    upper = relay_settings(origin)
    lower = bare(relay_settings(origin, "relay-2"), "", parents=(upper.bind_address,))
    with RelayService(upper, service_of(upper)), RelayService(lower, service_of(lower)) as relay:
        assert poll(lambda: any("has named no sync channel in a hello" in each for each in relay.problems()), LONG)


def test_replica_that_reads_the_directory_uses_nothing_of_a_relay_without_an_entry(
    origin: Settings, store: Store
) -> None:
    with channel(lambda question: store.read_sync(question.wants)) as (url, _):
        config = bare(relay_settings(origin), url)
        with (
            RelayService(config, service_of(config)),
            Replica(below(origin, config), TOPICS) as reads,
            Replica(below(origin, config, discovery_interval=0.0), TOPICS) as reads_not,
        ):
            assert poll(lambda: reads.status().counters.unleased >= 1, LONG), "the relay has no lease (rule 14)"
            assert poll(lambda: not reads_not.status().polling, LONG)
            assert reads_not.status().counters.unleased == 0


def test_relay_without_a_database_uses_the_store_of_its_sync_channel_alone(origin: Settings, tmp_path: Path) -> None:
    with (
        Store(f"sqlite:///{tmp_path}/other.db") as other,
        channel(lambda question: other.read_sync(question.wants)) as (url, _),
    ):
        config = bare(relay_settings(origin), url)
        with RelayService(config, service_of(config)) as relay:
            engine = relay._relay._engine
            assert poll(lambda: engine.counters().foreign_store >= 1, LONG), "messages of the origin's store"
            assert engine.core.relay.sequencer.store_id == other.store_id


def test_two_relays_without_a_database_may_have_one_name(origin: Settings, store: Store) -> None:
    top = Served()
    url = f"http://127.0.0.1:{top.endpoint.port}"
    configs = [bare(relay_settings(origin), url, announce_interval=2.0) for _ in range(2)]
    addresses = sorted(each.bind_address for each in configs)
    services = [RelayService(each, service_of(each), reader=store) for each in configs]
    try:
        with services[0], services[1]:
            assert poll(lambda: sorted(each.address for each in top.route.agents().agents) == addresses, LONG)
            assert poll(lambda: not any(each.problems() for each in services), LONG)
            assert {each.name for each in top.route.agents().agents} == {"relay-1"}
    finally:
        top.endpoint.close()


def test_second_relay_of_one_name_stops_and_the_first_continues(origin: Settings) -> None:
    # Long enough for a busy machine: if the first relay's lease expires, the first one must stop.
    one, two = relay_settings(origin), relay_settings(origin)
    quick = msgspec.structs.replace(service_of(one), lease=9.0)
    gave_up = threading.Event()
    with RelayService(one, quick) as first:
        assert poll(lambda: not first.problems(), LONG), first.problems()
        with RelayService(two, quick, gave_up.set) as second:
            assert gave_up.wait(LONG)
            assert isinstance(second.failure, ConfigError)
            assert "relay-1" in str(second.failure)
        assert first.failure is None


def test_relay_enters_the_free_port_that_it_bound(origin: Settings, store: Store) -> None:
    config = msgspec.structs.replace(relay_settings(origin), bind_address="tcp://127.0.0.1:0", sync_url="http://x:1")
    with RelayService(config, service_of(config), reader=store) as relay:
        port = relay._sender.bound_address().rpartition(":")[2]
        assert relay.address == f"tcp://127.0.0.1:{port}"
        assert int(port) > 0
        assert poll(lambda: relay.address in {each.address for each in store.directory.live()}, LONG)
        assert relay._announcer is not None
        assert relay._announcer._agent().address == relay.address
        with Replica(msgspec.structs.replace(below(origin), parents=(relay.address,)), TOPICS) as replica:
            replica.wait_synced(LONG)
            assert poll(lambda: not replica.status().polling, LONG)


def test_relay_on_an_address_in_use_leaves_nothing(origin: Settings, store: Store) -> None:
    assert poll(lambda: len(store.directory.live()) == 1, LONG), "the origin has no entry"
    config = msgspec.structs.replace(relay_settings(origin), bind_address=origin.bind_address)
    service = RelayService(config, service_of(config))
    assert service.problems() == ["the service is not running"]
    with pytest.raises(TransportError, match="in use"):
        service.start()
    assert [each.service for each in store.directory.live()] == ["api-1"]


def test_relay_refuses_what_it_cannot_do(sqlite_url: str) -> None:
    config = bound(sqlite_url, "relay-1", discovery_interval=1.0)
    own = f"tcp://127.0.0.1:{free_port()}"
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"topics": ()}, "needs named topics"),
        ({"discovery_interval": 0.0}, "no publisher to listen to"),
        ({"parents": (config.bind_address,)}, "its own address"),
        ({"group_commit": "host", "multiproc_socket": "/x"}, "group_commit = process"),
    )
    for changes, why in cases:
        with pytest.raises(ConfigError, match=why):
            RelayService(msgspec.structs.replace(config, **changes), service_of(config))
    other = msgspec.structs.replace(service_of(config), address=own)
    with pytest.raises(ConfigError, match="its own address"):
        RelayService(msgspec.structs.replace(config, parents=(own,)), other)
    with pytest.raises(DriverError, match="'bind_based', needed by role = relay"):
        RelayService(settings(sqlite_url, topics=("t",), discovery_interval=1.0), service_of(config))
