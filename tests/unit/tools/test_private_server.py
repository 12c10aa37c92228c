"""Two servers with the same port, two users of one server, and servers whose owner is killed."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import _processes
import pytest
from _broker import Broker
from _children import environment
from _patience import longest
from _redis_server import PrivateRedis
from _servers import PrivateMariaDB, PrivatePostgres, PrivateServer

from pubsub_lib.errors import StoreUnavailable

LONG = longest(60.0)

of_each_kind = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(PrivatePostgres, id="postgresql", marks=pytest.mark.postgresql),
        pytest.param(PrivateMariaDB, id="mariadb", marks=pytest.mark.mariadb),
    ],
)


@pytest.mark.quick_variants(1)
@of_each_kind
def test_a_port_taken_meanwhile_is_replaced(
    kind: type[PrivateServer], postgres_server: PrivateServer, mariadb_server: PrivateServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    taken = postgres_server.port if kind is PrivatePostgres else mariadb_server.port
    free = _processes.free_port()
    ports: Iterator[int] = iter([taken, free])
    monkeypatch.setattr(_processes, "free_port", lambda: next(ports))
    with kind() as server:
        assert server.port == free


@of_each_kind
def test_attached_server_has_its_own_databases_and_leaves_the_server_running(
    kind: type[PrivateServer], postgres_server: PrivateServer, mariadb_server: PrivateServer
) -> None:  # fmt: skip
    running = postgres_server if kind is PrivatePostgres else mariadb_server
    one, other = kind(), kind()
    for each in (one, other):
        each.attach(running.port)
    urls = [one.url, other.url, one.create_database(), other.create_database()]
    assert len({running.url, *urls}) == 5
    one.stop()
    for url in urls:
        other.drop_database(url)


@pytest.mark.postgresql
def test_server_killed_while_it_made_its_lock_file_starts_again() -> None:
    """PostgreSQL refuses an empty lock file. A port that is taken kills a server within its first milliseconds."""
    with PrivatePostgres() as server:
        [shown] = server._execute("SHOW data_directory")
        server.kill()
        (Path(shown) / "postmaster.pid").write_bytes(b"")
        server.restart()
        assert server._execute("SELECT 1") == ["1"]


def test_restart_before_start_is_an_error() -> None:
    with pytest.raises(StoreUnavailable, match=r"never started; call start\(\)"):
        PrivatePostgres().restart()


OWNER = """
import time
import _processes
from {module} import {name}

with {name}() as server:
    print(server._folder, server.pid, *_processes.children(server.pid), flush=True)
    time.sleep(3600)
"""


def ends_with_its_owner(kind: type[PrivateServer | Broker]) -> None:
    """Start a server in another process, kill that one, and check that all processes of the server end."""
    program = OWNER.format(module=kind.__module__, name=kind.__name__)
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment(), text=True)
    folder = ""
    pids: list[str] = []
    try:
        assert owner.stdout is not None
        folder, *pids = owner.stdout.readline().split()
        assert pids
        owner.kill()
        assert _processes.poll(lambda: not any(map(is_running, pids)), LONG)
    finally:
        owner.kill()
        owner.communicate()
        for pid in filter(is_running, pids):
            os.kill(int(pid), signal.SIGKILL)
        if folder:
            shutil.rmtree(folder)


def is_running(pid: str) -> bool:
    """Whether a process that had this id before is there, and has not ended (Z: nothing has reaped it yet)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.quick_variants(1)
@of_each_kind
def test_server_ends_when_its_owner_is_killed(kind: type[PrivateServer], request: pytest.FixtureRequest) -> None:
    """As of ``tools/demo --driver pgnotify`` that is ended by SIGKILL: nothing else would end the server."""
    request.getfixturevalue("postgres_server" if kind is PrivatePostgres else "mariadb_server")  # skips without one
    ends_with_its_owner(kind)


@pytest.mark.usefixtures("redis_server")
def test_broker_ends_when_its_owner_is_killed() -> None:
    ends_with_its_owner(PrivateRedis)
