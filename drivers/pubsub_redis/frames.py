"""The names of the channels, and the messages that are published on them.

A published message is a msgpack array of two byte strings: topic frame and body of one envelope. What the frames hold
is defined in :mod:`pubsub_lib.core.codec`. A hello request is such an array, too: the requester's inbox and the
request.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import FrameError

MAX_INBOX_BYTES: Final = 64
_OVERHEAD: Final = codec.MAX_HEADER_BYTES + 64
"""Maximum size of a message beyond its body."""
_GLOB: Final = re.compile(rb"([*?\[\]\\^])")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode


class Channels:
    """The channels of one prefix: ``D`` and the topic, ``H`` and an inbox, and ``ask`` for hello requests."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self.requests: Final = self._prefix + b"ask"
        self.everything: Final = _GLOB.sub(rb"\\\1", self._prefix) + codec.EVERYTHING + b"*"
        """The pattern of the channels of all topics."""
        self._data = self._prefix + codec.EVERYTHING

    def of_topic(self, topic: str) -> bytes:
        """The channel of a topic; of ``ALL``, that of hellos to every subscriber."""
        return self._data + topic.encode()

    def of_inbox(self, inbox: bytes) -> bytes:
        """The channel of the replies to one subscriber."""
        return self._prefix + b"H" + inbox

    def of_frame(self, head: bytes, inboxes: Mapping[bytes, bytes]) -> bytes:
        """The channel for a topic frame. ``inboxes``: inboxes by nonce; b"" for a reply that has none there."""
        if head[:1] == codec.EVERYTHING:
            return self._prefix + head[:-1]
        inbox = inboxes.get(nonce_of(head))
        return self.of_inbox(inbox) if inbox else b""

    def is_data(self, channel: bytes) -> bool:
        """Whether it is the channel of a topic, or of hellos to every subscriber."""
        return channel.startswith(self._data)

    def fits(self, channel: bytes, head: bytes) -> bool:
        """Whether this topic frame may come on this channel, so that the server's rights on channels are rights on
        topics."""
        if channel.startswith(self._data):
            return head[-1:] == b"\0" and head[:-1] == channel[len(self._prefix) :]
        return head[:1] == b"H"


def encode_pair(first: bytes, second: bytes) -> bytes:
    """The message of a topic frame and a body, or of an inbox and a hello request."""
    return _encode((first, second))


def read_pair(data: bytes, limits: Limits) -> tuple[bytes, bytes]:
    """(topic frame, body) of a published message, which may hold any bytes. Raises FrameError."""
    max_bytes = limits.max_frame_bytes + _OVERHEAD
    if len(data) > max_bytes:
        raise FrameError(f"a message of {len(data)} bytes exceeds {max_bytes}", "oversized")
    try:
        return _decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        reason = "truncated" if not data or "truncated" in str(error) else "foreign"
        raise FrameError(f"a message that starts with {data[:40]!r} cannot be read: {error}", reason) from error


def read_request(data: bytes, limits: Limits) -> tuple[bytes, bytes]:
    """(inbox, hello request) of a message on the channel of requests, both with bounded names: the publisher keeps
    these. Raises FrameError."""
    inbox, request = read_pair(data, limits)
    if not 0 < len(inbox) <= MAX_INBOX_BYTES:
        raise FrameError(f"a hello request has an inbox of {len(inbox)} bytes", "foreign")
    if request[:1] != b"H" or request.find(b"\0", 1, codec.MAX_NONCE_BYTES + 2) < 2:
        raise FrameError(f"a hello request that starts with {request[:40]!r} has no valid nonce", "foreign")
    return inbox, request


def nonce_of(frame: bytes) -> bytes:
    """The nonce of a hello request, or of the topic frame of a hello reply."""
    return frame[1 : frame.find(b"\0")]
