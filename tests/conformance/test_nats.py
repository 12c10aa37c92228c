"""The NATS driver passes the conformance suite, over a private server, with cut connections."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _broker import NatsServer
from _patience import longest

from pubsub_lib.api import DriverSettings
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_nats.driver import NatsDriver
from tests.conformance.nats_wire import RawNats
from tests.conformance.proxies import proxies

LONG = longest(30.0)
OPTIONS = {"reconnect_interval": 0.02, "max_reconnect_interval": 0.1}


@contextmanager
def rig_of(server: NatsServer) -> Iterator[Rig]:
    raw = RawNats(server.port)
    try:
        with proxies([f"tcp://127.0.0.1:{server.port}"]) as between:
            url = between.addresses[0].replace("tcp://", "nats://")
            settings = DriverSettings(options={**OPTIONS, "servers": (url,)})
            yield Rig(
                NatsDriver, settings, inject=raw.inject, **between.ways, patience=LONG,
                ask=raw.ask,
            )  # fmt: skip
    finally:
        raw.close()


class TestNats(DriverConformance):
    @pytest.fixture
    def rig(self, nats_server: NatsServer) -> Iterator[Rig]:
        with rig_of(nats_server) as rig:
            yield rig
