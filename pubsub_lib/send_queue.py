"""For publishers with a sending thread: its bounded queue, and the packing of queued messages into shared frames."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import TransportError

WINDOW = 1000
"""Maximum number of envelopes packed together, and so of messages of *other* topics that a message may overtake. It is
bounded because a replica of everything must buffer the overtaking messages."""


class QueuedMessage(msgspec.Struct, frozen=True, gc=False):
    """One envelope with its bytes. Its sender encodes it, and so gets the error at once when it is oversized."""

    envelope: Envelope
    head: bytes
    body: bytes


class SendQueue:
    """A bounded queue. Many threads put, one takes. ``group``: the driver's group in an INI file, which has the option
    ``send_queue``."""

    def __init__(self, limit: int, wake: Callable[[], None], group: str) -> None:
        self._limit = limit
        self._group = group
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: list[QueuedMessage] = []
        self._woken = False
        self._closed = False
        self.accepted = 0

    def put(self, item: QueuedMessage, wait: float) -> None:
        """Queue an item; wait up to ``wait`` seconds for room. Raises TransportError when the queue stays full, or when
        closed."""
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
                    f"the send queue is full: {self._limit} envelopes wait, and none was sent within {wait} s; send "
                    f"fewer at once, or raise send_queue in [{self._group}]"
                )
            self._waiting.append(item)
            self.accepted += 1
            woken, self._woken = self._woken, True
        if not woken:
            self._wake()

    def pass_by(self) -> bool:
        """True when the queue is empty: one envelope may be sent past it, and is counted as accepted here."""
        with self._changed:
            if self._waiting or self._closed:
                return False
            self.accepted += 1
            return True

    def take(self) -> list[QueuedMessage]:
        """Return all queued items, in order. Does not wait."""
        with self._changed:
            taken, self._waiting = self._waiting, []
            self._woken = False
            self._changed.notify_all()
        return taken

    def close(self) -> None:
        """Accept no further item; queued items can still be taken. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def number_lost(dropped: Sequence[QueuedMessage]) -> int:
    """The number of these envelopes that a publisher counts as lost: those of messages. A hello has no change, and the
    next one replaces it."""
    return sum(item.envelope.hello is None for item in dropped)


def frames(waiting: Sequence[QueuedMessage], limits: Limits) -> Iterator[tuple[bytes, bytes]]:
    """Yield the frames for these envelopes. Consecutive messages of one publisher on one topic share a frame while it
    has room.

    A single envelope is sent as it is. The order within a topic is kept. No message overtakes a hello and no hello
    overtakes a message, because a hello's sequences must be correct when it arrives.
    """
    for head, body, _ in counted_frames(waiting, limits):
        yield head, body


def counted_frames(waiting: Sequence[QueuedMessage], limits: Limits) -> Iterator[tuple[bytes, bytes, int]]:
    """As :func:`frames`, each with the number of its envelopes as :func:`number_lost` counts them."""
    for start in range(0, len(waiting), WINDOW):
        window = waiting[start : start + WINDOW]
        if len(window) == 1:
            yield window[0].head, window[0].body, number_lost(window)
        else:
            yield from _shared(window, limits)


def _shared(window: Sequence[QueuedMessage], limits: Limits) -> Iterator[tuple[bytes, bytes, int]]:
    runs: dict[tuple[str, str], _Run] = {}
    max_bytes = min(limits.max_frame_bytes, codec.SHARED_BYTES)
    for item in window:
        if item.envelope.hello is not None:
            for run in runs.values():
                yield run.frame()
            runs.clear()
            yield item.head, item.body, 0
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
        """Add the message, unless the frame is full or the sequence has a gap. Return whether it was added."""
        # A body contains its messages and more, so that the sum of the bodies is never below the shared body's size.
        size = self._size + len(item.body)
        envelope = item.envelope
        first = self._first.envelope
        if size > max_bytes or envelope.sequence != self._next:
            return False
        if envelope.service != first.service or envelope.store_id != first.store_id:
            return False
        if not self._messages:
            self._messages.append(codec.messages_of(first, self._first.body))
        self._messages.append(codec.messages_of(envelope, item.body))
        count = len(envelope.messages)
        self._count += count
        self._next += count
        self._size = size
        return True

    def frame(self) -> tuple[bytes, bytes, int]:
        """Return topic frame, body and number of envelopes. The messages are not encoded again: their senders' bytes
        are joined."""
        first = self._first
        if not self._messages:
            return first.head, first.body, 1
        return first.head, codec.join(first.envelope, self._count, self._messages), len(self._messages)
