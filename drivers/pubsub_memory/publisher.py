"""The sending half of the ``memory`` driver."""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Final

from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.driver_state import PublisherState
from pubsub_lib.hello_requests import HelloRequests
from pubsub_lib.threads.start import ReadyThread
from pubsub_memory.bus import MemoryBus

_STOP: Final = 2.0  # seconds


class MemoryPublisher(Publisher):
    """Encodes in the sender's thread and puts frames on the bus. A separate thread answers hello requests."""

    def __init__(self, bus: MemoryBus, limits: Limits) -> None:
        self._bus = bus
        self._limits = limits
        self._life = PublisherState()
        self._asks = HelloRequests(limits)
        self._lock = threading.Lock()
        self._counts = {"sent": 0, "overflow": 0}
        self._thread: threading.Thread | None = None

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Join the bus. See :meth:`pubsub_lib.api.Publisher.initialize`."""
        with self._lock:
            self._life.check_new()
            ready = ReadyThread("pubsub-memory-asks")
            self._life.begin()
            self._thread = ready.thread
            ready.run(partial(self._asks.answer, on_hello_request, on_connected))
        self._bus.attach_desk(self)
        if self._life.closed:
            self._bus.detach_desk(self)

    def send_event(self, envelope: Envelope) -> None:
        """Put one envelope on the bus. See :meth:`pubsub_lib.api.Publisher.send_event`."""
        self._life.check_open()
        self._bus.send(*codec.encode(envelope, self._limits))
        with self._lock:
            self._counts["sent"] += 1

    def ask(self, frame: bytes) -> None:
        """Queue a hello request from the bus."""
        dropped = self._asks.put((frame,))
        with self._lock:
            self._counts["overflow"] += dropped

    def meet(self) -> None:
        """A subscriber joined the bus."""
        self._asks.connected()

    def counters(self) -> Mapping[str, int]:
        """See :meth:`pubsub_lib.api.Publisher.counters`."""
        return {**self._counts, **self._asks.counts}

    def close(self) -> None:
        """Leave the bus. See :meth:`pubsub_lib.api.Publisher.close`."""
        if self._life.inherited:
            return
        with self._lock:
            self._life.closed = True
            thread = self._thread
        self._bus.detach_desk(self)  # after ``closed``, which initialize() reads after it has joined
        self._asks.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP)
