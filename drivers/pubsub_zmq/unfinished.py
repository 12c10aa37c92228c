"""Ends connections that send a message without an end, because ZeroMQ keeps each part until the last one has arrived.

A message may have any number of parts, and each takes at least 64 bytes of memory for 2 bytes in the connection. The
limits of ZeroMQ count whole messages (its high-water mark) or one part (``ZMQ_MAXMSGSIZE``), and no call on the socket
returns anything of an unfinished one. So this module compares the bytes that the kernel has received in each connection
with the messages that were read from it.

ZeroMQ reports a subscription only when no other connection has it already, so a replica also brings bytes that are
never read. But a connection is in order: each message that was read proves that all before it were whole. Replicas send
hello requests, which are always reported.
"""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Final

from pubsub_lib.logs import logger
from pubsub_zmq.inflow_guard import end, is_of
from pubsub_zmq.reading_progress import ReadingProgress
from pubsub_zmq.subscription_budget import return_memory

_log = logger(__name__)

MAX_UNFINISHED: Final = 100_000 * 66
"""Bytes that one connection may bring without a message that is read. As many as the subscriptions of a replica of an
older version, or of a stranger, to 100,000 topics with names of 52 bytes, all of which another connection has already.
As parts without content they take 211 MB of memory."""
MAX_TOGETHER: Final = 2 * MAX_UNFINISHED
"""Bytes of all connections together, each without its first ``FREE``."""
FREE: Final = 64 * 1024
"""Bytes of a connection that do not count together with others: a replica's subscriptions to all buckets have 15 KB,
and the hello requests of its start little more."""
_MEMORY_AFTER: Final = 2.0
"""Seconds after the end of a connection when its memory is given back to the system. ZeroMQ has freed it by then."""


class Unfinished:
    """The connections of one port. One thread, which is not the one that reads the messages."""

    def __init__(
        self, port: int, progress: ReadingProgress, counts: MutableMapping[str, int], wake: Callable[[], None]
    ) -> None:
        """``counts``: its ``unfinished`` is the number of connections that were ended. ``wake`` makes the thread read
        all that waits, which it does not do by itself when nothing whole arrives.
        """
        self._counts = counts
        self._wake = wake
        self._port = port
        self._progress = progress
        self._emptied = 0
        self._received: Mapping[int, int] = {}
        self._read: dict[int, int] = {}
        self._open: dict[int, int] = {}
        """Connection -> bytes that it has brought and of which no message was read; without those that have none."""
        self._memory_at = float("inf")
        """When memory is to be given back."""
        self._waits = False
        """Whether bytes wait to be judged."""

    def look(self, received: Mapping[int, int], now: float) -> bool:
        """End the connections that must end. ``received``: the bytes of each connection, read from the kernel just now;
        also of connections to other ports. Returns whether bytes wait to be judged.
        """
        judged = self.judged(received)
        for descriptor in excess({each: size for each, size in judged.items() if is_of(each, self._port)}):
            self._end(descriptor, judged[descriptor])
            self._memory_at = min(self._memory_at, now + _MEMORY_AFTER)
        if now >= self._memory_at:
            self._memory_at = float("inf")
            return_memory()
        if self._waits:
            self._wake()
        return self._waits

    def judged(self, received: Mapping[int, int]) -> dict[int, int]:
        """The bytes until the call before this one of which no message was read although all that waited was read; more
        than ``FREE`` of a connection.
        """
        emptied = self._progress.emptied  # read after ``received``, so that all of it is older than the next one
        was_empty = emptied > self._emptied
        self._waits = self._waits and not was_empty
        judged = {}
        for descriptor, number in received.items():
            before = self._received.get(descriptor, 0)
            left = self._open.get(descriptor, 0)
            if number < before:  # another connection has the descriptor now
                before = left = 0
            grown = number - before
            if not grown and not left:
                continue
            total = self._progress.bytes_of(descriptor)
            read = total - self._read.get(descriptor, 0)
            self._read[descriptor] = total
            if self._progress.last_of(descriptor) > self._emptied:
                left = 0  # it arrived after all that was counted at the last look
            if was_empty and left - read > FREE:
                judged[descriptor] = left - read
            self._open[descriptor] = max(0, left + grown - read)
            self._waits = self._waits or (grown > 0 and self._open[descriptor] > FREE)
        self._open = {each: size for each, size in self._open.items() if size and each in received}
        self._received, self._emptied = received, emptied
        return judged

    def _end(self, descriptor: int, size: int) -> None:
        peer = end(descriptor)
        if peer is None:
            return
        self._counts["unfinished"] += 1
        self._open.pop(descriptor, None)
        _log.warning(
            "the connection from %s to port %d was ended: it sent %d bytes without a whole message, and a replica "
            "sends none; let a firewall refuse it if it is no replica",
            peer,
            self._port,
            size,
        )


def excess(sizes: Mapping[int, int]) -> list[int]:
    """The connections to end: those above ``MAX_UNFINISHED``, and of the others the largest until the rest is within
    ``MAX_TOGETHER``.
    """
    left = sum(sizes.values()) - FREE * len(sizes)
    chosen = []
    for descriptor in sorted(sizes, key=lambda each: -sizes[each]):
        if sizes[descriptor] <= MAX_UNFINISHED and left <= MAX_TOGETHER:
            break
        chosen.append(descriptor)
        left -= sizes[descriptor] - FREE
    return chosen
