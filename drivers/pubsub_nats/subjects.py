"""Topics and nonces as tokens of NATS subjects, and back to topic frames.

::

    PREFIX.data.TOPIC              envelopes on a topic; PREFIX.data.> are those of all topics
    PREFIX.hello                   hellos to every subscriber
    PREFIX.ask                     hello requests; their reply subject is PREFIX.reply.CLIENT.NONCE
    PREFIX.reply.CLIENT.NONCE[.TOPIC]   replies to the hello requests of one client

A token is percent-encoded: it holds letters, digits and ``_-~%``, so that each topic is one token, also with dots,
spaces, wildcards or other scripts. The topic frame is not sent: a receiver makes it from the subject. So the server's
permissions on subjects are permissions on topics.
"""

import functools
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from pubsub_lib.core import codec
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import FrameError

_CACHED: Final = 10_000
"""Number of topics whose tokens are kept, because a token takes as long as the encoding of a small envelope."""


@functools.lru_cache(_CACHED)
def token(text: str) -> str:
    """The token of a topic or nonce. Different texts have different tokens."""
    return quote(text, safe="").replace(".", "%2E")


@functools.lru_cache(_CACHED)
def text(token_: str) -> str:
    """The topic or nonce of a token. Raises FrameError for everything that ``token`` does not return."""
    try:
        found = unquote(token_, errors="strict")
    except UnicodeDecodeError:
        found = ""
    if not found or token(found) != token_:
        raise FrameError(f"the token {token_[:80]!r} of a subject is not of this library", "foreign")
    return found


class Subjects:
    """The subjects under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.hello: Final = f"{prefix}.hello"
        self.ask: Final = f"{prefix}.ask"
        self._data: Final = f"{prefix}.data."
        self._reply: Final = f"{prefix}.reply."

    def pattern(self, topic: str) -> str:
        """The subject of a topic's envelopes; for ``ALL`` the pattern of those of every topic."""
        return self._data + (">" if topic == ALL else token(topic))

    def subject(self, head: bytes, inboxes: Mapping[str, str]) -> str:
        """The subject for a topic frame. ``inboxes``: reply subjects by nonce; "" for a reply that has none there."""
        nonce, _, topic = head[1:-1].decode().rpartition("\0")
        if head[:1] == codec.EVERYTHING:
            return self._data + token(topic) if topic else self.hello
        inbox = inboxes.get(nonce, "")
        return f"{inbox}.{token(topic)}" if inbox and topic else inbox

    def inbox(self, client: str) -> str:
        """The subject below which a client receives the replies to its hello requests."""
        return self._reply + client

    def nonce(self, reply: str) -> str:
        """The nonce in the reply subject of a hello request. Raises FrameError for a reply subject of another form."""
        parts = reply.removeprefix(self._reply).split(".")
        if not reply.startswith(self._reply) or len(parts) != 2 or not parts[0] or set(parts[0]) & set("*>"):
            raise FrameError(f"the reply subject {reply[:80]!r} is not of this library", "foreign")
        return text(parts[1])

    def head(self, subject: str) -> bytes:
        """The topic frame of a message on this subject. Raises FrameError."""
        if subject.startswith(self._data):
            return codec.topic_frame(text(subject[len(self._data) :]))
        if subject == self.hello:
            return codec.topic_frame(ALL)
        parts = subject.removeprefix(self._reply).split(".")
        if not subject.startswith(self._reply) or not 2 <= len(parts) <= 3:
            raise FrameError(f"the subject {subject[:80]!r} is not of this library", "foreign")
        topic = text(parts[2]).encode() if len(parts) == 3 else b""
        return b"%b%b\0" % (codec.private_frame(text(parts[1])), topic)
