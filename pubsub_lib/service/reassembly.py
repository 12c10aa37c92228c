"""Reassembles links from the workers' messages: a large link is sent as a run of messages."""

from collections import OrderedDict
from typing import Final

import msgspec

from pubsub_lib.core.envelope import Envelope, Message, merge
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Link, Point
from pubsub_lib.core.reorder_buffer import CHANGE_OVERHEAD, size_of

MAX_RUNS: Final = 64
"""Maximum number of incomplete runs; the oldest is dropped for a newer one. Its worker died, or lost a part."""
MAX_WORKERS: Final = 10_000
"""Maximum number of pairs of worker and topic whose last sequence is kept."""


BUDGET: Final = 4
"""The parts of all incomplete runs have at most the size of this number of the largest transactions."""


class _Run(msgspec.Struct):
    parts: dict[int, Message]
    size: int = 0


class Reassembly:
    """Joins runs and counts lost messages. Sans-I/O; used by the receiving thread only."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self._budget = BUDGET * (limits.max_transaction_bytes + CHANGE_OVERHEAD * limits.max_transaction_changes)
        self._size = 0
        self._runs: OrderedDict[tuple[str, str, Point], _Run] = OrderedDict()
        self._last: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.lost = 0
        """Messages that a worker sent and that were not received. The changelog contains their links."""
        self.given_up = 0
        """Runs that were dropped because a part was not received, or because they exceeded the budget of bytes. The
        changelog contains their links, and the service publishes them from there."""

    def feed(self, envelope: Envelope) -> list[Link]:
        """The links that are complete with this envelope, in its order."""
        self._count(envelope)
        links = []
        for message in envelope.messages:
            link = message.link if message.parts == 1 else self._part(envelope, message)
            if link is not None:
                links.append(link)
        return links

    def _part(self, envelope: Envelope, message: Message) -> Link | None:
        name = (envelope.uuid, envelope.topic, message.link.point)
        run = self._runs.setdefault(name, _Run({}))
        if message.part in run.parts:
            return None  # a repetition
        run.parts[message.part] = message
        size = CHANGE_OVERHEAD + size_of(message.link)  # each part repeats the link's other fields
        run.size += size
        self._size += size
        if len(run.parts) == message.parts:
            del self._runs[name]
            self._size -= run.size
            return merge([run.parts[number] for number in sorted(run.parts)])
        while len(self._runs) > MAX_RUNS or self._size > self._budget:
            _, dropped = self._runs.popitem(last=False)
            self._size -= dropped.size
            self.given_up += 1
        return None

    def _count(self, envelope: Envelope) -> None:
        if not envelope.messages:
            return
        name = (envelope.uuid, envelope.topic)
        last = self._last.pop(name, None)
        if last is not None and envelope.sequence > last + 1:
            self.lost += envelope.sequence - last - 1
        self._last[name] = envelope.sequence + len(envelope.messages) - 1
        if len(self._last) > MAX_WORKERS:
            self._last.popitem(last=False)
