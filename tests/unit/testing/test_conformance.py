"""The form of the suite. The tests in tests/conformance show that its checks pass and fail as they must."""

import inspect
from typing import Any

import msgspec
import pytest

from pubsub_lib.api import Capabilities, Driver, DriverSettings, Publisher, Subscriber
from pubsub_lib.testing import conformance
from pubsub_lib.testing.conformance import DriverConformance
from pubsub_lib.testing.rig import Rig, Scene
from pubsub_memory import MemoryDriver
from pubsub_sql import PollingDriver
from pubsub_zmq.driver import ZmqDriver
from pubsub_zmq.multiproc.driver import IpcDriver

CHECKS = {
    name: member for name, member in inspect.getmembers(DriverConformance, inspect.isfunction) if name[:5] == "test_"
}
MODULES = [inspect.getmodule(each) for each in DriverConformance.__mro__ if each.__module__ != "builtins"]
SOURCE = "".join(inspect.getsource(each) for each in {*MODULES, inspect.getmodule(Scene)} if each is not None)

# The checks that are skipped for a driver, with all that its rig can have.
OF_FAN_OUT = {
    "test_a_broadcast_hello_must_reach_every_subscriber",
    "test_bad_hello_requests_must_not_end_the_answers",
    "test_daemonize_must_be_refused_in_a_forked_child_and_not_disturb_the_parent",
    "test_initialize_of_a_publisher_must_open_its_channel_for_hello_requests",
    "test_on_envelope_must_not_be_called_after_close_returned",
    "test_on_hello_request_may_send_and_its_errors_must_be_caught",
    "test_register_topic_must_be_exact",
    "test_request_hello_must_be_answered_to_the_asker_alone",
    "test_request_hello_must_carry_its_topics",
    "test_send_event_must_reach_every_subscriber_of_the_topic",
}
OF_ENVELOPES = {
    "test_close_must_be_quick_while_peers_read_nothing",
    "test_a_broadcast_hello_must_reach_every_subscriber",
    "test_a_wrong_number_of_frames_must_be_counted_and_never_end_the_thread",
    "test_bad_hello_requests_must_not_end_the_answers",
    "test_bad_input_must_be_counted_by_reason_and_never_end_the_thread",
    "test_counters_must_count_what_was_sent",
    "test_initialize_of_a_publisher_must_open_its_channel_for_hello_requests",
    "test_on_hello_request_may_send_and_its_errors_must_be_caught",
    "test_request_hello_must_carry_its_topics",
    "test_send_event_must_be_refused_before_initialize_and_after_close",
    "test_send_event_must_be_refused_in_a_forked_child",
    "test_send_event_must_not_block",
    "test_send_event_must_not_block_while_peers_read_nothing",
    "test_send_event_must_refuse_what_is_oversized",
}
OF_ADDRESSES = {
    "test_bound_address_must_be_one_that_subscribers_can_register",
    "test_register_listen_address_must_connect_and_unregister_must_end_it",
}
OF_CONNECTED = {
    "test_a_hello_must_reach_the_subscriber_after_a_cut",
    "test_on_connected_must_be_called_at_each_connection",
    "test_on_connected_must_come_after_all_topics_were_subscribed_to_again",
    "test_on_connected_must_come_when_a_hello_request_is_answered",
    "test_what_on_connected_raises_must_be_counted_and_not_end_the_thread",
}
OF_CONNECTIONS = OF_CONNECTED | {
    "test_a_topic_unregistered_while_cut_off_must_not_come_back",
    "test_both_halves_must_connect_again_by_themselves",
    "test_close_must_be_quick_while_cut_off",
    "test_daemonize_must_not_need_a_connection",
    "test_every_topic_must_be_subscribed_to_again",
    "test_everything_must_be_subscribed_to_again",
    "test_send_event_must_raise_transport_errors_alone_and_not_block_while_cut_off",
}
OF_NO_CONNECTED = {"test_on_connected_must_not_be_called_without_declared_connections"}
SKIPPED = {
    MemoryDriver: OF_ADDRESSES | OF_NO_CONNECTED,
    ZmqDriver: OF_NO_CONNECTED,
    IpcDriver: OF_FAN_OUT | OF_ADDRESSES | OF_CONNECTED,
    PollingDriver: OF_ENVELOPES | OF_ADDRESSES | OF_CONNECTIONS,
}


WAYS = ("inject", "cut", "restore", "ask", "stall", "resume")


class Reached(Exception):
    """A check has begun: it made a half of the driver."""


def skipped(declared: Capabilities, **ways: Any) -> set[str]:
    """The checks that are skipped for a driver with these capabilities."""

    class Begins(Driver):
        name = "begins"
        capabilities = declared

        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            raise Reached

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            raise Reached

    found = set()
    for name, check in CHECKS.items():
        rig = Rig(Begins, DriverSettings(), **{**dict.fromkeys(WAYS, print), **ways})
        try:
            check(DriverConformance(), rig)
        except pytest.skip.Exception:
            found.add(name)
        except Reached:
            pass
    return found


def test_checks_take_only_the_rig() -> None:
    for name, check in CHECKS.items():
        assert list(inspect.signature(check).parameters) == ["self", "rig"], name


OF_WORKERS = {"send_event_by"}
"""Only the hop waits for room; its own tests are in ``tests/unit/drivers/zmq/multiproc``."""


@pytest.mark.parametrize("half", [Publisher, Subscriber])
def test_every_method_of_the_contract_is_called_in_a_check(half: type[Any]) -> None:
    methods = {name for name, _ in inspect.getmembers(half, inspect.isfunction) if name[0] != "_"} - OF_WORKERS
    assert {"sending_for", "admit"} <= methods or {"request_hello", "pin_key"} <= methods
    for method in methods:
        assert f".{method}(" in SOURCE or f".{method}," in SOURCE, method


@pytest.mark.parametrize("driver", SKIPPED, ids=lambda each: str(each.__name__))
def test_checks_are_skipped_only_by_declared_capabilities(driver: type[Driver]) -> None:
    assert skipped(driver.capabilities) == SKIPPED[driver]


def test_order_is_checked_where_it_is_declared() -> None:
    unordered = msgspec.structs.replace(MemoryDriver.capabilities, ordered=False)
    more = skipped(unordered) - SKIPPED[MemoryDriver]
    assert more == {"test_send_event_must_keep_the_order_of_a_topic"}


def test_rig_without_a_way_to_ask_skips_one_check() -> None:
    more = skipped(MemoryDriver.capabilities, ask=None) - SKIPPED[MemoryDriver]
    assert more == {"test_bad_hello_requests_must_not_end_the_answers"}


def test_rig_without_a_way_to_stall_skips_two_checks() -> None:
    more = skipped(MemoryDriver.capabilities, stall=None) - SKIPPED[MemoryDriver]
    assert more == {
        "test_close_must_be_quick_while_peers_read_nothing",
        "test_send_event_must_not_block_while_peers_read_nothing",
    }


def test_checks_themselves_skip_by_order_and_keys_alone() -> None:
    assert inspect.getsource(conformance).count("pytest.skip(") == 2
