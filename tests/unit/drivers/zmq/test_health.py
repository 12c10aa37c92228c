"""Connections given up for good are told from those that are tried again."""

from itertools import pairwise

import zmq

from pubsub_zmq.health import GRACE, GivenUp, Health

ONE, TWO = "tcp://10.0.0.1:1", "tcp://10.0.0.2:1"
UP = zmq.EVENT_HANDSHAKE_SUCCEEDED
LOST = zmq.EVENT_DISCONNECTED
RETRY = zmq.EVENT_CONNECT_RETRIED


def connected(*addresses: str, most: float = 2.0) -> Health:
    health = Health(0.1, most)
    for address in addresses:
        health.added(address)
        health.event(UP, address, 0.0)
    return health


def test_a_loss_that_is_retried_is_left_to_zeromq() -> None:
    health = connected(ONE)
    health.event(LOST, ONE, 1.0)
    health.event(RETRY, ONE, 1.0)
    assert health.given_up(100.0) == []
    assert health.next_time() == float("inf")
    assert health.up == 0
    health.event(UP, ONE, 2.0)
    assert health.up == 1
    assert health.counts == {"disconnected": 1, "reconnected": 1}


def test_a_loss_without_a_retry_is_given_up_and_others_are_left_alone() -> None:
    health = connected(ONE, TWO)
    health.event(LOST, ONE, 1.0)
    assert health.given_up(1.0) == []
    assert health.next_time() == 1.0 + GRACE
    assert health.given_up(1.0 + GRACE) == [GivenUp((ONE,), True)]
    assert health.given_up(100.0) == [], "it is made anew once"
    assert health.up == 1


def test_a_handshake_that_broke_is_given_up_but_was_never_up() -> None:
    health = Health(0.1, 2.0)
    health.added(ONE)
    health.event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, ONE, 1.0)
    health.event(LOST, ONE, 1.0)
    assert health.given_up(2.0) == [GivenUp((ONE,), False)]
    assert health.counts["disconnected"] == 0


def test_one_that_is_given_up_again_and_again_is_made_anew_ever_less_often() -> None:
    health = connected(ONE, most=2.0)
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
    assert health.next_time() == now + 100 + GRACE, "after a long good time it is made anew at once"


def test_a_name_is_recognized_by_its_port() -> None:
    name = "tcp://host:1"
    health = connected(name)
    health.event(LOST, name, 1.0)
    health.event(RETRY, "tcp://10.0.0.9:1", 1.0)
    assert health.given_up(100.0) == []
    health.event(LOST, "tcp://10.0.0.9:1", 200.0)
    assert [each.addresses for each in health.given_up(300.0)] == [(name,)]


def test_what_was_removed_is_not_made_anew_and_does_not_count() -> None:
    health = connected(ONE)
    health.removed(ONE)
    assert health.up == 0
    health.event(LOST, ONE, 1.0)
    assert health.given_up(100.0) == []
    health.event(UP, ONE, 101.0)
    assert health.up == 0
