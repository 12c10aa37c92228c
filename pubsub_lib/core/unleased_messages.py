"""Messages of publishers whose lease a replica does not know: they wait for a reading of the directory (rule 14).

Hellos do not wait. Their heads may cause a delta, so of all these publishers together the heads of one hello are used
for each pause: a program can take a new UUID for each hello.
"""

from collections import deque
from typing import Final

import msgspec

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.leased_publishers import LeasedPublishers
from pubsub_lib.core.provoked_reads import FIRST_PAUSE, FORGET, MAX_PAUSE
from pubsub_lib.core.reorder_buffer import size_of
from pubsub_lib.core.tracker_counters import Counters

MAX_MESSAGES: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum number and size of the messages of all publishers together that wait; the oldest is dropped first."""
KEPT: Final = 3.0
"""Seconds for which a message waits at least, while there is room. A service may send before its lease is stored, and a
reading that began before that does not show the lease."""


class UnleasedMessages:
    """The messages of one replica that wait, in the order of their arrival. Not thread-safe."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._held: deque[tuple[Envelope, float, int]] = deque()
        """Each with the time of its arrival and its size."""
        self.messages = 0
        """The number of messages that wait."""
        self.size = 0
        """Their size, as :func:`.reorder_buffer.size_of` counts it."""
        self._pause = FIRST_PAUSE
        """Seconds of the next pause: doubled with each, up to ``MAX_PAUSE``. The first one again after ``FORGET``, or
        when a message that waited is used."""
        self._heads_from = float("-inf")
        """When the heads of the next hello are used."""

    def hold(self, envelope: Envelope, now: float) -> Envelope | None:
        """Keep a message, in place of the oldest ones if there is no room. Of a hello, which does not wait, return the
        part to be used: not the sequences, which would show as lost what waits here; and during a pause no heads.
        """
        if envelope.hello is not None:
            hello = msgspec.structs.replace(envelope.hello, sequences={})
            if (hello.heads or hello.store is not None) and not self._use_heads(now):
                hello = msgspec.structs.replace(hello, heads={}, store=None)
            return msgspec.structs.replace(envelope, hello=hello)
        self._add((envelope, now, sum(size_of(message.link) for message in envelope.messages)))
        while self.messages > MAX_MESSAGES or self.size > MAX_BYTES:
            self._drop(self._held.popleft())
        return None

    def taken(self, leased: LeasedPublishers, now: float) -> list[Envelope]:
        """The directory was read. Remove and return the messages of publishers with a lease, and drop the others that
        have waited for ``KEPT``. For those that still wait a further reading may become due.
        """
        held, self._held = self._held, deque()
        self.messages = self.size = 0
        taken: list[Envelope] = []
        for item in held:
            envelope, arrived, _ = item
            if envelope.uuid in leased.live:
                taken.append(envelope)
                self._pause = FIRST_PAUSE
            elif now - arrived < KEPT:
                self._add(item)
                leased.may_be_used(envelope.uuid, now)
            else:
                self._counters.unleased += len(envelope.messages)
        return taken

    def _use_heads(self, now: float) -> bool:
        if now < self._heads_from:
            return False
        if now >= self._heads_from + FORGET:
            self._pause = FIRST_PAUSE
        self._heads_from = now + self._pause
        self._pause = min(2 * self._pause, MAX_PAUSE)
        return True

    def _add(self, item: tuple[Envelope, float, int]) -> None:
        self._held.append(item)
        self.messages += len(item[0].messages)
        self.size += item[2]

    def _drop(self, item: tuple[Envelope, float, int]) -> None:
        self.messages -= len(item[0].messages)
        self.size -= item[2]
        self._counters.unleased += len(item[0].messages)
