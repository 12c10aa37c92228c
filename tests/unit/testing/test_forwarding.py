"""A forwarding subscriber forwards every method of the contract with its arguments, and returns the result."""

import inspect
from unittest.mock import Mock

import pytest

from pubsub_lib.api import Subscriber
from pubsub_lib.testing.forwarding import ForwardingSubscriber

METHODS = sorted(name for name, _ in inspect.getmembers(Subscriber, inspect.isfunction) if name[0] != "_")


def test_methods_with_a_default_are_forwarded_too() -> None:
    assert set(METHODS) >= {*Subscriber.__abstractmethods__, "request_hello", "pin_key", "register_listen_address"}
    assert set(METHODS) <= set(vars(ForwardingSubscriber))


@pytest.mark.parametrize("name", METHODS)
def test_method_is_forwarded_with_arguments_and_result(name: str) -> None:
    inner = Mock(spec=Subscriber)
    names = list(inspect.signature(getattr(Subscriber, name)).parameters)[1:]
    given = [f"{each}-given" for each in names]
    found = getattr(ForwardingSubscriber(inner), name)(*given)
    getattr(inner, name).assert_called_once_with(*given)
    assert len(inner.mock_calls) == 1
    if name == "counters":
        assert found is inner.counters.return_value
