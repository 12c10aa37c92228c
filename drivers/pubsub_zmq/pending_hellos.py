"""Pending hello requests of a subscriber: what it sends for them, and for how long it waits. Does no I/O."""

from collections.abc import Collection, Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import MAX_HELLO_TOPICS
from pubsub_lib.core.model import ALL
from pubsub_zmq.buckets import reply_prefix

MAX_OPEN: Final = 10_000
"""Maximum number of parts that wait for replies; the oldest ends for a newer one."""
AS_BEFORE: Final = 60.0
"""Seconds for which requests are subscriptions after one that was not answered by every publisher. Publishers before
1.7 of the wire answer only these. Then they are messages again."""
MAX_UUIDS: Final = 1000
"""Maximum number of publishers whose replies to one part are remembered. A program can invent any number."""
SUBSCRIBE: Final = b"\1"
"""Before a prefix: a subscription to it, as a message of a subscriber's socket."""
_PART_OVERHEAD: Final = 5 + 5
"""Maximum msgpack overhead of a list of topics, and of a topic in it."""


class RequestPart(msgspec.Struct, frozen=True):
    """The part of a hello request that fits in one message. Each part has its own nonce, so that publishers see
    different requests."""

    nonce: str
    asked: str
    topics: frozenset[str]
    private: bytes
    """The prefix of the replies to this part alone. It, or that of several nonces, is subscribed to before the request
    is sent, which a publisher reads after it."""
    request: bytes


def parts_of(nonce: str, topics: Collection[str], max_bytes: int) -> list[RequestPart]:
    """Split a hello request into messages of at most ``max_bytes`` and ``MAX_HELLO_TOPICS`` each. Raises
    InvalidValueError for a nonce or topics that cannot be sent.
    """
    codec.check_nonce(nonce)
    codec.hello_request_frame(nonce, topics)  # raises for topics that are not text, before they are split
    room = max_bytes - codec.MAX_NONCE_BYTES - 2 - _PART_OVERHEAD
    cut: list[list[str]] = [[]]
    used = 0
    for topic in sorted(set(topics)):
        size = len(topic.encode()) + _PART_OVERHEAD
        if cut[-1] and (used + size > room or len(cut[-1]) == MAX_HELLO_TOPICS):
            cut.append([])
            used = 0
        cut[-1].append(topic)
        used += size
    parts = []
    for number, some in enumerate(cut):
        own = _numbered(nonce, number) if number else nonce
        private, request = codec.private_frame(own), codec.hello_request_frame(own, some)
        parts.append(RequestPart(own, nonce, frozenset(some), private, request))
    return parts


def _numbered(nonce: str, number: int) -> str:
    own = f"{nonce}.{number}"
    if len(own.encode()) <= codec.MAX_NONCE_BYTES:
        return own
    # A digest, because a nonce that is merely cut could be equal to another request's.
    return f"{blake2b(nonce.encode(), digest_size=16).hexdigest()}.{number}"


class _Open:
    """A part that waits for replies."""

    def __init__(self, part: RequestPart, until: float, connections: int, *, subscribed: bool) -> None:
        self.part = part
        self.until = until
        self.connections = connections
        self.subscribed = subscribed
        self.missing: dict[str, set[str]] = {}
        """Publisher UUID -> the topics that its replies did not contain yet."""

    @property
    def subscriptions(self) -> list[bytes]:
        """The subscriptions that end with it."""
        return [self.part.private, self.part.request] if self.subscribed else [reply_prefix(self.part.nonce)]

    def answered_by(self, envelope: Envelope) -> None:
        assert envelope.hello is not None
        missing = self.missing.get(envelope.uuid)
        if missing is None:
            if len(self.missing) >= MAX_UUIDS:
                return
            missing = self.missing[envelope.uuid] = set(self.part.topics - {ALL})
        missing.difference_update(envelope.hello.sequences)


class PendingHellos:
    """The open hello requests of one subscriber. One thread.

    ``subscribes``: each request is a subscription, which must end with the request. Publishers with keys need that:
    ZeroMQ lets their sockets read no other message (:mod:`.keyed_publisher`).
    """

    def __init__(self, answer_time: float, *, subscribes: bool) -> None:
        self._answer_time = answer_time
        self._subscribes = subscribes
        self._as_before = float("-inf")
        """Until when requests are subscriptions."""
        self._open: dict[str, _Open] = {}

    def request(self, part: RequestPart, now: float, connections: int = 0) -> tuple[list[bytes], list[bytes]]:
        """Return (the messages to send, in this order; the subscriptions that end). A second request with the same
        nonce replaces the first, and one above the maximum the oldest one. ``connections``: number of connections that
        have begun or ended until now; 0 when none is open.
        """
        before = self._open.pop(part.nonce, None)
        if before is None and len(self._open) >= MAX_OPEN:
            before = self._open.pop(next(iter(self._open)))
        subscribed = self._subscribes or now < self._as_before
        self._open[part.nonce] = _Open(part, now + self._answer_time, connections, subscribed=subscribed)
        ended = [] if before is None else before.subscriptions
        if subscribed:
            return [SUBSCRIBE + part.private, SUBSCRIBE + part.request], ended
        return [SUBSCRIBE + reply_prefix(part.nonce), part.request], ended

    def has(self, nonce: str) -> bool:
        """Whether a part with this nonce waits for replies."""
        return nonce in self._open

    def answered(self, envelope: Envelope, publishers: int) -> tuple[Envelope, list[bytes]]:
        """Return (the hello reply with the subscriber's original nonce, the subscriptions that end).

        A request ends when all connected publishers have replied about all its topics. ``publishers``: their number.
        """
        hello = envelope.hello
        found = self._open.get(hello.nonce) if hello is not None else None
        if hello is None or found is None:
            return envelope, []
        found.answered_by(envelope)
        done = sum(not missing for missing in found.missing.values())
        ended: list[bytes] = []
        if 0 < publishers <= done:
            del self._open[hello.nonce]
            ended = found.subscriptions
        if hello.nonce != found.part.asked:
            envelope = msgspec.structs.replace(envelope, hello=msgspec.structs.replace(hello, nonce=found.part.asked))
        return envelope, ended

    def expired(self, now: float, connections: int = 0) -> Iterator[bytes]:
        """Remove expired requests; yield the subscriptions that end. ``connections``: as above."""
        # Insertion order is the order of the deadlines.
        while self._open:
            nonce, oldest = next(iter(self._open.items()))
            if oldest.until > now:
                return
            del self._open[nonce]
            if connections and connections == oldest.connections and not oldest.subscribed:
                self._as_before = now + AS_BEFORE
            yield from oldest.subscriptions

    def next_time(self) -> float:
        """The time at which the next request expires."""
        return next(iter(self._open.values())).until if self._open else float("inf")
