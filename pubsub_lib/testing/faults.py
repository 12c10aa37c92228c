"""Fault injection for any driver: lose, repeat, reorder, delay and corrupt the messages of its subscribers.

The random choices come from a seed, so that a failed test can be repeated. The capabilities stay those of the wrapped
driver, because the library must survive the faults that the driver does not declare.
"""

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import ClassVar, Final

from pubsub_lib import contract
from pubsub_lib.api import Capabilities, Driver, DriverSettings, OnConnected, OnEnvelope, Publisher, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.driver_state import SubscriberState
from pubsub_lib.errors import FrameError
from pubsub_lib.fault_injection import PERFECT, Loss, Lossy
from pubsub_lib.logs import logger
from pubsub_lib.testing.forwarding import ForwardingSubscriber

_log = logger(__name__)

_STOP: Final = 2.0  # seconds


class FaultySubscriber(ForwardingSubscriber):
    """Any subscriber behind a lossy link. Hello replies pass the link, too. A separate thread delivers the envelopes,
    one at a time.
    """

    def __init__(self, inner: Subscriber, loss: Loss = PERFECT, seed: int = 0) -> None:
        super().__init__(inner)
        self._changed = threading.Condition()
        self._link: Lossy[Envelope | None] = Lossy(random.Random(seed), loss, corrupt=self._corrupt)
        self._ready: deque[Envelope | None] = deque()
        self._life = SubscriberState(self._changed, _log)

    def set_loss(self, loss: Loss) -> None:
        """Change the faults. Any thread."""
        with self._changed:
            self._link.loss = loss

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """As the wrapped subscriber's."""
        self._inner.initialize(self._receive, on_connected)
        self._life.initialize(on_envelope, on_connected)

    def daemonize(self) -> None:
        """As the wrapped subscriber's."""
        self._inner.daemonize()
        self._life.start("pubsub-faults", lambda: self._deliver)

    def counters(self) -> Mapping[str, int]:
        """The wrapped subscriber's, with ``lost`` and the number of each fault (``fault_drop`` …). Corrupted messages
        also count as ``truncated``."""
        with self._changed:
            faults = dict(self._link.counts)
            merged = Counter(self._inner.counters()) + Counter(self._life.counts)
            merged["lost"] += faults["drop"]
            return {
                **dict.fromkeys(self._inner.counters(), 0),
                **merged,
                **{f"fault_{k}": v for k, v in faults.items()},
            }

    def close(self) -> None:
        """As the wrapped subscriber's. Delayed messages are lost."""
        self._inner.close()
        self._life.close(self._changed.notify_all, _STOP)

    def _receive(self, envelope: Envelope) -> None:
        with self._changed:
            self._ready.extend(self._link.push(envelope, time.monotonic()))
            self._changed.notify_all()

    def _corrupt(self, envelope: Envelope | None, rng: random.Random) -> Envelope | None:
        """Decode the envelope's truncated bytes, as a receiver would: this counts an error and gives None."""
        if envelope is None:
            return None
        head, body = codec.encode(envelope)
        try:
            return codec.decode([head, body[: rng.randrange(len(body))]])
        except FrameError as error:
            self._life.counts[error.reason] += 1
            return None

    def _deliver(self) -> None:
        while True:
            with self._changed:
                while not self._ready and not self._life.closed:
                    self._ready.extend(self._link.due(time.monotonic()))
                    if not self._ready:
                        until = self._link.next_time()
                        self._changed.wait(None if until is None else max(0.0, until - time.monotonic()))
                if self._life.closed:
                    return
                envelope = self._ready.popleft()
            if envelope is not None:
                self._life.deliver(envelope)


def faulty(driver: type[Driver], loss: Loss = PERFECT, seed: int = 0) -> type[Driver]:
    """Return this driver with ``loss`` for its subscribers. Each subscriber has its own seed: seed, seed + 1 …"""
    wrapped, seeds = driver, iter(range(seed, seed + 2**31))

    class Faulty(Driver):
        """The wrapped driver behind a lossy link."""

        name: ClassVar[str] = f"faulty-{wrapped.name}"
        capabilities: ClassVar[Capabilities] = wrapped.capabilities

        @classmethod
        def publisher(cls, settings: DriverSettings) -> Publisher:
            """The wrapped driver's publisher."""
            return contract.publisher(wrapped, settings)

        @classmethod
        def subscriber(cls, settings: DriverSettings) -> Subscriber:
            """The wrapped driver's subscriber, with faults."""
            return FaultySubscriber(contract.subscriber(wrapped, settings), loss, next(seeds))

    return Faulty
