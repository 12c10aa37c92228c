"""The sending half of the polling driver: there is nothing to send, because subscribers read the changelog."""

import os
import threading
from collections.abc import Mapping

from pubsub_lib.api import OnAsk, Publisher
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.errors import TransportError


class PollingPublisher(Publisher):
    """Keeps the contract's order of calls, so that a program's mistakes show whatever the driver is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0  # 0: not initialized
        self._closed = False
        self._unneeded = 0

    def initialize(self, on_ask: OnAsk) -> None:
        """Nothing to bind; ``on_ask`` is never called, each subscriber answers itself from the store."""
        with self._lock:
            if self._pid or self._closed:
                raise TransportError("this publisher was initialized before; make a new one")
            self._pid = os.getpid()

    def send_event(self, envelope: Envelope) -> None:
        """Nothing to do: the links are in the changelog already. Raises TransportError as any driver's would."""
        if self._pid != os.getpid():
            raise TransportError(
                "this publisher was initialized in another process; make one after the fork"
                if self._pid
                else "this publisher is not initialized; call initialize() first"
            )
        with self._lock:
            if self._closed:
                raise TransportError("this publisher is closed; make a new one")
            self._unneeded += 1

    def counters(self) -> Mapping[str, int]:
        """``sent`` stays 0; ``unneeded`` counts the envelopes that were handed over."""
        return {"sent": 0, "unneeded": self._unneeded}

    def close(self) -> None:
        """Refuse further envelopes."""
        if self._pid in (0, os.getpid()):  # else a fork's copy, whose lock is the parent's
            with self._lock:
                self._closed = True
