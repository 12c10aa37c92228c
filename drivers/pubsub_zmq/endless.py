"""Decides which of a subscriber's connections send a message without an end. Does no I/O.

ZeroMQ keeps each part of a message until the last one has arrived, in at least 64 bytes of memory for 2 bytes in the
connection. Its limits count whole messages, or one part. So this module compares the bytes that ZeroMQ has taken from
each connection with the messages that were read from it; but it does not count the bytes of messages, which would cost
something for each.

Instead: a connection is in order, so a message of it that was read proves that all before it were whole. One that
brought ``WATCHED`` bytes since the last proof is watched: from then on the receiver reports the connection of each
message that it reads, until one message proves the bytes of this connection. That is the next one after all was read
that ZeroMQ held when the bytes were counted, so it takes one message of a busy connection. When a connection brought
more than ``maximum`` bytes while it was watched, and none of its messages was read although all that ZeroMQ held was
read, no message ended in these bytes.

All calls are made by the thread that reads the socket, so that they are in order with its readings.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

WATCHED: Final = 1024 * 1024
"""Bytes that a connection may bring after the last proof before it is watched. Hellos between few changes need less."""
_FRAMES: Final = 3
"""Maximum of bytes without a whole message, in ``max_frame_bytes``. ZeroMQ accepts frames of twice that, a message has
a short frame before, and 8 KiB of what was taken from the connection can still wait to be decoded."""


class Brought(NamedTuple):
    """The number of bytes that ZeroMQ has taken from a connection until now: between these two."""

    least: int
    most: int


class _Connection(msgspec.Struct):
    """Numbers of bytes since the connection was made."""

    proved: int = 0
    """Bytes of whole messages, at least."""
    start: int = 0
    """While watched: all messages that were read until now had ended before this byte."""


class Endless:
    """The connections of one socket, by their descriptors."""

    def __init__(self, max_frame_bytes: int, receive_hwm: int) -> None:
        """``receive_hwm``: the number of whole messages that ZeroMQ holds of each connection."""
        self.maximum = max(WATCHED, _FRAMES * max_frame_bytes)
        """Bytes that a watched connection may bring without a whole message."""
        # ZeroMQ reads one message of each connection in turn. One more is between its queue and the reader. Twice,
        # because a connection that ends changes the order.
        self._held = 2 * (receive_hwm + 1)
        self._connections: dict[int, _Connection] = {}
        self.watched: set[int] = set()
        """While there are any, :meth:`read` must be called for each message."""
        self._fresh: set[int] = set()
        """Connections of which a message was read since the last look."""
        self._counted: dict[int, int] = {}
        """The least bytes of each connection when they were counted last."""
        self._left = 0
        """Number of messages to read until all are read that ZeroMQ held then."""

    def forget(self, descriptor: int) -> None:
        """The connection has ended, or another one has its descriptor now."""
        self._connections.pop(descriptor, None)
        self.watched.discard(descriptor)
        self._fresh.discard(descriptor)
        self._counted.pop(descriptor, None)

    def read(self, descriptor: int | None) -> None:
        """A message of this connection was read; None: of one that has ended."""
        if self._left:
            self._left -= 1
            proves = False
        else:
            proves = descriptor in self._counted
        if descriptor not in self.watched:
            return
        if proves:
            self._connections[descriptor].proved = self._counted[descriptor]
            self.watched.discard(descriptor)
        else:
            self._fresh.add(descriptor)

    def look(self, brought: Mapping[int, Brought], connections: int, *, empty: bool) -> dict[int, int]:
        """The connections to end, with their bytes. ``brought``: those of all connections, counted just now. ``empty``:
        afterwards nothing waited to be read. ``connections``: their number, with those that were not counted.
        """
        if not self.watched:
            self._left = 0  # messages were not counted
        for descriptor, (least, most) in brought.items():
            known = self._connections.setdefault(descriptor, _Connection())
            if descriptor not in self.watched and least - known.proved > WATCHED:
                self.watched.add(descriptor)
                known.start = most
            elif descriptor in self._fresh:
                known.start = most
        self._fresh.clear()
        if empty:
            self._count(brought, 0)
        if self._left:
            return {}
        sizes = {each: self._counted.get(each, 0) - self._connections[each].start for each in self.watched}
        if not empty:
            self._count(brought, self._held * max(connections, len(brought)))
        return {each: size for each, size in sizes.items() if size > self.maximum}

    def _count(self, brought: Mapping[int, Brought], left: int) -> None:
        self._counted = {descriptor: each.least for descriptor, each in brought.items()}
        self._left = left
