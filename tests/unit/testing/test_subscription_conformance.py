"""The form of the checks of subscriptions. The tests in tests/conformance show that they pass and fail as they must."""

import inspect

from pubsub_lib.testing import subscription_conformance
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_lib.testing.subscription_conformance import SubscriptionConformance

CHECKS = [name for name, _ in inspect.getmembers(SubscriptionConformance, inspect.isfunction) if name[:5] == "test_"]


def test_driver_suite_contains_the_checks_of_subscriptions() -> None:
    assert set(CHECKS) <= set(dir(DriverConformance))
    assert len(CHECKS) >= 5


def test_checks_are_skipped_only_by_declared_capabilities() -> None:
    assert "pytest.skip" not in inspect.getsource(subscription_conformance)
