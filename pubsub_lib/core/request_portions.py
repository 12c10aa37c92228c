"""Hello requests, and the portions of topics that they name (rule 6)."""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

REQUEST_TOPICS: Final = 200
"""Maximum number of topics of one hello request: as many as a publisher answers in one hello."""
REQUEST_BYTES: Final = 15 * 1024
"""Maximum size of one request's topics in bytes: with its nonce below 16 KiB. For some transports a request is a
subscription; libzmq walks one of a megabyte recursively and runs out of stack.
"""
TOPIC_OVERHEAD: Final = 5
"""Bytes of a topic in a hello request in addition to its name, in msgpack."""


class SentRequest(msgspec.Struct, frozen=True):
    """A hello request whose replies are accepted."""

    asked: float
    topics: frozenset[str]
    number: int
    """Requests are numbered in the order in which they are sent."""


def cut(topics: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Cut topics into the portions of hello requests, in order."""
    portion: list[str] = []
    size = 0
    for topic in topics:
        length = len(topic.encode(errors="replace")) + TOPIC_OVERHEAD
        if portion and (len(portion) == REQUEST_TOPICS or size + length > REQUEST_BYTES):
            yield tuple(portion)
            portion, size = [], 0
        portion.append(topic)
        size += length
    if portion:
        yield tuple(portion)
