"""The bounded queue of the sending thread, and the packing of its envelopes into batches."""

import threading
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pubsub_lib.core.codec import SHARED_BYTES
from pubsub_lib.errors import TransportError
from pubsub_redis.frames import encode_batch

WINDOW = 1000
"""Maximum number of envelopes that are reordered together, and so of envelopes of *other* topics that one may overtake.
It is bounded because a replica of everything must buffer the overtaking messages."""
FRAMING = 2 * 5
"""Maximum number of bytes with which a batch frames one envelope."""


class QueuedEnvelope(msgspec.Struct, frozen=True, gc=False):
    """One envelope as bytes, with its channel. ``hello``: it must keep its place among the envelopes of all topics."""

    channel: bytes
    head: bytes
    body: bytes
    hello: bool


class SendQueue:
    """A bounded queue. Many threads put, one takes. It accepts envelopes only while there is a connection."""

    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        self._limit = limit
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: list[QueuedEnvelope] = []
        self._woken = False
        self._refusal = "this publisher is not connected yet"
        self._closed = False
        self.accepted = 0
        self.lost = 0
        """Envelopes that were dropped because the connection was lost while they waited."""

    def put(self, item: QueuedEnvelope, wait: float) -> None:
        """Queue an item; wait up to ``wait`` seconds for room. Raises TransportError when the queue stays full, and
        without a connection."""
        with self._changed:
            if len(self._waiting) >= self._limit and not self._refusal:
                self._changed.wait_for(lambda: len(self._waiting) < self._limit or self._refusal, wait)
            if self._refusal:
                raise TransportError(self._refusal)
            if len(self._waiting) >= self._limit:
                raise TransportError(
                    f"the send queue is full: {self._limit} envelopes wait, and none was sent within {wait} s; send "
                    "fewer at once, or raise send_queue in [pubsub_redis]"
                )
            self._waiting.append(item)
            self.accepted += 1
            woken, self._woken = self._woken, True
        if not woken:
            self._wake()

    def take(self) -> list[QueuedEnvelope]:
        """Return all queued items, in order. Does not wait."""
        with self._changed:
            taken, self._waiting = self._waiting, []
            self._woken = False
            self._changed.notify_all()
        return taken

    def connected(self) -> None:
        """Accept envelopes from now on, unless closed."""
        with self._changed:
            if not self._closed:
                self._refusal = ""

    def disconnected(self, reason: str) -> None:
        """Drop the queued envelopes and refuse others, with this sentence."""
        with self._changed:
            self.lost += len(self._waiting)
            self._waiting.clear()
            if not self._closed:
                self._refusal = reason
            self._changed.notify_all()

    def close(self) -> None:
        """Accept no further envelope; queued ones can still be taken. Idempotent."""
        with self._changed:
            self._closed = True
            self._refusal = "this publisher is closed; make a new one"
            self._changed.notify_all()


def batches(waiting: Sequence[QueuedEnvelope], max_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (channel, message) for these envelopes. Envelopes of one channel share a message of at most ``max_bytes``
    and of at most 64 KiB; a larger one has a message of its own.

    The order within a channel is kept. No other envelope overtakes a hello and no hello overtakes another envelope,
    because a hello's sequences must be correct when it arrives.
    """
    max_bytes = min(max_bytes, SHARED_BYTES)
    for start in range(0, len(waiting), WINDOW):
        yield from _window(waiting[start : start + WINDOW], max_bytes)


def _window(window: Sequence[QueuedEnvelope], max_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    runs: dict[bytes, list[bytes]] = {}
    sizes: dict[bytes, int] = {}
    for item in window:
        channel, size = item.channel, len(item.head) + len(item.body) + FRAMING
        if item.hello:
            yield from _packed(runs)
            runs.clear()
            yield channel, encode_batch([item.head, item.body])
            continue
        run = runs.get(channel)
        if run is None:
            runs[channel], sizes[channel] = [item.head, item.body], size
        elif sizes[channel] + size <= max_bytes:
            run += item.head, item.body
            sizes[channel] += size
        else:
            yield channel, encode_batch(run)
            runs[channel], sizes[channel] = [item.head, item.body], size
    yield from _packed(runs)


def _packed(runs: dict[bytes, list[bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for channel, run in runs.items():
        yield channel, encode_batch(run)
