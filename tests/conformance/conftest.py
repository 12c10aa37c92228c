"""Fixtures of the conformance tests: a server that they share, and silence for broken drivers."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from _broker import NatsServer

from tests.conformance.nats_wire import server

LOGS = ("pubsub_memory", "pubsub_nats", "pubsub_pgnotify", "pubsub_redis", "pubsub_sql", "pubsub_zmq", "tcp_driver")


@pytest.fixture
def quiet() -> Iterator[None]:
    """Suppress the logs of drivers that are broken on purpose."""
    before = {name: logging.getLogger(name).level for name in LOGS}
    for name in before:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """The NATS server that the conformance tests share. It accepts more bytes than by default, so that a raw client can
    send a message that is too large."""
    with server("max_payload: 2MB\n") as made:
        yield made


@pytest.fixture
def hop_inject(tmp_path: Path) -> Iterator[Callable[..., object]]:
    """Sends any frames to the hop in ``tmp_path``."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    raw_socket = context.socket(zmq.PUSH)
    raw_socket.linger = 0
    raw_socket.connect(f"ipc://{tmp_path}/hop/socket")
    yield lambda *frames: raw_socket.send_multipart(frames)
    raw_socket.close()
    context.term()
