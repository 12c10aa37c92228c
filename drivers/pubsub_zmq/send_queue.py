"""What waits for the sending thread: a bounded queue, and how its messages come to share frames."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import TransportError

WINDOW = 1000
"""Envelopes that are looked at together. A message may overtake at most so many of *other* topics: a replica of
everything lets them wait, and its buffer is bounded."""


class QueuedMessage(msgspec.Struct, frozen=True, gc=False):
    """One envelope with its bytes; encoded by its sender, who is told at once when it is oversized."""

    envelope: Envelope
    head: bytes
    body: bytes


class SendQueue:
    """Bounded; many threads put, one takes."""

    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        self._limit = limit
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: list[QueuedMessage] = []
        self._told = False
        self._closed = False
        self.accepted = 0

    def put(self, item: QueuedMessage, wait: float) -> None:
        """Queue one; wait up to ``wait`` seconds for room. Raises TransportError when there is none, or when closed."""
        with self._changed:
            if len(self._waiting) >= self._limit and not self._closed:
                until = time.monotonic() + wait
                while len(self._waiting) >= self._limit and not self._closed:
                    left = until - time.monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        break
            if self._closed:
                raise TransportError("this publisher is closed; make a new one")
            if len(self._waiting) >= self._limit:
                raise TransportError(
                    f"{self._limit} envelopes wait to be sent and none left within {wait} s; send less at once, or "
                    "raise send_queue in [pubsub_zmq]"
                )
            self._waiting.append(item)
            self.accepted += 1
            told, self._told = self._told, True
        if not told:
            self._wake()

    def pass_by(self) -> bool:
        """True when nothing waits, so that one envelope may be sent past this queue; it is counted as accepted."""
        with self._changed:
            if self._waiting or self._closed:
                return False
            self.accepted += 1
            return True

    def take(self) -> list[QueuedMessage]:
        """Everything that waits, in order; does not wait itself."""
        with self._changed:
            taken, self._waiting = self._waiting, []
            self._told = False
            self._changed.notify_all()
        return taken

    def close(self) -> None:
        """Accept no more; what waits can still be taken. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def frames(waiting: Sequence[QueuedMessage], limits: Limits) -> Iterator[tuple[bytes, bytes]]:
    """The frames for these envelopes: consecutive messages of one publisher on one topic share one as far as it holds.

    One that waits alone goes as it is. Order within a topic is kept, and no hello is overtaken or overtakes: what it
    says of sequences must be true when it comes.
    """
    for start in range(0, len(waiting), WINDOW):
        window = waiting[start : start + WINDOW]
        if len(window) == 1:
            yield window[0].head, window[0].body
        else:
            yield from _shared(window, limits)


def _shared(window: Sequence[QueuedMessage], limits: Limits) -> Iterator[tuple[bytes, bytes]]:
    runs: dict[tuple[str, str], _Run] = {}
    max_bytes = min(limits.max_frame_bytes, codec.SHARED_BYTES)
    for item in window:
        if item.envelope.hello is not None:
            for run in runs.values():
                yield run.frame()
            runs.clear()
            yield item.head, item.body
            continue
        key = (item.envelope.uuid, item.envelope.topic)
        found = runs.get(key)
        if found is not None and not found.takes(item, max_bytes):
            yield found.frame()
            found = None
        if found is None:
            runs[key] = _Run(item)
    for run in runs.values():
        yield run.frame()


class _Run:
    """Consecutive messages of one topic that will share a frame."""

    __slots__ = ("_count", "_first", "_messages", "_next", "_size")

    def __init__(self, first: QueuedMessage) -> None:
        self._first = first
        self._messages: list[bytes] = []
        self._count = len(first.envelope.messages)
        self._next = first.envelope.sequence + self._count
        self._size = len(first.body)

    def takes(self, item: QueuedMessage, max_bytes: int) -> bool:
        """Take it along, unless the frame is full or the sequence has a gap."""
        # A body is its messages and what is around them, so that the sum is never below the shared body's size.
        size = self._size + len(item.body)
        envelope = item.envelope
        if size > max_bytes or envelope.sequence != self._next or envelope.service != self._first.envelope.service:
            return False
        if not self._messages:
            self._messages.append(codec.messages_of(self._first.envelope, self._first.body))
        self._messages.append(codec.messages_of(envelope, item.body))
        count = len(envelope.messages)
        self._count += count
        self._next += count
        self._size = size
        return True

    def frame(self) -> tuple[bytes, bytes]:
        """Topic frame and body. Nothing is encoded again: the bytes of the messages are those of their senders."""
        first = self._first
        if not self._messages:
            return first.head, first.body
        return first.head, codec.join(first.envelope, self._count, self._messages)
