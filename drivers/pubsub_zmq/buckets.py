"""Topics in buckets: what a replica subscribes to, and what it then has to drop (rule W7). Does no I/O.

libzmq keeps the subscriptions of all connections in one tree, with a node for each byte, and walks through the whole
tree for each connection that ends. At 10,000 topics with random names of 44 bytes that takes 26 ms of the sending
thread, so hundreds of connections that ended together silenced the others for many seconds. So subscribers of topics
subscribe to one of :data:`BUCKETS` short prefixes. The tree has at most 1,029 nodes for them, and an end takes
0.1 ms, whatever the topics are: also 10,000 connections, the default maximum, may end together.
"""

import functools
import zlib
from typing import Final

from pubsub_lib.core import codec
from pubsub_lib.core.model import ALL

BUCKETS: Final = 1024
"""The end of a connection takes 0.1 ms with this number, 0.3 ms with 4,096, 1 ms with 8,192 and 3 ms with 65,536. A
replica of k topics receives and drops at most k / ``BUCKETS`` of the messages of all other topics."""
SINCE: Final = 4
"""The minor version of the wire since which publishers send data in buckets."""
EVERY_BUCKET: Final = b"B"
"""Prefix of every message with data: a subscriber of ``ALL`` subscribes to it."""
_HEADER: Final = 3
_REPLY_CHARACTERS: Final = 2
_PRIVATE: Final = codec.private_frame("")[:1]
_HEXADECIMAL: Final = frozenset(b"0123456789abcdef")
_DATA: Final = codec.EVERYTHING[0]
_BUCKET: Final = EVERY_BUCKET[0]
_HELLOS: Final = b"\1" + codec.topic_frame(ALL)


@functools.lru_cache(maxsize=10_000)
def bucketed(head: bytes) -> bytes:
    """The topic frame of data in its bucket: ``B``, the bucket, the topic and its NUL."""
    return _prefix(head[1:-1]) + head[1:]


def prefix_of(topic: str) -> bytes:
    """The prefix of the topic's bucket; for ``ALL`` that of all buckets."""
    return _prefix(topic.encode()) if topic else EVERY_BUCKET


def reply_prefix(nonce: str) -> bytes:
    """The prefix to which a subscriber without keys subscribes for the replies to a request. It matches those of other
    nonces, too, which the subscriber drops; so there are few different ones, as nonces are hexadecimal.
    """
    return codec.private_frame(nonce[:_REPLY_CHARACTERS])[:-1]


def is_few(prefix: bytes) -> bool:
    """Whether this subscription is one of those that subscribers without keys make, of which there are 1,282: hellos,
    buckets, and replies.
    """
    if prefix[:1] == EVERY_BUCKET:
        return len(prefix) == 1 or (len(prefix) == _HEADER and prefix[1] >> 2 == 0x40 >> 2)
    if prefix[:1] == _PRIVATE:
        return len(prefix) == 1 + _REPLY_CHARACTERS and _HEXADECIMAL.issuperset(prefix[1:])
    return prefix == codec.topic_frame(ALL)


def is_bucketed(head: bytes) -> bool:
    """Whether this received topic frame was sent in a bucket."""
    return head[:1] == EVERY_BUCKET


def plain(head: bytes) -> bytes:
    """The topic frame that :func:`bucketed` had; one that the codec refuses, when it is not of this library."""
    return codec.EVERYTHING + head[_HEADER:]


def _is_data(head: bytes) -> bool:
    """Whether this topic frame, which has no bucket, is that of data, and not of a hello."""
    return head[0] == _DATA and len(head) > 2


def _minor(body: bytes) -> int:
    """The minor version in a body that the codec has read."""
    return body[2] if body[0] != 0xDC else body[4]  # 0xDC: more than 15 fields


def _prefix(topic: bytes) -> bytes:
    number = zlib.crc32(topic) % BUCKETS
    # At most 4 nodes with 256 nodes below each. A table with gaps costs as much as one without.
    return bytes((_BUCKET, 0x40 | number >> 8, number & 0xFF))


class Topics:
    """The topics of one subscriber. One thread.

    ``exact``: subscribe by names alone, as publishers with keys need it: they grant topics, and not buckets.
    Otherwise names are subscribed to as well from the first hello reply of a publisher of an older version on, which
    sends data under names alone, until the subscriber ends.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._topics: set[str] = set()
        self._frames: set[bytes] = set()
        """Topics with their NUL, as they end a topic frame."""
        self.named = exact
        """Whether names are subscribed to."""

    def add(self, topic: str) -> list[bytes]:
        """Follow a topic; the prefixes to subscribe to."""
        self._topics.add(topic)
        self._frames.add(codec.topic_frame(topic)[1:])
        return self._prefixes(topic)

    def remove(self, topic: str) -> list[bytes]:
        """Follow it no more; the prefixes to unsubscribe from. Topics may share one, so ZeroMQ counts them."""
        self._topics.discard(topic)
        self._frames.discard(codec.topic_frame(topic)[1:])
        return self._prefixes(topic)

    def wants(self, head: bytes) -> bool:
        """Whether a message with this topic frame is wanted: it is a hello, or it has data of a followed topic."""
        if head[:1] == EVERY_BUCKET:
            return head[_HEADER:] in self._frames or ALL in self._topics
        return not head or not _is_data(head) or head[1:] in self._frames or ALL in self._topics

    def repeats(self, head: bytes, body: bytes) -> bool:
        """Whether this message is sent in its bucket, too, and so is received twice."""
        return not self._exact and _is_data(head) and _minor(body) >= SINCE

    def meets(self, body: bytes) -> list[bytes]:
        """The prefixes to subscribe to because of this message of a publisher: none, except for the first one of an
        older version.
        """
        if self.named or _minor(body) >= SINCE:
            return []
        self.named = True
        return [codec.subscription(topic) for topic in self._topics]

    def _prefixes(self, topic: str) -> list[bytes]:
        named = [codec.subscription(topic)] if self.named else []
        return named if self._exact else [prefix_of(topic), *named]


class Heads:
    """The topic frames under which a publisher sends a message: in its bucket; and under its topic from the first
    subscriber of an older version on, which subscribes to topics. That lasts until the publisher ends, because the end
    of such a subscription proves nothing: a client can report the end of another one's.

    ``exact``: under its topic alone.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self.named = exact
        """Whether messages are sent under their topics."""

    def of(self, head: bytes) -> tuple[bytes, ...]:
        """Those of a message that has this one from the codec. Any thread that uses the socket."""
        if self._exact or not _is_data(head):
            return (head,)
        return (bucketed(head), head) if self.named else (bucketed(head),)

    def subscribed(self, frame: bytes) -> bool:
        """ZeroMQ reported this subscription, or the end of one. Whether it is a subscription to data or hellos."""
        if frame[:1] != b"\1" or frame[1:2] not in (codec.EVERYTHING, EVERY_BUCKET):
            return False
        self.named = self.named or (frame[1:2] == codec.EVERYTHING and frame != _HELLOS)
        return True
