"""A replica that knows only the addresses of its parents: it reads its syncs at the port that their hellos name."""

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Settings, Store
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.test_relays import Tree, listens_to, serve_syncs


@pytest.fixture
def tree(tmp_path: Path, sqlite_url: str) -> Iterator[Tree]:
    made = Tree(tmp_path, sqlite_url)
    yield made
    made.close()


@pytest.fixture
def store(tree: Tree) -> Iterator[Store]:
    with Store(tree.origin.database) as store:
        yield store


def leaf(tree: Tree) -> Settings:
    """The settings of a replica with the two relays as parents, and nothing else."""
    below = tree.below
    timing = msgspec.structs.replace(below.timing, max_sync_backoff=1.0)
    return msgspec.structs.replace(
        below, store_url="", service_name="", addresses=(), timing=timing, announce_interval=1.0, replica_name="leaf"
    )


def agents(host: Host) -> dict[str, str]:
    """The parents that the agents which this host knows have named, by the agents' names."""
    with urllib.request.urlopen(f"http://127.0.0.1:{host.metrics_port}/agents", timeout=LONG) as found:
        return {each["name"]: each["parent"] for each in json.load(found)["agents"]}


def test_replica_with_parents_alone_reads_from_its_parent_and_announces_itself_there(tree: Tree, store: Store) -> None:
    one, two = tree.relays
    for each in (one, two):
        serve_syncs(each)
    tree.origin.service()
    worker = tree.origin.worker()
    write(worker, 20)
    first = one.service()
    two.service()
    with Watched(leaf(tree)) as watched:
        watched.must_come_to(write(worker, 20), store)
        assert one.metric("sync_channel_total", "answered") >= 1
        assert poll(lambda: agents(one) == {"leaf": "relay-1"}, LONG), agents(one)
        first.terminate()
        assert first.wait(LONG) == 0
        assert poll(lambda: listens_to(watched, two), LONG), watched.replica.status()
        watched.replica.resync("t0")
        assert poll(lambda: two.metric("sync_channel_total", "answered") >= 1, LONG), watched.replica.status()
        watched.replica.wait_handled(write(worker, 5), LONG, topics=watched.topics)
        assert not watched.differs(store)
        assert poll(lambda: agents(two) == {"leaf": "relay-2"}, LONG), agents(two)


@pytest.mark.long
def test_parent_that_names_no_channel_is_left_for_one_that_does(
    tree: Tree, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = tree.relays
    serve_syncs(two)
    tree.origin.service()
    position = write(tree.origin.worker(), 20)
    for each in (one, two):
        each.service()
    began = time.monotonic()
    with Watched(leaf(tree)) as watched:
        watched.must_come_to(position, store)
        assert watched.replica.publishers == (two.settings.bind_address,)
    assert time.monotonic() - began < tree.below.timing.sync_timeout, "not as one whose sync may hang"
    assert f"the parent at {one.settings.bind_address} has named no sync channel in a hello yet" in caplog.text
