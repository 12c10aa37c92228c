"""The memory driver passes the conformance suite."""

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_memory import MemoryBus, MemoryDriver


def rig_of_memory() -> Rig:
    bus = MemoryBus()
    return Rig(MemoryDriver, DriverSettings(options={"bus": bus}), inject=bus.send, cut=bus.cut, restore=bus.restore)


class TestMemory(DriverConformance):
    @pytest.fixture
    def rig(self) -> Rig:
        return rig_of_memory()
