"""The subscriber of a replica: its driver's, or the caller's; with parents it listens to them alone."""

import pytest

from pubsub_lib import loader
from pubsub_lib.errors import DriverError
from pubsub_lib.replica.receiving_half import receiving_half
from tests.unit.relay.sockets import below, bound
from tests.unit.world import settings

URL = "sqlite:///net.db"


def test_driver_declares_what_its_publishers_do() -> None:
    half = receiving_half(settings(URL), None)
    assert (half.binds, half.polls, half.parents) == (False, False, None)
    half = receiving_half(settings(URL, driver="db_polling_pubsub_driver", driver_options={}), None)
    assert (half.binds, half.polls) == (False, True)
    half = receiving_half(bound(URL, "x"), None)
    assert (half.binds, half.polls) == (True, False)


def test_replica_with_parents_listens_to_no_other_publisher() -> None:
    config = bound(URL, "api-1", addresses=("tcp://127.0.0.1:1",))
    half = receiving_half(below(config, bound(URL, "relay-1")), None)
    assert half.parents is half.subscriber
    assert half.parents is not None
    driver = half.parents._driver
    driver.initialize(lambda envelope: None, lambda: None)
    assert driver._addresses == set()  # type: ignore[attr-defined]


def test_callers_subscriber_is_used_with_parents_too() -> None:
    config = settings(URL)
    given = loader.load("memory").subscriber(config.for_driver())
    assert receiving_half(config, given).subscriber is given
    half = receiving_half(below(config, bound(URL, "relay-1")), given)
    assert half.parents is not None
    assert half.parents._driver is given


def test_parents_need_publishers_that_bind_addresses() -> None:
    with pytest.raises(DriverError, match=r"'memory' lacks .*'bind_based', needed by parents in \[pubsub\]"):
        receiving_half(below(settings(URL), bound(URL, "relay-1")), None)
