"""The thread that watches a publisher's connections: it counts them, and ends those beyond their budget of bytes."""

import time
from collections.abc import Callable, Mapping
from typing import Final

import zmq

from pubsub_lib.driver_state import PublisherState
from pubsub_lib.logs import logger
from pubsub_zmq.peer_budget import PeerBudget
from pubsub_zmq.sockets import Monitor, Waker

_log = logger(__name__)

_AGAIN: Final = 1.0
"""Seconds after an error."""


class PeerWatch:
    """Its thread does not use the publisher's socket, so it also works while that socket takes in subscriptions."""

    def __init__(self, address: str, budget: int, life: PublisherState, on_connected: Callable[[], None]) -> None:
        self._address = address
        self._life = life
        self._on_connected = on_connected
        self._budget = PeerBudget(address, budget)
        self._counts = dict.fromkeys(("connected", "disconnected"), 0)

    def counters(self) -> Mapping[str, int]:
        """``connected`` and ``disconnected`` subscribers, and ``excessive`` connections, which it ended. Any thread."""
        return {**self._counts, "excessive": self._budget.ended}

    def run(self, monitor: Monitor, stop: Waker, subscribed: Callable[[], int]) -> None:
        """The thread; ends after the publisher was closed and ``stop`` woken. The caller closes both.

        ``subscribed`` returns the bytes of all different subscriptions.
        """
        poller = zmq.Poller()
        poller.register(monitor.socket, zmq.POLLIN)
        poller.register(stop.fileno(), zmq.POLLIN)
        while not self._life.closed:
            try:
                poller.poll(self._budget.wait())
                for event, number in monitor.numbered():
                    self._note(event)
                    self._budget.event(event, number)
                self._budget.check(subscribed())
            except Exception:  # noqa: BLE001 - without this thread, no limit would hold
                _log.exception("the thread that watches the connections of %s continues after an error", self._address)
                time.sleep(_AGAIN)

    def _note(self, event: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._counts["connected"] += 1
            # Its subscriptions may arrive later. Then the publisher finds them, unless another subscriber has the same
            # ones. The subscribers that were connected before get one hello more than needed.
            self._on_connected()
        elif event == zmq.EVENT_DISCONNECTED:
            self._counts["disconnected"] += 1
