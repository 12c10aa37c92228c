"""The check of an envelope's contents that types cannot express, for the sender and for the receiver (rule W3)."""

from collections.abc import Sequence

from pubsub_lib.core.envelope import Hello, Message
from pubsub_lib.core.limits import MAX_HELLO_TOPICS
from pubsub_lib.core.model import MAX_NUMBER, MAX_PARTS, MAX_SECONDS


def complaint(topic: str, sequence: int, messages: Sequence[Message], hello: Hello | None) -> str | None:
    """The inconsistency in an envelope's contents, or None. Called for every message: keep it fast."""
    if "\0" in topic:
        return "its topic holds a NUL"
    if messages:
        if hello is not None:
            return "it holds both messages and a hello"
        if not 1 <= sequence <= MAX_NUMBER + 1 - len(messages):
            return f"its sequence is {sequence} but sequences count from 1 to {MAX_NUMBER}"
        for message in messages:
            link = message.link
            if link.topic != topic:
                return f"it holds a link of topic {link.topic!r}"
            if not 1 <= message.part <= message.parts <= MAX_PARTS:
                return f"it holds part {message.part} of {message.parts}"
            if not -MAX_SECONDS <= link.written_at <= MAX_SECONDS:  # nor NaN
                return f"it holds a link that was written at {link.written_at}"
            if link.prev.position >= link.point.position:
                return f"it holds a link from position {link.prev.position} to {link.point.position}"
        return None
    if hello is None:
        return "it holds neither messages nor a hello"
    if sequence != 0:
        return f"it is a hello with the sequence {sequence}"
    if max(len(hello.sequences), len(hello.heads)) > MAX_HELLO_TOPICS:
        return f"it is a hello about more than {MAX_HELLO_TOPICS} topics"
    if not 0 <= hello.age <= MAX_SECONDS:  # nor NaN
        return f"its reading is {hello.age} s old"
    if not all(0 <= value <= MAX_NUMBER for value in hello.sequences.values()):
        return f"it counts a topic's sequence below 0 or above {MAX_NUMBER}"
    return None
