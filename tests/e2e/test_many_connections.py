"""Strangers take what they can: the service keeps files for its workers and its memory, and its replicas continue.

Without a limit of connections libzmq ends the service when a worker connects and no file is left.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Store
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.warm_start import Running

FILES = 512
GREETING = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48) + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB"
REFUSED = 0.5
"""Seconds after which a connection counts as dropped."""


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path / "host", sqlite_url, files=FILES)
    yield found
    found.close()


def hold(address: str, stack: ExitStack) -> list[socket.socket]:
    """Open connections with a handshake until three in a row are dropped, or no file of the service would be left."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    held: list[socket.socket] = []
    dropped = 0
    while dropped < 3 and len(held) < FILES:
        try:
            made = stack.enter_context(socket.create_connection((host, int(port)), REFUSED))
            made.sendall(GREETING)
        except OSError:
            dropped += 1
        else:
            held.append(made)
            dropped = 0
    return held


@pytest.mark.long
def test_service_survives_a_worker_while_strangers_hold_all_connections(host: Host) -> None:
    service = host.service()
    worker = host.worker()
    with Store(host.database) as store, Watched(host.settings) as watched, ExitStack() as stack:
        watched.must_come_to(write(worker, 3), store)
        held = hold(host.settings.bind_address, stack)
        assert FILES // 2 <= len(held) + 1 < FILES - 100
        assert host.metric("sending_total", "limited") == 1
        assert host.is_ready()
        workers = [host.worker(origin=f"w-{number}") for number in range(3)]
        for each in workers:
            watched.must_come_to(write(each, 3), store)
        assert host.metric("receiving_total", "received") > 0
        assert service.poll() is None
    assert poll(lambda: host.metric("sending_total", "disconnected") >= len(held), LONG)
    with Store(host.database) as store, Watched(host.settings) as watched:
        watched.must_come_to(write(worker, 3), store)


STRANGER = """
import sys, zmq
stranger = zmq.Context().socket(zmq.SUB)
stranger.setsockopt(zmq.SNDHWM, 0)
stranger.setsockopt(zmq.RECONNECT_IVL, int(sys.argv[3]))
stranger.connect(sys.argv[1])
for number in range(int(sys.argv[2])):
    stranger.subscribe(f"{number:05}".encode() + bytes(1995))
sys.stdin.read()
"""
"""Subscribes to topics of 2 kB, for each of which ZeroMQ needs 90 kB of memory. It connects again after this number of
milliseconds (-1: never), and subscribes to all of them again.
"""
MANY = 20_000
"""Such topics are 41 MB, for which ZeroMQ would need 1,840 MiB."""
MORE = 100
"""MiB that its first subscriptions may take, until the service has ended its connection."""


@contextmanager
def stranger(address: str, topics: int, reconnects: int) -> Iterator[None]:
    """Such a client in its own process, until the end of the block."""
    command = [sys.executable, "-c", STRANGER, address, str(topics), str(reconnects)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        try:
            yield
        finally:
            child.kill()


def resident(process: Running, what: str = "VmRSS") -> int:
    """MiB of a process: now, or with "VmHWM" the most that it ever had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) // 1024


@pytest.mark.long
def test_service_ends_a_stranger_with_many_subscriptions_and_returns_the_memory(host: Host) -> None:
    host.change("[publisher_service]", "[pubsub_zmq]\nmax_subscription_bytes = 1000000\n[publisher_service]")
    service = host.service()
    worker = host.worker()
    with Store(host.database) as store, Watched(host.settings) as watched:
        watched.must_come_to(write(worker, 3), store)
        before = resident(service)
        with stranger(host.settings.bind_address, 4000, -1):  # 8 MB
            assert poll(lambda: host.metric("sending_total", "ended") > 0, LONG)
            assert poll(lambda: resident(service) < before + 60, LONG), (before, resident(service))
        watched.must_come_to(write(worker, 3), store)
        assert host.is_ready()


@pytest.mark.long
def test_memory_is_within_its_bound_while_a_stranger_subscribes_to_41_mb(host: Host) -> None:
    """With the default options."""
    service = host.service()
    worker = host.worker()
    with Store(host.database) as store, Watched(host.settings) as watched:
        watched.must_come_to(write(worker, 3), store)
        before = resident(service)
        with stranger(host.settings.bind_address, MANY, 100):
            assert poll(lambda: ended(host) >= 1, LONG)
        most = resident(service, "VmHWM")
        assert most < before + MORE
        assert poll(lambda: resident(service) < before + 60, LONG), (before, resident(service))
        watched.must_come_to(write(worker, 3), store)
        assert host.is_ready()


def ended(host: Host) -> float:
    """The number of connections that the service ended for what they brought."""
    return sum(host.metric("sending_total", each) for each in ("ended", "unread", "unfinished"))
