"""The sending half of the polling driver. It sends nothing, because subscribers read the changelog."""

import threading
from collections.abc import Mapping

from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.driver_state import PublisherState


class PollingPublisher(Publisher):
    """Checks the contract's order of calls, so that a program's error shows with every driver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._life = PublisherState()
        self._unneeded = 0

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Nothing to bind or connect. Neither callback is ever called: each subscriber answers hello requests itself,
        from the store."""
        with self._lock:
            self._life.check_new()
            self._life.begin()

    def send_event(self, envelope: Envelope) -> None:
        """Nothing to do: the links are in the changelog already. Raises TransportError before ``initialize`` and after
        ``close``, as with any driver."""
        self._life.check_open()
        with self._lock:
            self._unneeded += 1

    def counters(self) -> Mapping[str, int]:
        """``sent`` stays 0; ``unneeded`` counts the calls of ``send_event``."""
        return {"sent": 0, "unneeded": self._unneeded}

    def close(self) -> None:
        """Reject further envelopes."""
        self._life.closed = True
