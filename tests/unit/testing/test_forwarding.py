"""A forwarding subscriber forwards every method of the contract with its arguments, and returns the result."""

import inspect
from unittest.mock import Mock

import pytest

from pubsub_lib.api import Subscriber
from pubsub_lib.testing.forwarding import ForwardingSubscriber


@pytest.mark.parametrize("name", sorted(Subscriber.__abstractmethods__))
def test_method_is_forwarded_with_arguments_and_result(name: str) -> None:
    inner = Mock(spec=Subscriber)
    names = list(inspect.signature(getattr(Subscriber, name)).parameters)[1:]
    given = [f"{each}-given" for each in names]
    found = getattr(ForwardingSubscriber(inner), name)(*given)
    getattr(inner, name).assert_called_once_with(*given)
    assert len(inner.mock_calls) == 1
    if name == "counters":
        assert found is inner.counters.return_value
