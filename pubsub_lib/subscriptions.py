"""The topic frames that a subscriber of any driver receives: its topics, hellos to all, and replies to its requests."""

from collections import deque

from pubsub_lib.core import codec
from pubsub_lib.core.model import ALL
from pubsub_lib.core.sequencer import MAX_REQUESTS
from pubsub_lib.driver_state import check_topic


class Subscriptions:
    """Prefixes of topic frames. The caller's lock guards every call but :meth:`matches`."""

    def __init__(self, max_requests: int = MAX_REQUESTS) -> None:
        """``max_requests``: number of hello requests whose replies are received."""
        self._max_requests = max_requests
        self._prefixes = {codec.topic_frame(ALL)}
        self._private: deque[bytes] = deque()

    def add(self, topic: str) -> bytes:
        """Receive this topic, or ``ALL``. Returns its prefix, for a broker. Raises InvalidValueError."""
        prefix = codec.subscription(check_topic(topic))
        self._prefixes.add(prefix)
        return prefix

    def discard(self, topic: str) -> bytes:
        """Do not receive this topic any more. Returns its prefix. Raises InvalidValueError."""
        prefix = codec.subscription(check_topic(topic))
        self._prefixes.discard(prefix)
        return prefix

    def add_replies(self, nonce: str) -> tuple[bytes, bytes | None]:
        """Receive the replies to this hello request. Returns their prefix, and that of the oldest request when there
        are too many: its replies are not received any more, it has had enough time.
        """
        prefix = codec.private_frame(nonce)
        ended = None
        if prefix not in self._prefixes:
            self._prefixes.add(prefix)
            self._private.append(prefix)
            if len(self._private) > self._max_requests:
                ended = self._private.popleft()
                self._prefixes.discard(ended)
        return prefix, ended

    def prefixes(self) -> tuple[bytes, ...]:
        """All prefixes, for a new connection to a broker."""
        return tuple(self._prefixes)

    def matches(self, head: bytes) -> bool:
        """Whether a message with this topic frame is received. Any thread."""
        if head[:1] == codec.EVERYTHING:
            return head in self._prefixes or codec.EVERYTHING in self._prefixes
        return head[: head.find(0) + 1] in self._prefixes
