"""Where exactly messages were lost: gaps in the sequences per (publisher UUID, topic). Decides nothing (rule 11)."""

import msgspec

MOST_STREAMS_OF_A_SERVICE = 2
"""UUIDs of one service name whose streams are remembered: the running one and the one before."""
MOST_MISSING = 1000
"""Single numbers of one stream that may still arrive late; older ones are given up as lost."""


class Tally(msgspec.Struct):
    """What the sequences told so far."""

    holes: int = 0
    """Messages that were missing when a later one (or a hello) came."""
    filled: int = 0
    """Of these, those that came after all: reordered, not lost."""
    duplicates: int = 0
    """Messages that came again."""
    restarts: int = 0
    """Publishers that came back under the same service name with a new UUID."""


class _Stream:
    __slots__ = ("highest", "missing")

    def __init__(self, highest: int) -> None:
        self.highest = highest
        self.missing: dict[int, None] = {}


class Sequences:
    """The streams that a replica hears. Not thread-safe: the tracker's caller holds the lock."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._streams: dict[str, dict[str, _Stream]] = {}
        self._uuids: dict[str, list[str]] = {}

    def heard(self, service: str, uuid: str, topic: str, first: int, count: int) -> None:
        """Messages ``first`` .. ``first + count - 1`` came."""
        topics = self._topics(service, uuid)
        stream = topics.get(topic)
        last = first + count - 1
        if stream is None:
            topics[topic] = _Stream(last)
        elif first == stream.highest + 1:
            stream.highest = last
        else:
            self._out_of_order(stream, first, last)

    def announced(self, service: str, uuid: str, topic: str, last: int) -> None:
        """A hello says that ``last`` was the last message sent: what is missing up to there is a hole."""
        topics = self._topics(service, uuid)
        stream = topics.get(topic)
        if stream is None:
            topics[topic] = _Stream(last)
        elif last > stream.highest:
            self._miss(stream, stream.highest + 1, last)
            stream.highest = last

    def forget_topic(self, topic: str) -> None:
        """The topic is no longer followed; coming back to it later is no hole."""
        for topics in self._streams.values():
            topics.pop(topic, None)

    def _topics(self, service: str, uuid: str) -> dict[str, _Stream]:
        topics = self._streams.get(uuid)
        if topics is None:
            topics = self._streams[uuid] = {}
            uuids = self._uuids.setdefault(service, [])
            if uuids:
                self.tally.restarts += 1
            uuids.append(uuid)
            while len(uuids) > MOST_STREAMS_OF_A_SERVICE:
                del self._streams[uuids.pop(0)]
        return topics

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
                self.tally.filled += 1
            else:
                self.tally.duplicates += 1

    def _miss(self, stream: _Stream, first: int, last: int) -> None:
        self.tally.holes += last - first + 1
        for number in range(max(first, last - MOST_MISSING + 1), last + 1):
            stream.missing[number] = None
        while len(stream.missing) > MOST_MISSING:
            del stream.missing[next(iter(stream.missing))]
