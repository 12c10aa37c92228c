"""A replica that cannot reach the database: a process with the URL of its publisher service alone. Changes arrive, a
cut is repaired by a delta over HTTP, and a restart of the service is survived.
"""

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Settings, Store
from pubsub_lib.core.model import Want
from pubsub_lib.errors import ConfigError
from pubsub_lib.testing.stream_proxy import StreamProxy
from tests.e2e.service_host import LONG, Host, answer, write
from tests.e2e.warm_start import started
from tests.unit.sync.cut_proxy import CutProxy
from tests.unit.sync.test_client import client

QUICK = (
    "max_idle_time = 1\nreading_age = 0.3\nround_trip = 0.5\nmessage_delay_window = 0.2\nsync_jitter = 0.01\n"
    "sync_interval = 0.01\nsync_backoff = 0.1\nmax_sync_backoff = 0.5\n"
    "announce_interval = 0\n"  # only syncs pass the proxy
)
CONTROLLER = Path(__file__).with_name("service_controller.py")


class Remote:
    """A controller in another folder: without the database's URL, and with a database folder that it cannot see."""

    def __init__(self, folder: Path, host: Host, messages: str, hidden: Path, syncs: str = "") -> None:
        folder.mkdir()
        port = messages.rpartition(":")[2]
        self.config = folder / "remote.conf"
        self.config.write_text(
            f"[pubsub]\nsync_url = {syncs or f'http://127.0.0.1:{host.metrics_port}'}\nenable_pub_sub = true\n"
            f"publishers_ips = 127.0.0.1\npublisher_port = {port}\n{QUICK}"
        )
        # In a mount namespace of its own, the folder of the database is empty.
        hide = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{hidden}" && exec "$@"', "sh"]
        self.log = folder / "stderr"
        prefix = hide if os.geteuid() == 0 else []
        self.process = started([str(CONTROLLER), str(self.config)], {}, self.log, prefix)

    def ordered(self, position: int) -> None:
        """Order what it holds at this position."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{position}\n")
        self.process.stdin.flush()

    def held(self) -> dict[str, list[object]]:
        """What it holds, when it has reached the ordered position."""
        line = answer(self.process)
        assert line, self.log.read_text()
        return dict(json.loads(line))

    def files(self) -> list[str]:
        """The files that the process has open."""
        found = []
        for each in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(OSError):  # it was closed meanwhile
                found.append(str(each.readlink()))
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "database").mkdir()
    made = Host(tmp_path / "host", f"sqlite:///{tmp_path}/database/net.db", max_idle_time=1.0, reading_age=0.3)
    made.change("[publisher_service]\n", "[publisher_service]\nserve_syncs = true\n")
    yield made
    made.close()


def in_store(store: Store) -> dict[str, list[object]]:
    return {
        each.key: [each.version, each.value.decode()]
        for topic in ("t0", "t1")
        for each in store.objects(topic=topic)
        if each.table == "item"
    }


def test_replica_without_the_database_follows_its_service(host: Host, tmp_path: Path) -> None:
    service = host.service()
    worker = host.worker()
    first = write(worker, 20)
    proxy = StreamProxy("tcp://127.0.0.1:0", host.settings.bind_address)
    remote = Remote(tmp_path / "remote", host, proxy.address, tmp_path / "database")
    try:
        with Store(host.database, read_only=True) as store:
            assert answer(remote.process) == "synced\n", remote.log.read_text()
            remote.ordered(first)
            assert remote.held() == in_store(store)
            before = host.metric("sync_channel_total", "answered")
            assert before >= 1
            # Messages: the sync channel is not needed for each change.
            for _ in range(20):
                remote.ordered(write(worker, 1))
                assert remote.held() == in_store(store)
            assert host.metric("sync_channel_total", "answered") - before < 10
            # A cut: what was committed meanwhile comes by a delta.
            before = host.metric("sync_channel_total", "answered")
            published = host.published()
            proxy.cut()
            position = write(worker, 10)
            assert poll(lambda: host.published() >= published + 10, LONG)
            proxy.restore()
            remote.ordered(position)
            assert remote.held() == in_store(store)
            assert host.metric("sync_channel_total", "answered") > before
            # A restart of the service, while a worker goes on.
            service.send_signal(signal.SIGTERM)
            service.wait(LONG)
            position = write(worker, 10)
            service = host.service()
            remote.ordered(position)
            assert remote.held() == in_store(store)
            assert host.metric("sync_channel_total", "failed") == 0
        assert [each for each in remote.files() if "net.db" in each] == []
    finally:
        remote.close()
        proxy.close()
    assert "internal error" not in remote.log.read_text()


def test_killed_service_costs_a_replica_only_the_missing_topic(host: Host, tmp_path: Path) -> None:
    with Store(host.database) as store:
        for topic in ("t0", "t1"):
            with store.transaction() as tx:
                for number in range(100):
                    tx.set("item", f"{topic}-{number}", random.Random(number).randbytes(5000).hex(), topic=topic)
    service = host.service()
    url = f"http://127.0.0.1:{host.metrics_port}"
    with CutProxy(url) as proxy, Store(host.database) as store:
        client(proxy.url).read_sync({"t0": Want(), "t1": Want(), "default": Want()})
        whole = proxy.sizes.pop()
        proxy.limit, proxy.gone = whole * 3 // 4, True
        remote = Remote(tmp_path / "remote", host, host.settings.bind_address, tmp_path / "database", proxy.url)
        try:
            assert poll(lambda: proxy.sizes[:1] == [whole * 3 // 4], LONG), proxy.sizes
            service.kill()
            service.wait(LONG)
            with store.transaction() as tx:
                tx.set("item", "t0-0", "changed", topic="t0")
                tx.set("item", "t1-0", "changed", topic="t1")
            host.service()
            proxy.limit, proxy.gone, proxy.target = None, False, host.metrics_port
            assert answer(remote.process) == "synced\n", remote.log.read_text()
            assert tx.commit is not None
            remote.ordered(tx.commit.point.position)
            assert remote.held() == in_store(store)
        finally:
            remote.close()
        # In one answer or in several: the pause after the failed sync is only for the topic that it did not bring.
        assert poll(lambda: sum(proxy.sizes[1:]) > 0.4 * whole, LONG), (whole, proxy.sizes)
        assert sum(proxy.sizes[1:]) < 0.6 * whole, "one of the two topics, and the changes of the other one"


def test_service_without_the_option_answers_no_sync(host: Host, tmp_path: Path) -> None:
    host.change("serve_syncs = true", "serve_syncs = false")
    host.service()
    remote = Remote(tmp_path / "remote", host, host.settings.bind_address, tmp_path / "database")
    try:
        assert poll(lambda: "answers 404: use one of GET /metrics" in remote.log.read_text(), LONG)
    finally:
        remote.close()


def test_program_that_writes_needs_the_database(tmp_path: Path) -> None:
    config = tmp_path / "remote.conf"
    config.write_text("[pubsub]\nsync_url = http://127.0.0.1:8867\nenable_pub_sub = true\nservice_name = api-1\n")
    settings = Settings.from_file(config)
    with pytest.raises(ConfigError, match="this program needs the database, but store_url is missing"):
        Store(settings)
