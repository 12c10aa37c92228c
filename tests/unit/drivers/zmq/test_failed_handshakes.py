"""A handshake that fails at one address hides the losses of no other one."""

import logging
import threading
from collections import deque
from unittest.mock import Mock

import pytest
import zmq

from pubsub_lib.core.limits import Limits
from pubsub_lib.curve_keys import new_pair
from pubsub_lib.driver_state import SubscriberState
from pubsub_zmq.connection_monitor import GivenUp
from pubsub_zmq.options import ZmqOptions
from pubsub_zmq.receiver import Receiver
from pubsub_zmq.sockets import REFUSED

ONE, OTHER, RESOLVED = "tcp://localhost:7001", "tcp://localhost:7002", "tcp://127.0.0.1:7001"


class Received:
    """A receiver with keys, and connections to both addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        life = SubscriberState(threading.Lock(), logging.getLogger("pubsub_zmq.test"), ("revived", "refused"))
        self._orders: deque[tuple[str, str]] = deque()
        pins = dict.fromkeys((ONE, OTHER), new_pair().public)
        self._receiver = Receiver(Limits(), ZmqOptions(), self._orders, deque(), life, pins)
        self._sub = Mock()
        self._patch, self._log = monkeypatch, caplog
        self.order("connect", ONE)
        self.order("connect", OTHER)

    def order(self, verb: str, address: str) -> None:
        self._orders.append((verb, address))
        self._receiver._carry_out(self._sub)

    def events(self, endpoint: str, *kinds: int) -> None:
        self._receiver._receive([(int(kind), endpoint, 0) for kind in kinds])

    def logs_the_end_of(self, address: str) -> bool:
        """Whether the log names this connection, which ZeroMQ gave up."""
        self._log.clear()
        self._patch.setattr(self._receiver._health, "given_up", lambda now: [GivenUp((address,), True)])
        self._receiver._keep_up(self._sub)
        return f"ZeroMQ gave up {address}" in self._log.text


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Received:
    return Received(monkeypatch, caplog)


def test_the_loss_of_a_healthy_connection_is_logged_while_another_handshake_fails(received: Received) -> None:
    received.events(ONE, REFUSED)
    assert received.logs_the_end_of(OTHER)
    assert not received.logs_the_end_of(ONE), "the failed handshake is logged already"
    received.events(ONE, zmq.EVENT_HANDSHAKE_SUCCEEDED)
    assert received.logs_the_end_of(ONE)


def test_an_address_that_left_with_a_failed_handshake_is_logged_when_it_returns(received: Received) -> None:
    received.events(ONE, REFUSED)
    received.order("disconnect", ONE)
    received.events(ONE, REFUSED)  # it was on its way
    received.order("connect", ONE)
    assert received.logs_the_end_of(ONE)


def test_a_handshake_fails_under_the_resolved_name_of_an_address(
    received: Received, caplog: pytest.LogCaptureFixture
) -> None:
    received.events(ONE, zmq.EVENT_DISCONNECTED)
    received.events(RESOLVED, zmq.EVENT_CONNECT_RETRIED, REFUSED, REFUSED)
    assert caplog.text.count("refuses the key of this client") == 1
    assert not received.logs_the_end_of(ONE)
    received.order("disconnect", ONE)
    received.order("connect", ONE)
    assert received.logs_the_end_of(ONE)
