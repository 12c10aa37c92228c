"""The form of the suite. The tests in tests/conformance show that its checks pass and fail as they must."""

import inspect

from pubsub_lib.api import Publisher, Subscriber
from pubsub_lib.testing.conformance import DriverConformance

CHECKS = {
    name: member for name, member in inspect.getmembers(DriverConformance, inspect.isfunction) if name[:5] == "test_"
}


def test_checks_take_only_the_rig() -> None:
    for name, check in CHECKS.items():
        assert list(inspect.signature(check).parameters) == ["self", "rig"], name


def test_every_method_of_the_contract_is_called_in_a_check() -> None:
    source = inspect.getsource(inspect.getmodule(DriverConformance))  # type: ignore[arg-type]
    for half in (Publisher, Subscriber):
        for method in half.__abstractmethods__:
            assert f".{method}(" in source or f".{method}," in source or method == "initialize", method


def test_checks_are_skipped_only_by_declared_capabilities() -> None:
    source = inspect.getsource(inspect.getmodule(DriverConformance))  # type: ignore[arg-type]
    assert source.count("pytest.skip(") == source.count("rig.driver.capabilities.ordered") == 1
