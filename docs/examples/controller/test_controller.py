"""Tests of the controller with the fixtures that pubsub_lib brings: no database server, no thread, no sleep."""

import pytest
from controller import Controller, FakeSwitch

from pubsub_lib import Store
from pubsub_lib.fault_injection import Loss
from pubsub_lib.testing.local import Local

TOPIC = "tenant-1"


@pytest.fixture
def switch(pubsub_local: Local) -> FakeSwitch:
    switch = FakeSwitch("s1")
    Controller(pubsub_local.replica([TOPIC]), switch)
    return switch


def write_port(store: Store, port: str, switch: str, number: int) -> None:
    with store.transaction() as tx:
        tx.set("lport", port, {"switch": switch, "number": number}, topic=TOPIC)


def write_route(store: Store, prefix: str, port: str) -> None:
    with store.transaction() as tx:
        tx.set("lroute", prefix, {"port": port}, topic=TOPIC)


def test_a_route_becomes_a_flow_as_soon_as_its_port_is_there(pubsub_local: Local, switch: FakeSwitch) -> None:
    write_route(pubsub_local.store, "10.0.0.0/24", "p1")
    pubsub_local.flush()
    assert switch.flows == {}
    write_port(pubsub_local.store, "p1", "s1", 3)
    pubsub_local.flush()
    assert switch.flows == {"10.0.0.0/24": 3}


def test_a_flow_follows_its_port_and_goes_with_it(pubsub_local: Local, switch: FakeSwitch) -> None:
    write_port(pubsub_local.store, "p1", "s1", 3)
    write_route(pubsub_local.store, "10.0.0.0/24", "p1")
    write_port(pubsub_local.store, "p1", "s1", 4)
    pubsub_local.flush()
    assert switch.flows == {"10.0.0.0/24": 4}
    write_port(pubsub_local.store, "p1", "s2", 1)
    pubsub_local.flush()
    assert switch.flows == {}, "another switch has the port now"


@pytest.mark.parametrize("seed", range(5))
def test_with_a_bad_network_the_flows_end_right(seed: int) -> None:
    with Local(loss=Loss(drop=0.3, duplicate=0.3, reorder=0.3), seed=seed) as local:
        switch = FakeSwitch("s1")
        Controller(local.replica([TOPIC]), switch)
        for number in range(20):
            write_port(local.store, f"p{number % 3}", "s1", number)
            write_route(local.store, f"10.0.{number}.0/24", f"p{number % 3}")
        local.flush()
        assert switch.flows == {f"10.0.{number}.0/24": 18 + number % 3 - 3 * (number % 3 == 2) for number in range(20)}


def test_what_an_earlier_run_left_is_swept(pubsub_local: Local) -> None:
    switch = FakeSwitch("s1")
    switch.flows = {"10.9.0.0/16": 1}
    replica = pubsub_local.replica([TOPIC])
    replica.wait_synced()
    Controller(replica, switch)
    assert switch.flows == {}
