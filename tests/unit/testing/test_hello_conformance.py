"""The form of the checks of hellos. The tests in tests/conformance show that they pass and fail as they must."""

import inspect

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.testing import hello_conformance
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_lib.testing.hello_conformance import HelloConformance
from pubsub_lib.testing.rig import Rig
from pubsub_memory import MemoryBus, MemoryDriver

CHECKS = [name for name, _ in inspect.getmembers(HelloConformance, inspect.isfunction) if name[:5] == "test_"]


def test_driver_suite_contains_the_checks_of_hellos() -> None:
    assert set(CHECKS) <= set(dir(DriverConformance))
    assert len(CHECKS) >= 8


def test_checks_are_skipped_only_by_declared_capabilities() -> None:
    assert "pytest.skip" not in inspect.getsource(hello_conformance)


def test_rig_may_have_no_way_to_send_raw_hello_requests() -> None:
    bus = MemoryBus()
    rig = Rig(MemoryDriver, DriverSettings(options={"bus": bus}), inject=bus.send)
    with pytest.raises(pytest.skip.Exception, match="the rig has no `ask`"):
        DriverConformance().test_bad_hello_requests_must_not_end_the_answers(rig)
