"""The transport between the store and the replicas of a :class:`pubsub_lib.testing.local.Local`: a publisher and
subscribers without threads. The messages are the same bytes as in production, numbered and framed by the same code.
"""

import math
import random
import threading
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.driver_state import COUNTED
from pubsub_lib.errors import FrameError, StoreError
from pubsub_lib.fault_injection import Loss, Lossy
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store
from pubsub_lib.subscriptions import Subscriptions
from pubsub_lib.testing.local_time import LocalTime

_MAX_REQUESTS: Final = 64
"""Maximum number of open hello requests of a subscriber."""

Frames = tuple[bytes, bytes]


class LocalSubscriber(Subscriber):
    """One replica's end of the wire, behind a lossy link. Delivers when the local time runs it."""

    def __init__(self, wire: "LocalWire", loss: Loss, rng: random.Random) -> None:
        self._wire = wire
        self._rng = rng
        self._lock = threading.Lock()
        self._link: Lossy[Frames] = Lossy(rng, loss, corrupt=_cut)
        self._inbox: deque[Frames] = deque()
        self._subscriptions = Subscriptions(_MAX_REQUESTS)
        self._on_envelope: OnEnvelope = _ignore_envelope
        self._on_connected: OnConnected = _ignore_connection
        self._counts = Counter(dict.fromkeys((*COUNTED, "lost"), 0))

    def set_loss(self, loss: Loss) -> None:
        """Change the faults."""
        with self._lock:
            self._link.loss = loss

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """See :class:`pubsub_lib.api.Subscriber`, also for the other methods."""
        self._on_envelope = on_envelope
        self._on_connected = on_connected

    def register_topic(self, topic: str) -> None:
        """Takes effect at once."""
        with self._lock:
            self._subscriptions.add(topic)

    def unregister_topic(self, topic: str) -> None:
        """Takes effect at once."""
        with self._lock:
            self._subscriptions.discard(topic)

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """The reply comes over the same lossy link."""
        with self._lock:
            self._subscriptions.add_replies(nonce)
        self._wire.ask(codec.read_hello_request(codec.hello_request_frame(nonce, topics)))

    def daemonize(self) -> None:
        """Start to receive."""
        self._wire.join(self)

    def counters(self) -> Mapping[str, int]:
        """The counters that the API requires, and ``lost``: messages that the link dropped on purpose."""
        with self._lock:
            return {**self._counts, "lost": self._link.counts["drop"]}

    def close(self) -> None:
        """Idempotent."""
        self._wire.leave(self)

    def take(self, frames: Frames, now: float) -> None:
        """Queue a message if its topic is subscribed. Any thread."""
        if self._subscriptions.matches(frames[0]):
            with self._lock:
                self._inbox.extend(self._link.push(frames, now))

    def run(self, now: float) -> bool:
        """Deliver the messages that have arrived."""
        with self._lock:
            self._inbox.extend(self._link.due(now))
            arrived = list(self._inbox)
            self._inbox.clear()
        for frames in arrived:
            try:
                envelope = codec.decode(frames)
            except FrameError as error:
                self._counts[error.reason] += 1
            else:
                self._counts["received"] += 1
                self._on_envelope(envelope)
        return bool(arrived)

    def next_time(self) -> float:
        """The time at which the next delayed message arrives."""
        with self._lock:
            at = -math.inf if self._inbox else self._link.next_time()
        return math.inf if at is None else at


class LocalWire:
    """The store's publisher and its subscribers."""

    def __init__(self, settings: Settings, store: Store, time: LocalTime, rng: random.Random) -> None:
        self._store = store
        self._time = time
        self._lock = threading.RLock()
        self._core = Sequencer(
            settings.service_name, f"{rng.getrandbits(128):032x}", settings.timing, settings.limits, time.now()
        )
        self._listening: tuple[LocalSubscriber, ...] = ()
        store.on_commit(self.publish)
        time.add(self)

    def join(self, subscriber: LocalSubscriber) -> None:
        """Start to send to this subscriber."""
        self._listening = (*self._listening, subscriber)
        self._time.add(subscriber)
        with self._lock:
            self._core.connected(self._time.now())

    def leave(self, subscriber: LocalSubscriber) -> None:
        """Stop to send to this subscriber. Idempotent."""
        self._listening = tuple(other for other in self._listening if other is not subscriber)
        self._time.remove(subscriber)

    def publish(self, links: Sequence[Link]) -> None:
        """Send the links of a committed transaction. Called by the store, in the writer's thread."""
        with self._lock:
            self._send(self._core.publish(links, self._time.now()))

    def ask(self, ask: HelloRequest) -> None:
        """Answer a replica's hello request."""
        with self._lock:
            self._core.hello_requested(ask, self._time.now())
            self._send_hellos()

    def run(self, now: float) -> bool:
        """Read the store's heads and send hellos, as far as due."""
        with self._lock:
            reads = self._core.wants_reading(now)
            if reads:
                self._core.begin_reading()
                self._read_heads(now)
            return self._send_hellos() or reads

    def _read_heads(self, now: float) -> None:
        try:
            heads = self._core.heads_at(self._store.read_heads(()).store, now) or self._store.read_heads([ALL])
        except StoreError:
            self._core.heads_failed(now)
        else:
            self._core.heads_read(heads, now, now)

    def _send_hellos(self) -> bool:
        sent = False
        while (hello := self._core.next_hello(self._time.now())) is not None:
            self._send([hello])
            sent = True
        return sent

    def next_time(self) -> float:
        """The time of the next hello or reading."""
        with self._lock:
            return self._core.next_time()

    def _send(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            frames = codec.encode(envelope)
            for subscriber in self._listening:
                subscriber.take(frames, self._time.now())


def _cut(frames: Frames, rng: random.Random) -> Frames:
    head, body = frames
    return head, body[: rng.randrange(len(body))]


def _ignore_envelope(envelope: Envelope) -> None:
    """The callback before ``initialize``."""


def _ignore_connection() -> None:
    """The callback before ``initialize``."""
