"""The memory driver passes the conformance suite."""

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_memory import MemoryBus, MemoryDriver


def rig_of_memory() -> Rig:
    bus = MemoryBus()
    settings = DriverSettings(options={"bus": bus})
    return Rig(MemoryDriver, settings, inject=bus.send, cut=bus.cut, restore=bus.restore, ask=bus.ask)


class TestMemory(DriverConformance):
    @pytest.fixture
    def rig(self) -> Rig:
        return rig_of_memory()
