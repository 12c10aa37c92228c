"""The ZeroMQ driver with keys passes the conformance suite, on real sockets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from pubsub_lib import curve_keys
from pubsub_lib.api import Client, DriverSettings, Publisher, Subscriber
from pubsub_lib.core.model import ALL
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_zmq.driver import ZmqDriver
from tests.conformance.proxies import proxies
from tests.conformance.test_zmq import OPTIONS, RawSocket, driver_on, tcp_addresses


class KeyedRawSocket(RawSocket):
    """A raw socket with a key. It asks no handler of ZAP, so every client may connect."""

    def __init__(self, address: str, keys: curve_keys.KeyPair) -> None:
        self._keys = keys
        super().__init__(address)

    def _prepare(self, socket: "zmq.Socket[bytes]") -> None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.public.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret.encode())

    def _sent_under(self, head: bytes) -> bytes:
        return head


def keyed(pins: dict[str, str], reached: dict[str, str], client: curve_keys.KeyPair) -> type[ZmqDriver]:
    """The driver with keys. Every subscriber gets the key of each publisher, as from the directory, and every publisher
    accepts the client. ``reached``: bound address -> address for subscribers.
    """
    subscribers: list[Subscriber] = []
    admitted = [Client("any", client.public, frozenset({ALL}))]

    class Keyed(ZmqDriver):
        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            made = super().publisher(settings)
            made.admit(admitted)
            pins[reached[settings.bind_address]] = made.public_key()
            for each in subscribers:
                pin(each)
            return made

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            made = super().subscriber(settings)
            subscribers.append(made)
            pin(made)
            return made

    def pin(subscriber: Subscriber) -> None:
        for address, key in pins.items():
            if not getattr(subscriber, "_life").closed:  # noqa: B009 - private, and a closed one refuses
                subscriber.pin_key(address, key)

    return Keyed


@contextmanager
def keyed_rig(addresses: list[str], folder: Path) -> Iterator[Rig]:
    client, raw_keys = curve_keys.new_pair(), curve_keys.new_pair()
    file = folder / "client.key"
    file.write_text(curve_keys.file_text("any", client))
    file.chmod(0o600)
    raw_socket = KeyedRawSocket(addresses[-1], raw_keys)
    try:
        with proxies(addresses) as between:
            reached = dict(zip(addresses, between.addresses, strict=True))
            driver = driver_on(addresses[:-1], keyed({reached[addresses[-1]]: raw_keys.public}, reached, client))
            settings = DriverSettings(
                addresses=between.addresses,
                bind_address=addresses[0],
                keys=True,
                client_key_file=str(file),
                options=OPTIONS,
            )
            yield Rig(driver, settings, inject=raw_socket, **between.ways, patience=30.0)
    finally:
        raw_socket.close()


class TestZmqWithKeys(DriverConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[Rig]:
        with keyed_rig(tcp_addresses(), tmp_path) as rig:
            yield rig
