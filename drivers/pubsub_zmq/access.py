"""Decides which clients may connect, and which subscriptions take effect. Does no I/O.

A subscription is a prefix of topic frames. Only prefixes that this library makes are allowed, because any other one
(no byte, or the first bytes of a nonce) could match messages for other clients.
"""

import threading
import time
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from pubsub_lib.api import Client
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import FrameError
from pubsub_lib.logs import logger

_log = logger(__name__)

_BROADCASTS: Final = codec.topic_frame(ALL)
_UNKNOWN: Final = Client("", "")
EARLY_ENDS: Final = 3
"""Number of connections that a client may end before its subscriptions are read, within ``SUSPENSION``. Each makes
every client connect again."""
SUSPENSION: Final = 60.0
"""Seconds. A client that ends one more is not accepted until the first is as old as this."""


class Decision(NamedTuple):
    """``subscribe``: the subscription takes effect. ``request``: the hello request to answer; b"" for none."""

    subscribe: bool = False
    request: bytes = b""


_DENIED: Final = Decision()


class Access:
    """The clients, and the connections that depend on them. Any thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._clients: Mapping[str, Client] = {}
        self._connected: set[str] = set()
        """Keys that were accepted since :meth:`renewed`."""
        self._denied: set[str] = set()
        """Keys with a denied subscription since :meth:`renewed`."""
        self._banned: set[str] = set()
        """Keys of clients that misused their connection."""
        self._early_ends: dict[str, list[float]] = {}
        """When each key's last connections ended too early."""
        self.counts = dict.fromkeys(("refused", "denied"), 0)
        """``refused``: connections without an accepted key. ``denied``: subscriptions and requests that name topics
        which their client was not granted."""

    def replace(self, clients: Collection[Client]) -> bool:
        """Replace the clients. Whether every connection has to be made again: a connected client lost its key or a
        topic, or was granted a topic after its subscription to a topic was denied.
        """
        new = {each.public_key: each for each in clients}
        with self._lock:
            old, self._clients = self._clients, new
            lost = any(_topics(old, key) - _topics(new, key) or key not in new for key in self._connected)
            return lost or any(_topics(new, key) - _topics(old, key) for key in self._denied)

    def renewed(self) -> None:
        """Every connection has ended."""
        with self._lock:
            self._connected.clear()
            self._denied.clear()

    def accepts(self, key: str) -> bool:
        """Whether the program that proved to have this key may connect."""
        now = time.monotonic()
        with self._lock:
            found = key in self._clients and key not in self._banned and not self._is_suspended(key, now)
            if found:
                self._connected.add(key)
            else:
                self.counts["refused"] += 1
        return found

    def ban(self, key: str) -> None:
        """Accept this client no more, until a restart: it sent a message that no subscriber sends."""
        client = self._clients.get(key, _UNKNOWN)
        with self._lock:
            self._banned.add(key)
        _log.error(
            "the client %r sent a message that is no subscription, which could mix up those of others; it is not "
            "accepted any more until this publisher starts again",
            client.name,
        )

    def ended_early(self, key: str) -> None:
        """A connection of this client ended before its subscriptions were read, so all connections end."""
        now = time.monotonic()
        with self._lock:
            ends = self._early_ends[key] = [*self._early_ends.get(key, ())[-EARLY_ENDS:], now]
            suspended = self._is_suspended(key, now)
        if suspended:
            _log.warning(
                "the client %r ended %d connections within %d s before its subscriptions were read, and each time "
                "every client had to connect again; it is not accepted for the rest of that time",
                self._clients.get(key, _UNKNOWN).name,
                len(ends),
                SUSPENSION,
            )

    def _is_suspended(self, key: str, now: float) -> bool:
        ends = self._early_ends.get(key, ())
        return len(ends) > EARLY_ENDS and now < ends[0] + SUSPENSION

    def is_restricted(self, prefix: bytes) -> bool:
        """Whether a client exists that may not have this subscription, which another client has."""
        if prefix == _BROADCASTS:
            return False
        topic = _topic(prefix) if prefix[:1] == codec.EVERYTHING else None
        return topic is None or any(not each.topics & {topic, ALL} for each in self._clients.values())

    def decide(self, key: str, prefix: bytes) -> Decision:
        """What a client's subscription to this prefix causes."""
        client = self._clients.get(key, _UNKNOWN)
        everything = ALL in client.topics
        if prefix == _BROADCASTS:
            return Decision(subscribe=client is not _UNKNOWN)
        if prefix[:1] == codec.EVERYTHING:
            topic = _topic(prefix)
            if everything or topic in client.topics:
                return Decision(subscribe=topic is not None)
            return self._deny(client, prefix)
        if prefix[:1] != b"H" or client is _UNKNOWN:
            return self._deny(client, prefix)
        if prefix.find(0) == len(prefix) - 1 > 1:  # the prefix of replies to one nonce
            return Decision(subscribe=True)
        return self._request(client, prefix, everything)

    def _request(self, client: Client, prefix: bytes, everything: bool) -> Decision:
        """The request without topics that the client was not granted."""
        if everything:
            return Decision(request=prefix)
        try:
            asked = codec.read_hello_request(prefix, self._limits)
        except FrameError:
            return Decision(request=prefix)  # it is counted where requests are answered
        allowed = [topic for topic in asked.topics if topic == ALL or topic in client.topics]
        if len(allowed) == len(asked.topics):
            return Decision(request=prefix)
        self._deny(client, prefix)
        if not allowed:
            return _DENIED
        shorter = HelloRequest(asked.nonce, tuple(allowed))
        return Decision(request=codec.hello_request_frame(shorter.nonce, shorter.topics, self._limits))

    def _deny(self, client: Client, prefix: bytes) -> Decision:
        with self._lock:
            self.counts["denied"] += 1
            first = client.public_key not in self._denied
            self._denied.add(client.public_key)
        if first and client is not _UNKNOWN:
            _log.warning(
                "the client %r requests topics that it was not granted (%r); see pubsub-db clients list",
                client.name,
                prefix[:80],
            )
        return _DENIED


def _topics(clients: Mapping[str, Client], key: str) -> frozenset[str]:
    return clients.get(key, _UNKNOWN).topics


def _topic(prefix: bytes) -> str | None:
    """The topic of a subscription, ``ALL`` for that to all topics; None for any other prefix."""
    if prefix == codec.EVERYTHING:
        return ALL
    if prefix.find(0) != len(prefix) - 1:
        return None
    try:
        return prefix[1:-1].decode()
    except UnicodeDecodeError:
        return None
