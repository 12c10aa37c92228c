"""The publisher service beside other services, with a database that is killed, and during a long idle time."""

import re
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from _private_server import PrivateServer
from _processes import poll

from pubsub_lib import Store
from tests.e2e.service_host import LONG, Host, Watched, write

IDLE_SECONDS = 60.0


@pytest.mark.long
@pytest.mark.parametrize("shared", ["port", "socket"])
def test_second_service_error_names_the_shared_address_and_its_process(shared: str, host: Host, tmp_path: Path) -> None:
    first = host.service()
    second = Host(tmp_path / "second", host.database, "api-2")
    try:
        if shared == "port":
            wanted = str(host.settings.bind_address.rpartition(":")[2])
            own = second.settings.bind_address.rpartition(":")[2]
            second.change(f"publisher_port = {own}", f"publisher_port = {wanted}")
        else:
            wanted = host.settings.multiproc_socket
            second.change(second.settings.multiproc_socket, wanted)
        code, output = second.refused()
    finally:
        second.close()
    last = output.strip().splitlines()[-1]
    assert code == 3
    assert wanted in last
    assert re.search(rf"\b{first.pid}\b", last), last
    assert "Traceback" not in output
    assert first.poll() is None
    with Store(host.database) as store:
        # The lease may just have ended on a busy machine.
        assert poll(lambda: [each.service for each in store.directory.live()] == ["api-1"], LONG)


def test_second_live_service_with_the_same_name_exits_with_an_error(host: Host, tmp_path: Path) -> None:
    # On a busy machine a shorter lease might end, and the second one take the name. It waits for two renewals.
    host.change("lease = 2", "lease = 8")
    first = host.service()
    second = Host(tmp_path / "second", host.database, "api-1")
    try:
        code, output = second.refused()
    finally:
        second.close()
    assert code == 2, output
    address = host.settings.bind_address
    assert f"another live service has the name 'api-1', at {address}; give each" in output.strip().splitlines()[-1]
    assert "Traceback" not in output
    assert first.poll() is None
    assert poll(host.is_ready, LONG)


def test_replicas_on_a_service_with_four_workers_are_equal(host: Host) -> None:
    host.change("grace = 0.3", "grace = 5")  # a hop that is late is no reason to publish from the changelog
    host.service()
    with Watched(host.settings, ("t0",)) as one, Watched(host.settings) as both, Store(host.database) as store:
        workers = [host.worker() for _ in range(4)]
        for _ in range(5):
            last = max(write(worker, 5) for worker in workers)
        one.must_come_to(last, store)
        both.must_come_to(last, store)
        # More: an object that moves is in two topics.
        assert poll(lambda: host.metric("links_total", "handed") >= 100, LONG)


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("server_name", ["private_postgres", "private_mariadb"])
def test_service_continues_after_a_database_kill(
    server_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: PrivateServer = request.getfixturevalue(server_name)
    host = Host(tmp_path, server.url)
    host.environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.bind(str(tmp_path / "notify"))
    systemd.settimeout(LONG)
    try:
        service = host.service()
        with Watched(host.settings) as watched:
            worker = host.worker()
            write(worker, 5)
            server.kill()
            assert poll(lambda: not host.is_ready(), LONG), "without its database it is not ready"
            _wait_for_notification("not", systemd)  # the watchdog ping continues, so that systemd does not end it
            server.restart()
            assert poll(host.is_ready, LONG)
            last = write(worker, 5)
            with Store(server.url) as store:
                watched.must_come_to(last, store)
                with store.transaction(origin="api-1") as tx:  # the service reads the changelog again
                    tx.set("item", "left", 1, topic="t0")
                assert poll(lambda: host.metric("links_total", "followed") >= 1, LONG)
                assert tx.commit is not None
                watched.must_come_to(tx.commit.point.position, store)
            _wait_for_notification("ready", systemd)
        assert service.poll() is None
    finally:
        host.close()
        systemd.close()


def _wait_for_notification(status: str, systemd: socket.socket) -> None:
    """Read the notifications to systemd until one has this status; it must have a watchdog ping, too."""
    while True:
        lines = systemd.recv(1000).decode().splitlines()
        if lines[-1].startswith("STATUS=") and status in lines[-1]:
            assert lines[0] == "WATCHDOG=1", lines
            return


@pytest.mark.slow
@pytest.mark.long
def test_idle_minute_loses_no_lease_and_needs_no_sync(
    tmp_path: Path, sqlite_url: str, postgres_url: str, mariadb_url: str
) -> None:
    """Ten times a lease, on all three databases at once."""
    found: list[str] = []
    with ExitStack() as ending:
        watched = []
        for number, database in enumerate((sqlite_url, postgres_url, mariadb_url)):
            host = Host(tmp_path / str(number), database, follow_interval=0.25)
            # A busy machine may delay a service for longer than 2 s; this test does not check that.
            host.change("lease = 2\n", f"lease = {IDLE_SECONDS / 10}\n")
            ending.callback(host.close)
            host.service()
            with Store(database) as store, store.transaction() as tx:
                tx.set("item", "k", 1, topic="t0")
            assert tx.commit is not None
            each = ending.enter_context(Watched(host.settings))
            each.replica.wait_for(tx.commit, LONG)
            watched.append((host, each, ending.enter_context(Store(database)), each.syncs()))
            assert poll(lambda host=host: host.metric("leases", "orphans") == 1, LONG)  # type: ignore[misc]

        def what_is_wrong() -> str:
            for host, each, store, syncs in watched:
                if not host.is_ready() or host.metric("leases", "orphans") != 1:
                    return f"{host.database}: a lease was lost"
                if len(store.directory.live()) != 1:
                    return f"{host.database}: the entry in the directory is missing"
                if each.syncs() - each.replica.status().counters.deltas.get("unverified", 0) != syncs:  # rule 14
                    return f"{host.database}: {each.replica.status().counters}"
                if each.replica.staleness() > host.settings.timing.stale_after:
                    return f"{host.database}: stale by {each.replica.staleness()} s"
            return ""

        def wrong() -> bool:
            found.append(what_is_wrong())
            return found[-1] != ""

        assert not poll(wrong, IDLE_SECONDS), found[-1]
