"""Which connections live, and which ZeroMQ has given up for good, told from its monitor's events. Does no I/O.

After an ordinary loss libzmq says DISCONNECTED and at once CONNECT_RETRIED. After a frame over ``ZMQ_MAXMSGSIZE``, or
any other breach of its protocol, it says DISCONNECTED and never tries again (libzmq 4.3.5).
"""

from typing import Final

import msgspec
import zmq

from pubsub_zmq import addresses

GRACE: Final = 0.1
"""Seconds within which a retry follows a loss. Later: it was given up."""

_LOST: Final = frozenset(
    {
        zmq.EVENT_DISCONNECTED,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    }
)
_TRYING: Final = frozenset({zmq.EVENT_CONNECT_RETRIED, zmq.EVENT_CONNECT_DELAYED, zmq.EVENT_CONNECTED})


class GivenUp(msgspec.Struct, frozen=True):
    """A connection to make anew: disconnect() and connect() these addresses.

    ``was_up``: its handshake had succeeded, so that what ended it was a frame.
    """

    addresses: tuple[str, ...]
    was_up: bool


class Health:
    """The connections of one socket. One thread. Times in seconds, on a clock that the caller reads."""

    def __init__(self, reconnect_interval: float, reconnect_most: float) -> None:
        self._least = max(reconnect_interval, GRACE)
        self._most = max(reconnect_most, GRACE)
        self._addresses: set[str] = set()
        self._up: set[str] = set()
        self._seen: set[str] = set()
        self._lost: dict[str, tuple[float, bool]] = {}
        self._waits: dict[str, tuple[float, float]] = {}
        """Endpoint -> (wait before it is next made anew, when that was last done)."""
        self.counts = dict.fromkeys(("disconnected", "reconnected"), 0)

    @property
    def up(self) -> int:
        """Connections whose handshake is done."""
        return len(self._up)

    def added(self, address: str) -> None:
        """The socket was told to connect."""
        self._addresses.add(address)

    def removed(self, address: str) -> None:
        """The socket was told to disconnect."""
        self._addresses.discard(address)
        if not any(addresses.same(address, other) for other in self._addresses):
            self._up = {each for each in self._up if not addresses.same(address, each)}
            self._seen = {each for each in self._seen if not addresses.same(address, each)}

    def event(self, kind: int, endpoint: str, now: float) -> None:
        """The monitor said this."""
        if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._trying(endpoint)
            if not any(addresses.same(endpoint, each) for each in self._addresses):
                return  # a connection that we ended meanwhile
            self.counts["reconnected"] += endpoint in self._seen
            self._seen.add(endpoint)
            self._up.add(endpoint)
        elif kind in _LOST:
            was_up = endpoint in self._up
            self._up.discard(endpoint)
            self.counts["disconnected"] += was_up
            before = self._lost.get(endpoint)
            self._lost[endpoint] = (now, was_up or (before is not None and before[1]))
        elif kind in _TRYING:
            self._trying(endpoint)

    def given_up(self, now: float) -> list[GivenUp]:
        """What has to be made anew now. The caller does it, and events will tell how it went."""
        found = []
        for endpoint, (since, was_up) in list(self._lost.items()):
            if now < self._due(endpoint, since):
                continue
            del self._lost[endpoint]
            same = tuple(sorted(each for each in self._addresses if addresses.same(each, endpoint)))
            if same:
                wait, last = self._waits.get(endpoint, (self._least, now))
                quiet = now - last > 2 * self._most
                self._waits[endpoint] = (self._least if quiet else min(2 * wait, self._most), now)
                found.append(GivenUp(same, was_up))
        return found

    def next_time(self) -> float:
        """When ``given_up`` next may have something to say."""
        return min((self._due(each, since) for each, (since, _) in self._lost.items()), default=float("inf"))

    def _due(self, endpoint: str, since: float) -> float:
        wait, last = self._waits.get(endpoint, (0.0, since))
        return max(since + GRACE, last + wait)

    def _trying(self, endpoint: str) -> None:
        for each in [each for each in self._lost if addresses.same(each, endpoint)]:
            del self._lost[each]
