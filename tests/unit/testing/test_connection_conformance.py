"""The form of the connection checks. The tests in tests/conformance show that they pass and fail as they must."""

import inspect

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.testing import connection_conformance
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_lib.testing.connection_conformance import ConnectionConformance
from pubsub_lib.testing.rig import Rig
from pubsub_memory import MemoryBus, MemoryDriver

CHECKS = [name for name, _ in inspect.getmembers(ConnectionConformance, inspect.isfunction) if name[:5] == "test_"]
CUTTING = [name for name in CHECKS if "cut_off()" in inspect.getsource(getattr(ConnectionConformance, name))]


def rig(bus: MemoryBus, **ways: object) -> Rig:
    return Rig(MemoryDriver, DriverSettings(options={"bus": bus}), inject=bus.send, patience=1.0, **ways)  # type: ignore[arg-type]


def test_driver_suite_contains_the_connection_checks() -> None:
    assert set(CHECKS) <= set(dir(DriverConformance))
    assert len(CUTTING) >= 9


def test_checks_are_skipped_only_by_declared_capabilities() -> None:
    assert "pytest.skip" not in inspect.getsource(connection_conformance)


@pytest.mark.parametrize("check", CUTTING)
def test_rig_without_cut_is_refused(check: str) -> None:
    with pytest.raises(AssertionError, match="must be able to cut and restore"):
        getattr(DriverConformance(), check)(rig(MemoryBus()))


def test_cut_without_effect_is_found() -> None:
    useless = rig(MemoryBus(), cut=lambda: None, restore=lambda: None)
    with pytest.raises(AssertionError, match="the rig's cut does not cut"):
        DriverConformance().test_both_halves_must_connect_again_by_themselves(useless)


def test_restore_without_effect_is_found() -> None:
    bus = MemoryBus()
    with pytest.raises(AssertionError, match="received nothing on it"):
        DriverConformance().test_both_halves_must_connect_again_by_themselves(
            rig(bus, cut=bus.cut, restore=lambda: None)
        )
