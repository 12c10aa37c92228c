"""Services with keys: the guide of docs/security.md, a revoked client, and a program at the service's address."""

import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _processes import free_ports, poll

from pubsub_lib import Publisher, Replica, Settings, Store, curve_keys
from pubsub_lib.api import Client
from pubsub_lib.cli.listener import listening
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL
from pubsub_lib.core.timing import Timing
from tests.e2e.service_host import LONG, ROOT, Host, Watched, write
from tests.unit.drivers.zmq.world import RawSocket

PAGE = ROOT / "docs" / "security.md"
REVOKED = 10.0
"""Seconds after which a revoked client receives nothing more."""


def pair_file(folder: Path, store: Store, name: str, *topics: str) -> str:
    """Add a client; return its key file."""
    pair = curve_keys.new_pair()
    path = folder / f"{name}.key"
    path.write_text(curve_keys.file_text(name, pair))
    path.chmod(0o600)
    store.directory.clients.add(Client(name, pair.public, frozenset(topics)))
    return str(path)


def as_client(settings: Settings, key_file: str) -> Settings:
    return msgspec.structs.replace(settings, client_key_file=key_file)


def messages(watched: Watched) -> int:
    """Number of messages that the replica's driver received."""
    return watched.replica._subscriber.counters()["received"]


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    made = Host(tmp_path / "host", sqlite_url, keys="true", default_topic="false", clients_interval=0.5)
    yield made
    made.close()


def test_replica_receives_by_messages_and_others_lose_nothing_when_a_client_is_revoked(
    host: Host, tmp_path: Path, sqlite_url: str
) -> None:
    with Store(sqlite_url) as store:
        files = [pair_file(tmp_path, store, name, "t0", "t1") for name in ("one", "two")]
        spy = as_client(host.settings, pair_file(tmp_path, store, "spy", ALL))
        host.service()
        worker = host.worker()
        received: list[Envelope] = []
        with Watched(as_client(host.settings, files[0])) as one, Watched(as_client(host.settings, files[1])) as two:
            with listening(spy, store, [ALL], received.append) as listener:
                assert poll(lambda: bool(write(worker, 1) and [each for each in received if each.messages]), LONG)
                end = threading.Event()
                writer = threading.Thread(target=lambda: [write(worker, 5) for _ in iter(end.is_set, True)])
                writer.start()
                store.directory.clients.revoke("spy")
                revoked_at = time.monotonic()
                assert poll(lambda: listener.counters()["refused"] > 0, REVOKED)
                after = time.monotonic() - revoked_at
                before = len(received)
                time.sleep(1.0)
                end.set()
                writer.join(LONG)
                assert len(received) == before
            assert after < REVOKED
            position = write(worker, 1)
            for each in (one, two):
                each.must_come_to(position, store)  # without a full sync
                assert messages(each) > 0
        assert host.metric("sending_total", "renewed") == 1


def test_program_at_the_services_address_is_not_believed(host: Host, tmp_path: Path, sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        file = pair_file(tmp_path, store, "one", ALL)
        service = host.service()
        worker = host.worker()
        with Watched(as_client(host.settings, file)) as watched:
            watched.must_come_to(write(worker, 5), store)
            service.kill()
            service.wait(LONG)
            assert poll(lambda: watched.replica.status().driver["disconnected"] >= 1, LONG)
            before = messages(watched)  # after the last ones of the service
            impostor = RawSocket(host.settings.bind_address)
            impostor.store_id = store.store_id
            try:
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    for topic in ("t0", "t1"):
                        impostor.send(topic)
                    assert not watched.differs(store)
                    time.sleep(0.05)
                assert messages(watched) == before
            finally:
                impostor.close()
            host.service()  # with a new key
            start = time.monotonic()
            assert poll(lambda: messages(watched) > before or not write(worker, 1), LONG)
            assert time.monotonic() - start < 30
            watched.must_come_to(write(worker, 1), store)


def own(sqlite_url: str, **options: Any) -> Settings:
    """A program that publishes by itself."""
    given = {"driver": "zmq_pubsub_driver", "service_name": "api-1", "keys": True, "clients_interval": 0.2}
    timing = Timing(max_idle_time=60.0, poll_interval=30.0, sync_jitter=0.0)
    return Settings(store_url=sqlite_url, timing=timing, **{**given, **options})


def test_programs_own_publisher_is_found_again_with_its_new_key_after_a_restart(
    tmp_path: Path, sqlite_url: str
) -> None:
    """By its entry in the directory. The long times let changes arrive by messages only."""
    settings = own(sqlite_url, bind_address=f"tcp://127.0.0.1:{free_ports(1)[0]}")
    with Store(sqlite_url) as store:
        client = as_client(settings, pair_file(tmp_path, store, "one", "t"))

        def came(replica: Replica, value: int) -> bool:
            with store.transaction() as tx:
                tx.set("item", "k", value, topic="t")
            return poll(lambda: replica.get("item", "k") == value, 1.0)

        with Replica(client, ["t"], default_topic=False) as replica:
            with Publisher(settings, store):
                replica.wait_synced(LONG)
                assert poll(lambda: came(replica, 1), LONG)
            with Publisher(settings, store):
                begun = time.monotonic()
                assert poll(lambda: came(replica, 2), LONG)
                assert time.monotonic() - begun < 20.0  # usually 3 s


def blocks(kind: str) -> Iterator[tuple[str, str]]:
    """Yield (title, text) of the fenced blocks of this kind in the section about keys."""
    section = PAGE.read_text().partition("\n## Keys\n")[2].partition("\n## ")[0]
    for found in re.finditer(rf'^```{kind}(?: title="([^"]+)")?\n(.*?)^```$', section, re.M | re.S):
        yield found[1] or "", found[2]


@pytest.mark.long
def test_guide_runs_as_written(tmp_path: Path) -> None:
    """Each command is run as on the page; programs with "&" run until the end."""
    ((_, commands),) = blocks("bash")
    assert len(commands.splitlines()) < 10
    ports = dict(zip(("8866", "8867"), map(str, free_ports(2)), strict=True))
    for kind in ("ini", "python"):
        ((title, text),) = blocks(kind)
        for port, free in ports.items():
            text = text.replace(port, free)
        (tmp_path / title).write_text(text.replace("/tmp/keyed", str(tmp_path)))
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in (
        ("pubsub-db", "-m pubsub_lib.cli"),
        ("publisher-service", "-m pubsub_lib.service"),
        ("python", ""),
    ):
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n')
        (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"}
    running: list[subprocess.Popen[bytes]] = []
    log = tmp_path / "output"

    def shown(text: str) -> bool:
        return poll(lambda: text in log.read_text(), LONG)

    try:
        with log.open("ab") as output:
            for line in commands.splitlines():
                command = line.removesuffix(" &")
                process = subprocess.Popen(
                    ["bash", "-c", f"exec {command}" if " &" in line and "=" not in line.split()[0] else command],
                    cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output,
                )  # fmt: skip
                running.append(process)
                if line.endswith(" &"):
                    wanted = re.search(r"controller.py (\S+)", line)
                    assert wanted is None or shown(f"{wanted[1]} synced"), log.read_text()
                else:
                    assert process.wait(LONG) == 0, (line, log.read_text())
        assert shown("tenant-1 p1 {'switch': 's1'}"), log.read_text()
        assert "tenant-2 p1" not in log.read_text()
        assert (tmp_path / "agent-1.key").stat().st_mode & 0o777 == 0o600
        assert shown("refuses the key of this client"), log.read_text()
    finally:
        for process in running:
            assert process.stdin is not None
            process.stdin.close()  # a controller ends by itself
            process.terminate()
        for process in running:
            process.wait(LONG)
