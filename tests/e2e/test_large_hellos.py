"""A rogue publisher floods a controller with hellos of 1 MiB: its memory is bounded, and true changes are received."""

import json
import secrets
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
import zmq
from _processes import free_port, poll

from pubsub_lib import Store
from pubsub_lib.core import codec
from pubsub_lib.core.model import ALL
from pubsub_zmq.buckets import Heads
from pubsub_zmq.options import ZmqOptions
from tests.e2e.service_host import LONG, Host, answer, write
from tests.e2e.test_many_connections import resident

MIB: Final = 1024 * 1024
MORE: Final = ZmqOptions().receive_bytes // MIB + 60
"""MiB by which the controller may grow: what waits, and one decoded hello, with what the allocators keep."""
FLOOD: Final = 200
"""Number of hellos that the controller must have received: more than ``MORE``, so that it has not kept all."""


def hello_body(store_id: bytes, topics: int, *more: object) -> bytes:
    """The body of a hello about this number of topics, with further fields. Made without the codec's own checks."""
    sequences = {f"topic-{number}": number for number in range(topics)}
    hello = [sequences, {}, None, 0.0, "", False]
    return msgspec.msgpack.encode([1, 4, "api-1", secrets.token_bytes(16), 0, [], hello, store_id, *more])


def many_topics(store_id: bytes) -> bytes:
    """Nearly a frame of topics, of which a hello has at most 200."""
    return hello_body(store_id, 70_000)


def unknown_field(store_id: bytes) -> bytes:
    """A frame of the allowed size, as of a newer minor version, which nearly is one unknown field."""
    return hello_body(store_id, 1, bytes(MIB - 1000))


def large_field(store_id: bytes) -> bytes:
    """The same beyond the allowed size, and below the size that ends the connection."""
    return hello_body(store_id, 1, bytes(MIB * 19 // 10))


HELLOS: Final = {
    "too large": (large_field, 'dropped_total{why="oversized"}'),
    "many topics": (many_topics, 'dropped_total{why="foreign"}'),
    "unknown field": (unknown_field, 'driver_total{what="received"}'),
}
"""How a body is made, and what counts it. An unknown field is no fault: a newer version may have it."""


@contextmanager
def flood(address: str, body: bytes) -> Iterator[None]:
    """Send such hellos to all subscribers as fast as they receive them, until the end of the block."""
    stop = threading.Event()
    head = Heads(exact=False).of(codec.topic_frame(ALL))[0]
    with zmq.Context() as context, context.socket(zmq.XPUB) as pub:
        pub.setsockopt(zmq.LINGER, 0)
        pub.setsockopt(zmq.SNDHWM, 4)
        pub.setsockopt(zmq.XPUB_NODROP, 1)
        pub.setsockopt(zmq.SNDTIMEO, 50)
        pub.bind(address)

        def run() -> None:
            while not stop.is_set():
                while pub.poll(0):
                    pub.recv()
                try:
                    pub.send_multipart((head, body), copy=False)
                except zmq.Again:  # the subscribers are slower
                    continue

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(LONG)


@pytest.fixture
def host(tmp_path: Path, sqlite_url: str) -> Iterator[Host]:
    found = Host(tmp_path / "host", sqlite_url, publishers_ips="127.0.0.1,127.0.0.2", replica_metrics_port=free_port())
    yield found
    found.close()


def counted(host: Host, name: str) -> float:
    """One of the controller's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{host.settings.replica_metrics_port}/metrics", timeout=LONG) as got:
        lines = got.read().decode().splitlines()
    begin = f"pubsub_replica_{name} "
    return next(float(line.removeprefix(begin)) for line in lines if line.startswith(begin))


def links(host: Host) -> float:
    """Links that the controller received; those that a sync had overtaken, too."""
    return counted(host, "links_applied_total") + counted(host, 'dropped_total{why="old"}')


@pytest.mark.quick_variants(1)
@pytest.mark.slow
@pytest.mark.parametrize(("body_of", "counter"), HELLOS.values(), ids=HELLOS)
def test_large_hellos_take_bounded_memory_and_true_changes_are_received(
    body_of: Callable[[bytes], bytes], counter: str, host: Host
) -> None:
    host.service()
    worker, controller = host.worker(), host.controller()
    assert answer(controller) == "synced\n"
    assert controller.stdin is not None
    with Store(host.database) as store:
        body = body_of(store.store_id)
    before, received = resident(controller), links(host)
    with flood(f"tcp://127.0.0.2:{host.settings.bind_address.rpartition(':')[2]}", body):
        assert poll(lambda: counted(host, counter) >= FLOOD, LONG), "the attack does not work"
        print(write(worker, 5), file=controller.stdin, flush=True)
        assert len(json.loads(answer(controller))) == 5
        assert poll(lambda: links(host) > received, LONG)
        assert resident(controller, "VmHWM") <= before + MORE
        assert counted(host, 'driver_total{what="disconnected"}') == 0
    assert poll(lambda: counted(host, "polling") == 0, LONG)
