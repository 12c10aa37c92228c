"""Agents as real processes: a replica is seen through a relay at the service, and disappears when it was killed."""

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _processes import poll

from tests.e2e.service_host import LONG, Host, answer
from tests.e2e.test_relays import OPTIONS
from tests.e2e.warm_start import Running, WarmProcess

INTERVAL = 1.0
DISAPPEARS = 3 * INTERVAL + INTERVAL
"""Seconds after the last announcement: at the relay, and then at the service above it (docs/relays.md)."""
CONTROLLER = Path(__file__).with_name("service_controller.py")


class Tree:
    """A service, a relay below it, and replicas below the relay that have no database."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder = folder
        options = {**OPTIONS, "announce_interval": INTERVAL}
        self.origin = Host(folder / "api-1", database, "api-1", **options)
        self.relay = Host(folder / "relay-1", database, "relay-1", role="relay", **options)
        for host in (self.origin, self.relay):
            host.change("[publisher_service]\n", "[publisher_service]\nserve_syncs = true\n")
        above = f"http://127.0.0.1:{self.origin.metrics_port}"
        self.relay.change("topics = t0, t1", f"topics = t0, t1\nsync_url = {above}")
        self._replicas: list[Running] = []

    def replica(self, name: str) -> Running:
        """Start a replica, and wait until it is synced."""
        config = self._folder / f"{name}.conf"
        config.write_text(
            f"[pubsub]\nreplica_name = {name}\nsync_url = http://127.0.0.1:{self.relay.metrics_port}\n"
            f"parents = {self.relay.settings.bind_address}\nenable_pub_sub = true\n"
            f"announce_interval = {INTERVAL}\nmax_idle_time = 1\nreading_age = 0.5\nround_trip = 0.5\n"
        )
        log = self._folder / f"{name}.log"
        process = WarmProcess([str(CONTROLLER), str(config)], {}, log)
        self._replicas.append(process)
        assert answer(process) == "synced\n", log.read_text()
        return process

    def agents(self, host: Host) -> dict[str, dict[str, Any]]:
        """The agents that this host knows, by name."""
        with urllib.request.urlopen(f"http://127.0.0.1:{host.metrics_port}/agents", timeout=LONG) as found:
            return {each["name"]: each for each in json.load(found)["agents"]}

    def page(self, host: Host) -> str:
        """The status page of this host."""
        with urllib.request.urlopen(f"http://127.0.0.1:{host.metrics_port}/status", timeout=LONG) as found:
            return str(found.read().decode())

    def close(self) -> None:
        for process in self._replicas:
            process.kill()
            process.communicate()
        self.origin.close()
        self.relay.close()


@pytest.fixture
def tree(tmp_path: Path, sqlite_url: str) -> Iterator[Tree]:
    made = Tree(tmp_path, sqlite_url)
    yield made
    made.close()


def test_agents_below_a_relay_are_seen_at_the_service_until_they_end(tree: Tree) -> None:
    tree.origin.service()
    tree.relay.service()
    killed, closed = tree.replica("agent-1"), tree.replica("agent-2")
    everybody = {"agent-1", "agent-2", "relay-1"}
    # On a busy machine an agent may be forgotten for a moment, because its next announcement is late.
    seen: dict[str, dict[str, Any]] = {}

    def all_seen() -> bool:
        nonlocal seen
        seen = tree.agents(tree.origin)
        # On a busy machine the parent's first hello may be later than an agent waits for it.
        return set(seen) == everybody and seen["agent-1"]["parent"] != ""

    assert poll(all_seen, LONG), seen
    found = seen["agent-1"]
    assert (found["role"], found["hops"], found["topics"]) == ("replica", 1, ["default", "t0", "t1"])
    assert found["parent"] == "relay-1"
    assert found["listens_to"] == [tree.relay.settings.bind_address]
    assert found["staleness"] is None or 0 <= found["staleness"] < LONG
    in_order = re.compile(r'depth-1"><bdi>relay-1</bdi>.*depth-2"><bdi>agent-1</bdi>', re.DOTALL)
    assert poll(lambda: in_order.search(tree.page(tree.origin)) is not None, LONG), tree.page(tree.origin)
    assert poll(lambda: tree.origin.metric("agents", "known") == 3, LONG)
    assert poll(lambda: tree.origin.metric("agents", "unsynced") == 0, LONG), "they announced themselves at their start"
    assert 0 < tree.origin.metric("agents", "max_staleness") < LONG
    closed.communicate()  # the end of its input
    # Its entry would last for longer.
    assert poll(lambda: "agent-2" not in tree.agents(tree.relay), 1.5 * INTERVAL), "it left"
    killed.kill()
    killed.wait(LONG)
    begun = time.monotonic()
    assert poll(lambda: set(tree.agents(tree.origin)) == {"relay-1"}, LONG), tree.agents(tree.origin)
    took = time.monotonic() - begun
    assert tree.agents(tree.relay) == {}
    assert took < DISAPPEARS + 10.0, took  # a busy machine
    assert poll(lambda: tree.origin.metric("agents", "known") == 1, LONG)


@pytest.mark.long
def test_agents_are_known_again_after_a_restart_of_the_service(tree: Tree) -> None:
    service = tree.origin.service()
    tree.relay.service()
    tree.replica("agent-1")
    assert poll(lambda: set(tree.agents(tree.origin)) == {"agent-1", "relay-1"}, LONG)
    service.kill()
    service.wait(LONG)
    assert poll(lambda: tree.relay.metric("relayed_total", "announcements_failed") >= 1, LONG)
    tree.origin.service()
    assert poll(lambda: set(tree.agents(tree.origin)) == {"agent-1", "relay-1"}, LONG)
    assert tree.origin.metric("announcements_total", "refused") == 0
