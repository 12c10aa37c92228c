"""The monitor distinguishes connections that ZeroMQ gave up from those that it retries."""

from itertools import pairwise

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from pubsub_zmq.connection_monitor import GRACE, ConnectionMonitor, GivenUp

ONE, TWO = "tcp://10.0.0.1:1", "tcp://10.0.0.2:1"
UP = zmq.EVENT_HANDSHAKE_SUCCEEDED
LOST = zmq.EVENT_DISCONNECTED
RETRY = zmq.EVENT_CONNECT_RETRIED
A, B = "tcp://a.example:1", "tcp://b.example:1"
NEVER_DUE = float("inf")


def connected(*addresses: str, maximum: float = 2.0, quiet: float = NEVER_DUE) -> ConnectionMonitor:
    health = ConnectionMonitor(0.1, maximum, quiet)
    for address in addresses:
        health.added(address, 0.0)
        health.event(UP, address, 0.0)
    return health


def test_loss_with_a_retry_is_left_to_zeromq() -> None:
    health = connected(ONE)
    health.event(LOST, ONE, 1.0)
    health.event(RETRY, ONE, 1.0)
    assert health.given_up(100.0) == []
    assert health.next_time() == float("inf")
    assert health.up == 0
    health.event(UP, ONE, 2.0)
    assert health.up == 1
    assert health.counts == {"connected": 2, "disconnected": 1, "reconnected": 1}


def test_loss_without_a_retry_is_given_up_and_other_connections_are_not() -> None:
    health = connected(ONE, TWO)
    health.event(LOST, ONE, 1.0)
    assert health.given_up(1.0) == []
    assert health.next_time() == 1.0 + GRACE
    assert health.given_up(1.0 + GRACE) == [GivenUp((ONE,), True)]
    assert health.given_up(100.0) == [], "it is made again only once"
    assert health.up == 1


def test_failed_handshake_is_given_up_and_was_never_up() -> None:
    health = ConnectionMonitor(0.1, 2.0, NEVER_DUE)
    health.added(ONE, 0.0)
    health.event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, ONE, 1.0)
    health.event(LOST, ONE, 1.0)
    assert health.given_up(2.0) == [GivenUp((ONE,), False)]
    assert health.counts["disconnected"] == 0


def test_repeatedly_given_up_connection_is_made_again_with_growing_pauses() -> None:
    health = connected(ONE, maximum=2.0)
    now = 1.0
    made: list[float] = []
    health.event(LOST, ONE, now)
    while len(made) < 8:
        now = health.next_time()
        assert health.given_up(now)
        made.append(now)
        health.event(UP, ONE, now)
        health.event(LOST, ONE, now)
    gaps = [later - earlier for earlier, later in pairwise(made)]
    assert gaps == sorted(gaps)
    assert 1.9 < gaps[-1] <= 2.0 + GRACE
    health.event(UP, ONE, now + 100)
    health.event(LOST, ONE, now + 100)
    assert health.next_time() == now + 100 + GRACE, "after a long time up it is made again at once"


def test_host_name_is_matched_to_its_resolved_address() -> None:
    number = "tcp://10.0.0.9:1"
    health = connected(A, "tcp://10.0.0.8:1")
    health.event(LOST, A, 1.0)
    health.event(RETRY, number, 1.0)
    assert health.given_up(100.0) == []
    health.event(UP, number, 101.0)
    assert (health.up, health.counts["reconnected"]) == (2, 1)
    health.event(LOST, number, 200.0)
    health.event(RETRY, "tcp://10.0.0.7:1", 200.0)  # the name is resolved to another address now
    assert health.given_up(300.0) == []
    health.event(UP, "tcp://10.0.0.7:1", 301.0)
    health.event(LOST, "tcp://10.0.0.7:1", 302.0)
    assert [each.addresses for each in health.given_up(400.0)] == [(A,)]


def test_retry_of_another_name_with_the_same_port_does_not_hide_a_given_up_connection() -> None:
    health = connected(A)
    health.added(B, 0.0)
    health.event(LOST, A, 1.0)
    health.event(RETRY, B, 1.05)
    assert health.given_up(100.0) == [GivenUp((A,), True)]


def test_one_name_is_made_again_and_others_with_its_port_are_not() -> None:
    health = connected(A, B)
    health.event(LOST, A, 1.0)
    assert health.given_up(100.0) == [GivenUp((A,), True)]
    assert health.up == 1


@pytest.mark.parametrize("returns", [0, 1, 2])
def test_names_lost_together_are_made_again_together(returns: int) -> None:
    health = connected(A, B, ONE)
    for name in (A, B):
        health.event(LOST, name, 1.0)
    for number in ("tcp://10.0.0.8:1", "tcp://10.0.0.9:1")[:returns]:
        health.event(RETRY, number, 1.0)
    expected = {0: [(A,), (B,)], 1: [(A, B)], 2: []}[returns]
    assert [each.addresses for each in health.given_up(2.0)] == expected
    if expected:
        for name in (A, B):
            health.event(UP, name, 3.0)
        health.event(LOST, B, 4.0)
        assert [each.addresses for each in health.given_up(10.0)] == [(B,)]


def test_two_addresses_of_one_endpoint_are_counted_as_two() -> None:
    number = "tcp://10.0.0.9:1"
    health = connected(A, number)
    for lost in (A, number):
        health.event(LOST, lost, 1.0)
        health.event(RETRY, number, 1.0)
    assert health.given_up(2.0) == []
    for _ in range(2):
        health.event(UP, number, 3.0)
    assert health.up == 2
    for _ in range(2):
        health.event(LOST, number, 4.0)
    health.event(RETRY, number, 4.0)
    assert health.up == 0
    assert [each.addresses for each in health.given_up(10.0)] == [(number, A)], (
        "one of them was given up, but not known which"
    )
    health.removed(A)
    health.event(UP, number, 11.0)
    assert health.up == 1


def test_address_without_events_is_made_again_after_max_quiet() -> None:
    health = connected(ONE, quiet=30.0)
    health.added(TWO, 1.0)
    health.event(RETRY, TWO, 5.0)
    assert health.given_up(34.9) == []
    assert health.next_time() == 35.0
    assert health.given_up(35.0) == [GivenUp((TWO,), False)]
    assert health.given_up(64.9) == []
    health.event(UP, TWO, 64.9)
    assert health.given_up(1000.0) == []
    assert health.next_time() == NEVER_DUE


CONNECTIONS = (A, B, "tcp://c.example:1", ONE)
NUMBERS = {A: "tcp://10.0.1.1:1", B: "tcp://10.0.1.2:1", "tcp://c.example:1": "tcp://10.0.1.2:1"}


@given(st.lists(st.tuples(st.sampled_from(CONNECTIONS), st.sampled_from(("back", "given up", "late"))), max_size=30))
def test_no_connection_stays_given_up_after_any_losses(losses: list[tuple[str, str]]) -> None:
    """A model of libzmq: each connection has a name at the monitor, and is up, retried, or given up."""
    health = connected(*CONNECTIONS)
    names = {each: each for each in CONNECTIONS}
    state = dict.fromkeys(CONNECTIONS, "up")
    now = 0.0
    for address, how in losses:
        if state[address] == "up":
            health.event(LOST, names[address], now)
            state[address] = how
            if how != "given up":
                names[address] = NUMBERS.get(address, address)
                now += 0.05 * (how == "late")
                health.event(RETRY, names[address], now)
        elif state[address] != "given up":
            health.event(RETRY, names[address], now)
        now += 0.05
    for _ in range(50):
        now += 1.0
        for gone in health.given_up(now):
            for address in gone.addresses:
                names[address], state[address] = address, "back"
        for address in CONNECTIONS:
            if state[address] not in ("up", "given up"):
                health.event(RETRY, names[address], now)
                health.event(UP, names[address], now)
                state[address] = "up"
    assert set(state.values()) == {"up"}
    assert health.up == len(CONNECTIONS)


def test_removed_address_is_not_made_again_and_does_not_count() -> None:
    health = connected(ONE)
    health.removed(ONE)
    assert health.up == 0
    health.event(LOST, ONE, 1.0)
    assert health.given_up(100.0) == []
    health.event(UP, ONE, 101.0)
    assert health.up == 0
