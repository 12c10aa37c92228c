"""Cuts topics into portions, so that the frame of a hello about one portion is within ``max_frame_bytes``."""

from collections.abc import Iterable, Iterator
from typing import Final

from pubsub_lib.core.codec import MAX_NONCE_BYTES
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import MAX_NAME_BYTES

HELLO_OVERHEAD: Final = (
    (1 + 2 + (3 + MAX_NAME_BYTES) + 18 + 1 + 1) + (1 + 2 * 3 + 19 + 9 + (2 + MAX_NONCE_BYTES) + 1) + (9 + 1 + 1 + 3)
)
"""Maximum bytes of a hello's body without topics: the body's own fields; then the hello's array, the headers of its two
maps, the store's point, the age, the nonce, the goodbye; then, of a hello with a sync channel, the other age, an empty
path, no addresses, the port."""
TOPIC_OVERHEAD: Final = 2 * 3 + 9 + (1 + 19 + 2 * 9)
"""Maximum bytes of one topic without its name: two headers of its name, the sequence, the head."""


def portions(topics: Iterable[str], max_topics: int, limits: Limits) -> Iterator[tuple[str, ...]]:
    """Cut topics, in order, into portions that one hello each can name; one empty portion for no topics.

    A name that is too long for a topic is left out. ``Settings`` refuses a ``max_frame_bytes`` that is too small for
    one topic, so a portion of one topic is not checked.
    """
    room = limits.max_frame_bytes - HELLO_OVERHEAD
    portion: list[str] = []
    used = 0
    any_yet = False
    for topic in topics:
        length = len(topic.encode(errors="replace"))
        if length > MAX_NAME_BYTES:
            continue
        size = 2 * length + TOPIC_OVERHEAD
        if portion and (len(portion) == max_topics or used + size > room):
            yield tuple(portion)
            any_yet = True
            portion, used = [], 0
        portion.append(topic)
        used += size
    if portion or not any_yet:
        yield tuple(portion)
