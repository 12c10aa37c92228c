"""The ZeroMQ driver passes the conformance suite, over tcp and over ipc, on real sockets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq
from _processes import free_port, poll

from pubsub_lib.api import DriverSettings, Publisher
from pubsub_lib.core import codec
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_zmq.buckets import bucketed
from pubsub_zmq.driver import ZmqDriver
from tests.conformance.proxies import proxies

PUBLISHERS = 4
"""The maximum number in a check, and one for the raw socket."""
OPTIONS = {"reconnect_interval": 0.02, "max_reconnect_interval": 0.1, "answer_time": 60.0}


class RawSocket:
    """A raw socket that sends any frames to the subscribers of their first bytes."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._prepare(self._socket)
        self._socket.bind(address)
        self._subscriptions: set[bytes] = set()

    def _prepare(self, socket: "zmq.Socket[bytes]") -> None:
        """Further options, for a subclass."""

    def _sent_under(self, head: bytes) -> bytes:
        """The topic frame under which a publisher sends data."""
        return bucketed(head) if head[:1] == codec.EVERYTHING and len(head) > 2 else head

    def __call__(self, *frames: bytes) -> None:
        head, *rest = frames
        sent = self._sent_under(head)

        def wanted() -> bool:
            while self._socket.poll(0):
                frame = self._socket.recv()
                (self._subscriptions.add if frame[0] else self._subscriptions.discard)(frame[1:])
            return any(sent.startswith(each) for each in self._subscriptions)

        assert poll(wanted, 10), "no subscriber of the raw socket's frames"
        self._socket.send_multipart([sent, *rest])

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class RawAsker:
    """A raw socket that sends any hello requests to the publishers at these addresses: as messages, and other bytes as
    subscriptions, because a publisher ends the connection of a message that is no hello request.

    An XSUB socket keeps its own subscriptions in a tree as deep as they are long, and ends the process when it is
    closed with one of a megabyte. So it sends no longer ones: a publisher disconnects who does (ZMQ_MAXMSGSIZE).
    """

    LONGEST = 64 * 1024

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XSUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        for address in addresses:
            self._socket.connect(address)

    def __call__(self, frame: bytes) -> None:
        self._socket.send((b"" if frame[:1] == b"H" else b"\1") + frame[: self.LONGEST])

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def driver_on(addresses: list[str], base: type[ZmqDriver] = ZmqDriver) -> type[ZmqDriver]:
    """Return a driver with a separate address for each publisher, because two cannot bind the same address."""
    free = iter(addresses)

    class OneAddressEach(base):  # type: ignore[valid-type,misc]
        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            made: Publisher = super().publisher(msgspec.structs.replace(settings, bind_address=next(free)))
            return made

    return OneAddressEach


@contextmanager
def rig_on(addresses: list[str]) -> Iterator[Rig]:
    raw_socket, raw_asker = RawSocket(addresses[-1]), RawAsker((*addresses[:-1],))
    try:
        with proxies(addresses) as between:
            settings = DriverSettings(addresses=between.addresses, bind_address=addresses[0], options=OPTIONS)
            driver = driver_on(addresses[:-1])
            yield Rig(driver, settings, inject=raw_socket, **between.ways, ask=raw_asker)
    finally:
        raw_asker.close()
        raw_socket.close()


def tcp_addresses() -> list[str]:
    ports: set[int] = set()
    while len(ports) < PUBLISHERS:
        ports.add(free_port())
    return [f"tcp://127.0.0.1:{port}" for port in ports]


class TestZmqOverTcp(DriverConformance):
    @pytest.fixture
    def rig(self) -> Iterator[Rig]:
        with rig_on(tcp_addresses()) as rig:
            yield rig


class TestZmqOverIpc(DriverConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[Rig]:
        with rig_on([f"ipc://{tmp_path}/{number}" for number in range(PUBLISHERS)]) as rig:
            yield rig
