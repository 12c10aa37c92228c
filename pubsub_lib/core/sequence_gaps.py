"""Lost messages: gaps in the sequences per (publisher UUID, topic). For statistics only (rule 11)."""

from collections import OrderedDict

import msgspec

from pubsub_lib.core.model import ALL

MAX_STREAMS_OF_A_SERVICE = 2
"""Maximum number of remembered UUIDs of one service name: the running one and the one before."""
MAX_MISSING = 1000
"""Maximum number of missing sequences of one stream that may still arrive late; older ones count as lost."""
MAX_UUIDS = 1_000
"""Maximum number of remembered UUIDs of all services: those received last. The next message of a forgotten UUID is not
a gap."""
MAX_STREAMS = 100_000
"""Maximum number of streams of all UUIDs."""
MAX_MISSING_IN_ALL = 100_000
"""Maximum number of missing sequences of all streams."""

MAX_JUMP = 10_000_000
"""A sequence that is further away from the last one is wrong, unless the stream goes on there."""


class Tally(msgspec.Struct):
    """Counters of the sequences."""

    holes: int = 0
    """Messages that were missing when a later one (or a hello) was received."""
    filled: int = 0
    """Messages counted in ``holes`` that were received later: reordered, not lost."""
    duplicates: int = 0
    """Messages that were received again."""
    restarts: int = 0
    """Publishers that started again under the same service name with a new UUID."""
    jumps: int = 0
    """Messages and hellos with a sequence further than ``MAX_JUMP`` from the stream's last one, which are not counted
    as holes: a program sends wrong sequences, or a long outage has ended."""


class _Stream:
    __slots__ = ("highest", "jump", "missing")

    def __init__(self, highest: int) -> None:
        self.highest = highest
        self.missing: dict[int, None] = {}
        self.jump: int | None = None
        """The last sequence that was far from ``highest``. The stream goes on there if the next such one is near it."""


class SequenceGaps:
    """The received streams of messages, and their missing sequences. Not thread-safe: a replica's tracker uses it under
    its lock, a driver in its one receiving thread."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._streams: OrderedDict[str, dict[str, _Stream]] = OrderedDict()
        """By UUID; the UUID of the last message stands at the end."""
        self._services: dict[str, str] = {}
        self._uuids: dict[str, list[str]] = {}
        self._count = 0
        self._missing = 0

    def received(self, service: str, uuid: str, topic: str, first: int, count: int) -> None:
        """Messages ``first`` .. ``first + count - 1`` were received."""
        topics = self._topics(service, uuid)
        stream = topics.get(topic)
        last = first + count - 1
        if stream is None:
            self._begin(topics, topic, last)
        elif first == stream.highest + 1:
            stream.highest, stream.jump = last, None
        elif abs(first - stream.highest) > MAX_JUMP:
            self._jump(stream, last)
        else:
            self._out_of_order(stream, first, last)

    def announced(self, service: str, uuid: str, topic: str, last: int) -> None:
        """A hello has ``last`` as the last message sent: messages missing up to there count as ``holes``."""
        topics = self._topics(service, uuid)
        stream = topics.get(topic)
        if stream is None:
            self._begin(topics, topic, last)
        elif abs(last - stream.highest) > MAX_JUMP:
            self._jump(stream, last)
        elif last > stream.highest:
            self._miss(stream, stream.highest + 1, last)
            stream.highest = last

    def forget_topic(self, topic: str) -> None:
        """The topic (``ALL``: everything) is no longer followed. Following it again later is not a gap."""
        for topics in self._streams.values():
            for each in list(topics) if topic == ALL else [topic]:
                self._end(topics, each)

    def _topics(self, service: str, uuid: str) -> dict[str, _Stream]:
        topics = self._streams.get(uuid)
        if topics is not None:
            self._streams.move_to_end(uuid)
            return topics
        topics = self._streams[uuid] = {}
        self._services[uuid] = service
        uuids = self._uuids.setdefault(service, [])
        if uuids:
            self.tally.restarts += 1
        uuids.append(uuid)
        if len(uuids) > MAX_STREAMS_OF_A_SERVICE:
            self._forget(uuids[0])
        elif len(self._streams) > MAX_UUIDS:
            self._forget(next(iter(self._streams)))
        return topics

    def _begin(self, topics: dict[str, _Stream], topic: str, last: int) -> None:
        """Begin a stream of the UUID of the current message, which is the last UUID to be forgotten."""
        topics[topic] = _Stream(last)
        self._count += 1
        while self._count > MAX_STREAMS and len(self._streams) > 1:
            self._forget(next(iter(self._streams)))
        if self._count > MAX_STREAMS:
            self._end(topics, next(iter(topics)))

    def _end(self, topics: dict[str, _Stream], topic: str) -> None:
        stream = topics.pop(topic, None)
        if stream is not None:
            self._count -= 1
            self._missing -= len(stream.missing)

    def _forget(self, uuid: str) -> None:
        topics = self._streams.pop(uuid)
        for topic in list(topics):
            self._end(topics, topic)
        service = self._services.pop(uuid)
        uuids = self._uuids[service]
        uuids.remove(uuid)
        if not uuids:
            del self._uuids[service]

    def _out_of_order(self, stream: _Stream, first: int, last: int) -> None:
        if first > stream.highest:
            self._miss(stream, stream.highest + 1, first - 1)
            stream.highest = last
            return
        for number in range(first, last + 1):
            if number > stream.highest:
                stream.highest = number
            elif number in stream.missing:
                del stream.missing[number]
                self._missing -= 1
                self.tally.filled += 1
            else:
                self.tally.duplicates += 1

    def _jump(self, stream: _Stream, last: int) -> None:
        """A sequence is far from the stream's last one: go on there only when a second one is near it."""
        if stream.jump is None or abs(last - stream.jump) > MAX_JUMP:
            self.tally.jumps += 1
            stream.jump = last
            return
        self._missing -= len(stream.missing)
        stream.missing.clear()
        stream.highest, stream.jump = last, None

    def _miss(self, stream: _Stream, first: int, last: int) -> None:
        self.tally.holes += last - first + 1
        before = len(stream.missing)
        for number in range(max(first, last - MAX_MISSING + 1), last + 1):
            stream.missing[number] = None
        # When other streams use up MAX_MISSING_IN_ALL, this one forgets its missing sequences.
        maximum = min(MAX_MISSING, max(0, MAX_MISSING_IN_ALL - self._missing + before))
        while len(stream.missing) > maximum:
            del stream.missing[next(iter(stream.missing))]
        self._missing += len(stream.missing) - before
