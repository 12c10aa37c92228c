"""Two services on two hosts, in network namespaces, with one PostgreSQL: starts, kills and pulled cables."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from _private_server import PrivateServer
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.core.timing import lost_message_bound
from tests.conftest import IN_CI
from tests.e2e.network import Forwarder, Namespace, missing, namespaces
from tests.e2e.service_host import LONG, Host, Watched, write

QUICK: dict[str, Any] = {
    "max_idle_time": 1.0,
    "reading_age": 0.5,
    "round_trip": 0.5,
    "poll_interval": 0.2,
    "discovery_interval": 0.3,
}
PROMPT = 5.0
"""Maximum seconds that one sync takes, or waits, on a busy machine."""


@pytest.fixture
def networks() -> Iterator[list[Namespace]]:
    why = missing()
    if why:
        if IN_CI:
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    with namespaces(2) as made:
        yield made


@pytest.mark.long
def test_two_services_on_two_hosts(networks: list[Namespace], private_postgres: PrivateServer, tmp_path: Path) -> None:
    local = private_postgres.url
    with ExitStack() as ending:
        port = local.rpartition(":")[2].partition("/")[0]
        forwarder = Forwarder(int(port))
        ending.callback(forwarder.close)
        hosts = []
        for at, name in zip(networks, ("api-1", "api-2"), strict=True):
            url = local.replace(f"127.0.0.1:{port}", f"{at.ours}:{forwarder.port}")
            hosts.append(Host(tmp_path / name, url, name, at))
            ending.callback(hosts[-1].close)
        one, two = hosts
        # The replica is configured without publishers: it finds both in the directory.
        here = Host(tmp_path / "here", local, "here", **QUICK)
        store = ending.enter_context(Store(local))
        first = one.service()
        two.service()
        watched = ending.enter_context(Watched(here.settings))
        some = ending.enter_context(Watched(here.settings, ("t1",)))
        addresses = {host.settings.bind_address for host in hosts}
        assert poll(lambda: set(watched.replica.publishers) == addresses, LONG)

        # Changes from both reach the replicas.
        workers = [one.worker(), two.worker()]
        last = max(write(worker, 5) for worker in workers)
        watched.must_come_to(last, store)
        some.must_come_to(last, store)

        # One service is killed with unsent changes: the other one publishes them.
        first.kill()
        first.wait(LONG)
        write(workers[0], 5)
        workers[0].kill()
        last = store.read_heads(()).store.position
        bound = lost_message_bound(here.settings.timing, PROMPT, PROMPT)
        assert poll(lambda: not watched.differs(store) and not some.differs(store), bound), f"not within {bound} s"
        assert poll(lambda: two.metric("links_total", "took_over") >= 5, LONG)  # the number of unsent links
        watched.must_come_to(last, store)
        some.must_come_to(last, store)
        assert poll(lambda: set(watched.replica.publishers) == {two.settings.bind_address}, LONG)

        # The first service is restarted: no callback is called twice for a version.
        one.service()
        assert poll(lambda: set(watched.replica.publishers) == addresses, LONG)
        last = write(one.worker(), 5)
        watched.must_come_to(last, store)
        some.must_come_to(last, store)

        # Both cables are pulled, without a FIN: the replica polls, and stays correct within its bound.
        for at in networks:
            at.pull()
        with store.transaction(origin="api-1") as tx:
            tx.set("item", "alone", 1, topic="t0")
        assert tx.commit is not None
        watched.must_come_to(tx.commit.point.position, store)
        assert poll(lambda: watched.replica.status().polling, LONG)

        # Both cables are connected again: publishers prove freshness, so the replica stops polling.
        for at in networks:
            at.plug()
        assert poll(lambda: not watched.replica.status().polling, LONG)
        assert poll(lambda: all(host.is_ready() for host in hosts), LONG)
        watched.must_come_to(write(two.worker(), 5), store)
