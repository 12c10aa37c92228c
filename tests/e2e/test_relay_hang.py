"""A relay under SIGSTOP: its connections stay, and nothing comes from it. What is below it goes on at another one."""

import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Store
from tests.e2e.service_host import LONG, Watched, pause_between_transactions, write
from tests.e2e.test_relays import Tree, listens_to, serve_syncs


@pytest.fixture
def tree(tmp_path: Path, sqlite_url: str) -> Iterator[Tree]:
    made = Tree(tmp_path, sqlite_url)
    yield made
    made.close()


def test_replica_goes_on_at_another_relay_while_its_own_hangs(tree: Tree) -> None:
    one, two = tree.relays
    above = serve_syncs(tree.origin)
    for relay in tree.relays:
        relay.change("topics = t0, t1", f"topics = t0, t1\nsync_url = {above}")
    urls = f"{serve_syncs(one)}, {serve_syncs(two)}"
    # A question to the relay that hangs would take longer than this test waits.
    timing = msgspec.structs.replace(tree.below.timing, sync_timeout=10 * LONG)
    settings = msgspec.structs.replace(tree.below, store_url="", sync_url=urls, timing=timing)
    tree.origin.service()
    hanging = one.service()
    two.service()
    with Store(tree.origin.database) as store, Watched(settings) as watched:
        worker = tree.origin.worker()
        watched.must_come_to(write(worker, 20), store)
        assert poll(lambda: listens_to(watched, one), LONG), watched.replica.status()
        pause_between_transactions(hanging, store)
        try:
            watched.must_come_to(write(worker, 20), store)
            assert poll(lambda: listens_to(watched, two), LONG), watched.replica.status()
            watched.must_come_to(write(worker, 5), store)
        finally:
            hanging.send_signal(signal.SIGCONT)
