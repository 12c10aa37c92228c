"""The sending half of the ``memory`` driver."""

import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from pubsub_lib.api import OnAsk, Publisher
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import FrameError, TransportError
from pubsub_memory.bus import MemoryBus

_log = logging.getLogger(__name__)

_ASKS: Final = 10_000
"""Questions that wait; further ones are dropped and counted, their askers ask again."""
_STOP: Final = 2.0  # seconds


class MemoryPublisher(Publisher):
    """Encodes in the sender's thread and puts frames on the bus; questions are answered on a thread of its own."""

    def __init__(self, bus: MemoryBus, limits: Limits) -> None:
        self._bus = bus
        self._limits = limits
        self._pid = 0  # 0: not initialized
        self._on_ask: OnAsk | None = None
        self._changed = threading.Condition()
        self._asks: deque[bytes] = deque()
        self._closed = False
        self._counts: Counter[str] = Counter(sent=0, asks=0, callback_errors=0, overflow=0, foreign=0)
        self._thread: threading.Thread | None = None

    def initialize(self, on_ask: OnAsk) -> None:
        """Join the bus. See :meth:`pubsub_lib.api.Publisher.initialize`."""
        with self._changed:
            if self._pid or self._closed:
                raise TransportError("this publisher was initialized before; make a new one")
            self._pid = os.getpid()
            self._on_ask = on_ask
            self._thread = threading.Thread(target=self._answer, name="pubsub-memory-asks", daemon=True)
        self._bus.attach_desk(self)
        self._thread.start()

    def send_event(self, envelope: Envelope) -> None:
        """Put one envelope on the bus. See :meth:`pubsub_lib.api.Publisher.send_event`."""
        if self._pid != os.getpid():
            raise TransportError(
                "this publisher was initialized in another process; make one after the fork"
                if self._pid
                else "this publisher is not initialized; call initialize() first"
            )
        if self._closed:
            raise TransportError("this publisher is closed; make a new one")
        self._bus.send(*codec.encode(envelope, self._limits))
        with self._changed:
            self._counts["sent"] += 1

    def ask(self, frame: bytes) -> None:
        """Take a question from the bus."""
        with self._changed:
            if len(self._asks) >= _ASKS:
                self._counts["overflow"] += 1
                return
            self._asks.append(frame)
            self._changed.notify()

    def counters(self) -> Mapping[str, int]:
        """See :meth:`pubsub_lib.api.Publisher.counters`."""
        with self._changed:
            return dict(self._counts)

    def close(self) -> None:
        """Leave the bus. See :meth:`pubsub_lib.api.Publisher.close`."""
        if self._pid not in (0, os.getpid()):
            return  # a fork's copy: the locks and the thread are the parent's
        self._bus.detach_desk(self)
        with self._changed:
            self._closed = True
            self._asks.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread.ident is not None and thread is not threading.current_thread():
            thread.join(_STOP)

    def _answer(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asks or self._closed)
                if self._closed:
                    return
                frame = self._asks.popleft()
                self._counts["asks"] += 1
            try:
                ask = codec.read_ask(frame, self._limits)
            except FrameError as error:
                self._count(error.reason)
                continue
            try:
                assert self._on_ask is not None
                self._on_ask(ask)
            except BaseException:  # noqa: BLE001 - a service's fault must not silence this publisher for good
                self._count("callback_errors")
                _log.exception("answering a subscriber's question failed")

    def _count(self, name: str) -> None:
        with self._changed:
            self._counts[name] += 1
