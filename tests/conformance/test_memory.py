"""The memory driver passes the conformance suite."""

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_memory import MemoryBus, MemoryDriver


class TestMemory(DriverConformance):
    @pytest.fixture
    def rig(self) -> Rig:
        bus = MemoryBus()
        settings = DriverSettings(options={"bus": bus})
        return Rig(MemoryDriver, settings, inject=bus.send, cut=bus.cut, restore=bus.restore)
