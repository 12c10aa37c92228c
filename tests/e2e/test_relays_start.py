"""Many relays in two levels that are started at the same moment as the service above them: all come to serve."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Store
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_relays import OPTIONS, listens_to, serve_syncs

UPPER, LOWER = 3, 5
# A relay whose parent is not there yet tries again soon.
QUICK: dict[str, Any] = {**OPTIONS, "announce_interval": 1.0, "max_sync_backoff": 2.0}


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    made: list[Host] = []
    yield made
    for each in made:
        each.close()


def relay(folder: Path, name: str, *parents: Host) -> Host:
    """A relay that knows the addresses of its parents, and no database."""
    made = Host(folder / name, "none", name, role="relay", **QUICK)
    made.change("store_url = none", f"parents = {', '.join(each.settings.bind_address for each in parents)}")
    serve_syncs(made)
    return made


def announced(host: Host) -> dict[str, str]:
    """The parents of all agents that a service knows, by name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{host.metrics_port}/agents", timeout=LONG) as found:
        return {each["name"]: each["parent"] for each in json.load(found)["agents"]}


def test_relays_that_start_together_with_their_service_come_to_serve(
    hosts: list[Host], tmp_path: Path, sqlite_url: str
) -> None:
    origin = Host(tmp_path / "api-1", sqlite_url, "api-1", **QUICK)
    serve_syncs(origin)
    upper = [relay(tmp_path, f"upper-{n}", origin) for n in range(UPPER)]
    lower = [relay(tmp_path, f"lower-{n}", upper[n % UPPER], upper[(n + 1) % UPPER]) for n in range(LOWER)]
    hosts += [*lower, *upper, origin]
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            tx.set("item", "first", 1, topic="t0")
        processes = [each.begin() for each in hosts]
        for each, process in zip(hosts, processes, strict=True):
            each.must_get_ready(process)
        leaf = msgspec.structs.replace(
            lower[0].settings, parents=(lower[-1].settings.bind_address,), service_name="", bind_address="",
            replica_name="leaf",
        )  # fmt: skip
        with Watched(leaf) as watched:
            watched.must_come_to(write(origin.worker(), 20), store)
            assert poll(lambda: listens_to(watched, lower[-1]), LONG), watched.replica.status()
            assert poll(lambda: min(each.metric("relayed_total", "links") for each in lower) >= 1, LONG)
            assert poll(lambda: {*announced(origin)} == {each.name for each in hosts[:-1]} | {"leaf"}, LONG)
            assert poll(lambda: announced(origin).get("leaf") == lower[-1].name, LONG)
    ended = {each.name: process.returncode for each, process in zip(hosts, processes, strict=True) if process.poll()}
    assert ended == {}
    for each in hosts:
        log = each.config.with_name("stderr").read_text()
        assert "internal error" not in log
        assert "Traceback" not in log, each.name
