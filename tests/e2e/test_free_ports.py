"""Services without a fixed port: replicas find each of them in the directory, also after a restart at another port."""

import json
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Settings, Store
from tests.e2e.service_host import LONG, Host, Watched
from tests.e2e.test_keys import pair_file
from tests.e2e.test_relays import OPTIONS
from tests.e2e.warm_start import Running

INSTANCES = 10
STARTED = re.compile(r"runs as \w+ at (tcp://127\.0\.0\.1:\d+), its HTTP endpoint at 127\.0\.0\.1:(\d+)")


class FreeHost(Host):
    """A host whose service takes free ports. They are known after ``service``."""

    def __init__(self, folder: Path, database: str, name: str, **options: Any) -> None:
        super().__init__(folder, database, name, follow_interval=0.5, **{**OPTIONS, **options})
        text = self.config.read_text()
        text = re.sub(r"^publisher_port = \d+$", "publisher_port = 0", text, flags=re.MULTILINE)
        text = re.sub(r"^metrics_port = \d+$", "metrics_port = -1\nserve_syncs = true", text, flags=re.MULTILINE)
        self.config.write_text(text)
        self.settings = Settings.from_file(self.config)
        self.bound = ""

    def begin(self, failpoint: str = "") -> Running:
        """Start a service; do not wait for it."""
        self._complaints.write_text("")
        return super().begin(failpoint)

    def must_get_ready(self, process: Running) -> None:
        """Wait until a started service is ready."""
        assert poll(lambda: self._started() or process.poll() is not None, LONG), self._complaints.read_text()
        super().must_get_ready(process)

    def _started(self) -> bool:
        found = STARTED.search(self._complaints.read_text())
        if found is not None:
            self.bound, self.metrics_port = found[1], int(found[2])
        return found is not None

    def page(self, path: str) -> str:
        """A page of the HTTP endpoint."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=LONG) as found:
            return str(found.read().decode())


@pytest.fixture
def hosts() -> Iterator[list[FreeHost]]:
    made: list[FreeHost] = []
    yield made
    for each in made:
        each.close()


def write(store: Store, key: str, origin: str) -> int:
    """Commit as a program of this service that hands nothing over: the service publishes the change."""
    with store.transaction(origin=origin) as tx:
        tx.set("item", key, origin, topic="t0")
    assert tx.commit is not None
    return tx.commit.point.position


@pytest.mark.long
def test_replica_listens_to_each_service_and_follows_one_to_another_port(
    hosts: list[FreeHost], tmp_path: Path, sqlite_url: str
) -> None:
    hosts.extend(FreeHost(tmp_path / f"api-{n}", sqlite_url, f"api-{n}") for n in range(INSTANCES))
    processes = [each.begin() for each in hosts]
    for each, process in zip(hosts, processes, strict=True):
        each.must_get_ready(process)
    addresses = {each.bound for each in hosts}
    assert len(addresses) == INSTANCES
    settings = msgspec.structs.replace(hosts[0].settings, service_name="")
    assert settings.addresses == ()
    with Store(sqlite_url) as store, Watched(settings) as watched:
        replica = watched.replica
        # The lease of one may just have ended: ten processes started at once.
        assert poll(lambda: {each.address for each in store.directory.live()} == addresses, LONG)
        assert hosts[0].bound in hosts[0].page("/status")
        assert poll(lambda: {*replica.publishers} == addresses, LONG), replica.publishers
        assert poll(lambda: min(each.metric("sending_total", "answers") for each in hosts) >= 1, LONG)
        position = [write(store, each.name, each.name) for each in hosts][-1]
        replica.wait_handled(position, LONG, topics=watched.topics)
        assert poll(lambda: min(each.metric("links_total", "followed") for each in hosts) >= 1, LONG)
        assert not watched.differs(store)
        one, before = hosts[0], hosts[0].bound
        processes[0].send_signal(signal.SIGTERM)
        assert processes[0].wait(LONG) == 0
        with socket.create_server(("127.0.0.1", int(before.rpartition(":")[2]))):
            one.service()
        assert one.bound != before
        assert poll(lambda: one.bound in replica.publishers, LONG), replica.publishers
        assert poll(lambda: before not in replica.publishers, LONG), replica.publishers
        assert poll(lambda: one.metric("sending_total", "answers") >= 1, LONG), "the replica asks it"
        replica.wait_handled(write(store, "again", one.name), LONG, topics=watched.topics)
        assert not watched.differs(store)


def test_replica_with_keys_follows_a_service_to_another_port(
    hosts: list[FreeHost], tmp_path: Path, sqlite_url: str
) -> None:
    with Store(sqlite_url) as store:
        own = pair_file(tmp_path, store, "agent", "t0", "t1")
        keys = {"keys": "true", "default_topic": "false", "clients_interval": 0.5}
        host = FreeHost(tmp_path / "api-1", sqlite_url, "api-1", **keys)
        host.change("serve_syncs = true", "serve_syncs = false")
        hosts.append(host)
        process = host.service()
        settings = msgspec.structs.replace(host.settings, service_name="", client_key_file=own)
        with Watched(settings) as watched:
            replica = watched.replica
            assert poll(lambda: replica.publishers == (host.bound,) and not replica.status().polling, LONG)
            process.terminate()
            assert process.wait(LONG) == 0
            with socket.create_server(("127.0.0.1", int(host.bound.rpartition(":")[2]))):
                host.service()
            assert poll(lambda: replica.publishers == (host.bound,) and not replica.status().polling, LONG)
            replica.wait_handled(write(store, "a", "api-1"), LONG, topics=watched.topics)
            assert not watched.differs(store)


def test_replica_below_a_relay_needs_its_address_alone(hosts: list[FreeHost], tmp_path: Path, sqlite_url: str) -> None:
    origin = FreeHost(tmp_path / "api-1", sqlite_url, "api-1")
    relay = FreeHost(tmp_path / "relay-1", sqlite_url, "relay-1", role="relay")
    hosts.extend((origin, relay))
    for each in hosts:
        each.service()
    with Store(sqlite_url) as store:
        position = write(store, "a", "api-1")
        entered = {"api-1": origin.bound, "relay-1": relay.bound}
        # A lease may just have ended on a busy machine.
        assert poll(lambda: {each.service: each.address for each in store.directory.live()} == entered, LONG)
        leaf = msgspec.structs.replace(
            relay.settings, store_url="", service_name="", parents=(relay.bound,), announce_interval=0.5
        )
        with Watched(leaf) as watched:
            watched.must_come_to(position, store)
            assert relay.metric("sync_channel_total", "answered") >= 1
            watched.replica.wait_handled(write(store, "b", "api-1"), LONG, topics=watched.topics)
            assert not watched.differs(store)
            found: list[Any] = []

            def announced() -> bool:
                found.append(json.loads(relay.page("/agents")))
                return bool(found[-1]["agents"])

            assert poll(announced, LONG)
            assert found[-1]["address"] == relay.bound
            assert [each["listens_to"] for each in found[-1]["agents"]] == [[relay.bound]]
        with Watched(msgspec.structs.replace(leaf, parents=(origin.bound,))) as watched:
            watched.must_come_to(write(store, "c", "api-1"), store)
            assert origin.metric("sync_channel_total", "answered") >= 1
