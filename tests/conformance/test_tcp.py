"""A driver over a broker, written by the documentation only, passes the conformance suite."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.testing.conformance import DriverConformance, Rig
from tests.conformance.proxies import proxies
from tests.conformance.tcp_broker import Broker
from tests.conformance.tcp_driver import TcpDriver


@contextmanager
def rig_of() -> Iterator[Rig]:
    broker = Broker()
    try:
        with proxies([broker.address]) as between:
            settings = DriverSettings(addresses=between.addresses)
            yield Rig(
                TcpDriver, settings, inject=broker.inject, **between.ways,
                ask=broker.inject_request,
            )  # fmt: skip
    finally:
        broker.close()


class TestTcp(DriverConformance):
    @pytest.fixture
    def rig(self) -> Iterator[Rig]:
        with rig_of() as rig:
            yield rig
