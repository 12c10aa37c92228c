"""The sending half of the ``memory`` driver."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.driver_state import PublisherState
from pubsub_lib.errors import FrameError
from pubsub_lib.logs import logger
from pubsub_lib.threads.start import ReadyThread
from pubsub_memory.bus import MemoryBus

_log = logger(__name__)

_MAX_REQUESTS: Final = 10_000
"""Maximum number of queued hello requests. Further ones are dropped and counted; their subscribers ask again."""
_STOP: Final = 2.0  # seconds


class MemoryPublisher(Publisher):
    """Encodes in the sender's thread and puts frames on the bus. A separate thread answers hello requests."""

    def __init__(self, bus: MemoryBus, limits: Limits) -> None:
        self._bus = bus
        self._limits = limits
        self._life = PublisherState()
        self._met = False
        self._changed = threading.Condition()
        self._asks: deque[bytes] = deque()
        self._counts: Counter[str] = Counter(sent=0, asks=0, callback_errors=0, overflow=0, foreign=0)
        self._thread: threading.Thread | None = None

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Join the bus. See :meth:`pubsub_lib.api.Publisher.initialize`."""
        with self._changed:
            self._life.check_new()
            ready = ReadyThread("pubsub-memory-asks")
            self._life.begin()
            self._thread = ready.thread
            ready.run(partial(self._answer, on_hello_request, on_connected))
        self._bus.attach_desk(self)

    def send_event(self, envelope: Envelope) -> None:
        """Put one envelope on the bus. See :meth:`pubsub_lib.api.Publisher.send_event`."""
        self._life.check_open()
        self._bus.send(*codec.encode(envelope, self._limits))
        with self._changed:
            self._counts["sent"] += 1

    def ask(self, frame: bytes) -> None:
        """Queue a hello request from the bus."""
        with self._changed:
            if len(self._asks) >= _MAX_REQUESTS:
                self._counts["overflow"] += 1
                return
            self._asks.append(frame)
            self._changed.notify()

    def meet(self) -> None:
        """A subscriber joined the bus."""
        with self._changed:
            self._met = True
            self._changed.notify()

    def counters(self) -> Mapping[str, int]:
        """See :meth:`pubsub_lib.api.Publisher.counters`."""
        with self._changed:
            return dict(self._counts)

    def close(self) -> None:
        """Leave the bus. See :meth:`pubsub_lib.api.Publisher.close`."""
        if self._life.inherited:
            return
        self._bus.detach_desk(self)
        with self._changed:
            self._life.closed = True
            self._asks.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP)

    def _answer(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asks or self._met or self._life.closed)
                if self._life.closed:
                    return
                met, self._met = self._met, False
                frame = self._asks.popleft() if self._asks else None
                self._counts["asks"] += frame is not None
            if met:
                self._call(on_connected)
            if frame is not None:
                try:
                    ask = codec.read_hello_request(frame, self._limits)
                except FrameError as error:
                    self._count(error.reason)
                    continue
                self._call(partial(on_hello_request, ask))

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except BaseException:  # noqa: BLE001 - a service's error must not end this thread
            self._count("callback_errors")
            _log.exception("a callback for a hello request or a new connection failed")

    def _count(self, name: str) -> None:
        with self._changed:
            self._counts[name] += 1
