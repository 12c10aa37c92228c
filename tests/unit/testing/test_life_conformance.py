"""The form of the checks of start and end. The tests in tests/conformance show that they pass and fail as they must."""

import inspect

from pubsub_lib.testing import life_conformance
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_lib.testing.life_conformance import LifeConformance

CHECKS = [name for name, _ in inspect.getmembers(LifeConformance, inspect.isfunction) if name[:5] == "test_"]


def test_driver_suite_contains_the_checks_of_start_and_end() -> None:
    assert set(CHECKS) <= set(dir(DriverConformance))
    assert len(CHECKS) >= 9


def test_checks_are_skipped_only_by_declared_capabilities() -> None:
    assert "pytest.skip" not in inspect.getsource(life_conformance)
