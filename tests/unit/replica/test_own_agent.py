"""How a replica describes itself in its announcements, from a real replica."""

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Publisher, Replica, Settings, Store, __version__
from pubsub_lib.core.model import MAX_NAME_BYTES
from pubsub_lib.replica.metrics import ReplicaMetrics
from pubsub_lib.replica.own_agent import OwnAgent
from pubsub_lib.sync.agents import MAX_TOPICS, Agent
from pubsub_lib.sync.announcer import Announcer
from tests.unit.sync.test_agents_server import Served
from tests.unit.world import LONG


def described(replica: Replica, settings: Settings, **given: Any) -> Agent:
    return OwnAgent(settings, "u", replica._engine, replica._parents, replica._discovery, **given)()


def test_replica_describes_its_topics_and_staleness(config: Settings, store: Store) -> None:
    named = msgspec.structs.replace(config, replica_name="agent-7", addresses=("tcp://10.0.0.1:8866",))
    with Publisher(config, store), Replica(config, ["t", "b"]) as replica:
        replica.wait_synced(LONG)
        found = described(replica, named)
    assert found.uuid == "u"
    assert (found.name, found.role, found.host, found.version) == (
        "agent-7",
        "replica",
        socket.gethostname(),
        __version__,
    )
    assert (found.topics, found.topics_total) == (("b", "default", "t"), 3)
    assert found.staleness is not None
    assert 0 <= found.staleness < LONG
    assert (found.parent, found.listens_to, found.address) == ("", ("tcp://10.0.0.1:8866",), "")


def test_replica_without_a_name_has_that_of_its_host_and_names_few_topics(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "\u0436" * 200)
    with Replica(config, [f"t{each:02}" for each in range(50)], default_topic=False) as replica:
        found = described(replica, config)
    assert found.name == found.host
    assert len(found.name.encode()) <= MAX_NAME_BYTES
    assert found.topics == tuple(f"t{each:02}" for each in range(MAX_TOPICS))
    assert found.topics_total == 50


def test_replica_that_is_not_synced_has_no_staleness(config: Settings) -> None:
    replica = Replica(config, ["t"])
    assert described(replica, config).staleness is None
    replica.close()


def test_relay_has_its_service_name_and_its_parent(config: Settings) -> None:
    replica = Replica(config, ["t"])
    parents: Any = SimpleNamespace(publisher="relay-1", current="tcp://h:1")
    found = OwnAgent(config, "u", replica._engine, parents, None, "relay", lambda: "tcp://h:2")()
    assert (found.name, found.role, found.address) == ("writer", "relay", "tcp://h:2")
    assert (found.parent, found.listens_to) == ("relay-1", ("tcp://h:1",))
    replica.close()


def test_address_that_is_too_long_is_left_out(config: Settings) -> None:
    replica = Replica(config, ["t"])
    discovery: Any = SimpleNamespace(addresses=("tcp://h:1", "tcp://" + "h" * 255, "tcp://h\0"))
    found = OwnAgent(config, "u", replica._engine, None, discovery, address=lambda: "t" * 256)()
    assert (found.listens_to, found.address) == (("tcp://h:1",), "")
    replica.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.endpoint.close()


def names(served: Served) -> list[str]:
    return [each.name for each in served.route._registry.known(time.monotonic()).agents]


def test_replica_with_a_sync_channel_announces_itself_until_its_end(
    config: Settings, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub_lib.sync.announcer.LEAVE_TIMEOUT", LONG)
    # The interval is also the time that an announcement may take, and on a busy machine a shorter one fails.
    at = msgspec.structs.replace(
        config, replica_name="agent-7", announce_interval=2.0, sync_url=f"http://127.0.0.1:{served.endpoint.port}"
    )
    with Replica(at, ["t"]) as replica:
        assert poll(lambda: names(served) == ["agent-7"], LONG)
        assert poll(lambda: replica.status().announcements["accepted"] >= 2, LONG)
        status = replica.status()
        assert status.announcements["failed"] == 0
        shown = [each for each in ReplicaMetrics(lambda: status).collect() if "announcements" in each.name]
        assert {each.labels["what"]: each.value for each in shown[0].samples} == dict(status.announcements)
        announcer = cast(Announcer, replica._sources._announcer)
        loop = announcer._loop
    assert names(served) == []
    assert loop.close(LONG)
    assert served.route.counters()["refused"] == 0


def test_replica_without_a_sync_channel_or_with_interval_0_announces_nothing(config: Settings, served: Served) -> None:
    url = f"http://127.0.0.1:{served.endpoint.port}"
    for settings, reader in (
        (config, None),
        (msgspec.structs.replace(config, sync_url=url, announce_interval=0.0), None),
    ):
        with Replica(settings, ["t"], store=reader) as replica:
            assert replica.status().announcements == {}
    assert names(served) == []


def test_replica_that_is_closed_while_it_starts_announces_nothing(config: Settings) -> None:
    at = msgspec.structs.replace(config, sync_url="http://127.0.0.1:1")
    replica = Replica(at, ["t"])
    replica._sources.close()
    replica._sources.announce(replica._engine, None, None)
    assert replica._sources.announcements() == {}
    replica.close()


def test_unreachable_sync_channel_is_no_problem_of_the_replica_that_is_counted(config: Settings, store: Store) -> None:
    at = msgspec.structs.replace(config, announce_interval=0.1, sync_url="http://127.0.0.1:1")
    with Publisher(config, store), Replica(at, ["t"]) as replica:
        assert poll(lambda: replica.status().announcements["failed"] >= 2, LONG)
        assert not [each for each in replica.status().problems if "announce" in each]


def test_agent_knows_its_parent_after_the_first_hello() -> None:
    parents = SimpleNamespace(publisher="", current="tcp://10.0.0.7:8866")
    settings = Settings(parents=(parents.current,))
    agent = OwnAgent(settings, "u", cast(Any, None), cast(Any, parents), None)
    assert not agent.knows_parent()
    parents.publisher = "relay-1"
    assert agent.knows_parent()
    assert OwnAgent(settings, "u", cast(Any, None), None, None).knows_parent(), "it has none"
