"""The NATS driver passes the conformance suite, over a private server, with cut connections."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _broker import NatsServer

from pubsub_lib.api import DriverSettings
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_nats.driver import NatsDriver
from tests.conformance.nats_wire import RawNats, server
from tests.conformance.proxies import proxies

OPTIONS = {"reconnect_interval": 0.02, "max_reconnect_interval": 0.1}
CONFIGURATION = "max_payload: 2MB\n"
"""More than the default, so that a raw client can send a message that is too large."""


@contextmanager
def rig_of(server: NatsServer, driver: type[NatsDriver] = NatsDriver, patience: float = 30.0) -> Iterator[Rig]:
    raw = RawNats(server.port)
    try:
        with proxies([f"tcp://127.0.0.1:{server.port}"]) as between:
            url = between.addresses[0].replace("tcp://", "nats://")
            settings = DriverSettings(options={**OPTIONS, "servers": (url,)})
            yield Rig(driver, settings, inject=raw.inject, cut=between.cut, restore=between.restore, patience=patience)
    finally:
        raw.close()


@pytest.fixture(scope="module")
def nats_server() -> Iterator[NatsServer]:
    with server(CONFIGURATION) as made:
        yield made


class TestNats(DriverConformance):
    @pytest.fixture
    def rig(self, nats_server: NatsServer) -> Iterator[Rig]:
        with rig_of(nats_server) as rig:
            yield rig
