"""Finds, by the events of ZeroMQ's monitor, which connections are up and which ZeroMQ has given up. Does no I/O.

After an ordinary loss, libzmq reports DISCONNECTED and at once CONNECT_RETRIED. After a frame over ``ZMQ_MAXMSGSIZE``,
or any other protocol error, it reports DISCONNECTED and never retries (libzmq 4.3.5).

The monitor names a connection by its address as given, until the first loss. From the next retry on, it replaces a
host name by the resolved address. So a retry under an unknown name belongs to a connection of the same port that was
lost just before. When several were lost, the monitor cannot distinguish them, and they are connected again together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import msgspec
import zmq

from pubsub_zmq import addresses

GRACE: Final = 0.1
"""Seconds within which a retry follows a loss. Without a retry, ZeroMQ has given the connection up."""


class GivenUp(msgspec.Struct, frozen=True):
    """A connection to make again: disconnect() and connect() these addresses.

    ``was_up``: its handshake had succeeded, so that a frame ended it.
    """

    addresses: tuple[str, ...]
    was_up: bool


class _Loss(msgspec.Struct):
    """A connection that was lost and has not been retried; one of ``addresses``."""

    since: float
    was_up: bool
    addresses: frozenset[str]


class ConnectionMonitor:
    """The connections of one socket. One thread. Times in seconds, on a clock that the caller reads.

    ``max_quiet``: seconds without an event after which an address that is not up is connected again; longer than any
    pause between two retries.
    """

    def __init__(self, reconnect_interval: float, max_reconnect_interval: float, max_quiet: float) -> None:
        self._least = max(reconnect_interval, GRACE)
        self._maximum = max(max_reconnect_interval, GRACE)
        self._max_quiet = max_quiet
        self._addresses: set[str] = set()
        # By the monitor's name of a connection. Connections may share a name: a host's name and its IP address.
        self._behind: dict[str, frozenset[str]] = {}
        """The addresses that the name can stand for."""
        self._up: Counter[str] = Counter()
        self._trying: Counter[str] = Counter()
        self._lost: dict[str, list[_Loss]] = {}
        # By address.
        self._seen: set[str] = set()
        self._down: dict[str, float] = {}
        """Address that is not up -> time of its last event."""
        self._waits: dict[str, tuple[float, float]] = {}
        """(wait before the next reconnection, time of the last one)."""
        self.counts = dict.fromkeys(("connected", "disconnected", "reconnected"), 0)

    @property
    def up(self) -> int:
        """Number of connections whose handshake has succeeded."""
        return self._up.total()

    @property
    def addresses(self) -> int:
        """Number of addresses that the socket connects to."""
        return len(self._addresses)

    def behind(self, endpoint: str) -> frozenset[str]:
        """The addresses that this name of the monitor can stand for; empty after they were removed."""
        return self._behind.get(endpoint, frozenset())

    def added(self, address: str, now: float) -> None:
        """connect() was called on the socket. Idempotent."""
        if address not in self._addresses:
            self._addresses.add(address)
            self._behind[address] = self._behind.get(address, frozenset()) | {address}
            self._trying[address] += 1
            self._down[address] = now

    def removed(self, address: str) -> None:
        """disconnect() was called on the socket."""
        self._forget(address)
        self._seen.discard(address)
        self._waits.pop(address, None)

    def event(self, kind: int, endpoint: str, now: float) -> None:
        """The monitor reported this event."""
        if kind == zmq.EVENT_CONNECT_RETRIED:
            self._retried(endpoint)
        elif endpoint not in self._behind:
            return  # a connection that was removed meanwhile
        elif kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._succeeded(endpoint)
        elif kind == zmq.EVENT_DISCONNECTED:
            self._disconnected(endpoint, now)
        self._received(self._behind.get(endpoint, ()), now)

    def given_up(self, now: float) -> list[GivenUp]:
        """Return the connections to make again now. The caller must do that at once; events report the result."""
        found = []
        while (loss := next((each for each in self._losses() if now >= self._due(each)), None)) is not None:
            found.append(GivenUp(tuple(sorted(loss.addresses)), loss.was_up))
            self._begin_again(loss.addresses, now)
        for address, last_event in list(self._down.items()):
            if now >= last_event + self._max_quiet:
                found.append(GivenUp((address,), False))
                self._begin_again((address,), now)
        return found

    def next_time(self) -> float:
        """The earliest time at which ``given_up`` may return a connection."""
        lost = min((self._due(each) for each in self._losses()), default=float("inf"))
        return min(lost, min(self._down.values(), default=float("inf")) + self._max_quiet)

    # -- events ------------------------------------------------------------------------------------------------------

    def _succeeded(self, endpoint: str) -> None:
        behind = self._behind[endpoint]
        self._trying[endpoint] = max(0, self._trying[endpoint] - 1)
        self._up[endpoint] = min(self._up[endpoint] + 1, len(behind))
        self.counts["connected"] += 1
        self.counts["reconnected"] += not behind.isdisjoint(self._seen)
        self._seen |= behind

    def _disconnected(self, endpoint: str, now: float) -> None:
        behind = self._behind[endpoint]
        was_up = self._up[endpoint] > 0
        self._up[endpoint] -= was_up
        self._trying[endpoint] = max(0, self._trying[endpoint] - (not was_up))
        self.counts["disconnected"] += was_up
        losses = self._lost.setdefault(endpoint, [])
        if len(losses) >= max(1, len(behind) - self._up[endpoint] - self._trying[endpoint]):
            was_up = losses.pop().was_up or was_up  # the same connection, lost twice without an event between
        losses.append(_Loss(now, was_up, behind))

    def _retried(self, endpoint: str) -> None:
        if endpoint in self._lost:
            self._found(endpoint, self._lost[endpoint][0])
        elif not self._trying[endpoint]:  # otherwise it is a known connection that fails repeatedly
            # The name is new, or stood for another connection until now.
            losses = [
                each
                for lost, losses in self._lost.items()
                if addresses.same_port(lost, endpoint)
                for each in losses
                if not all(addresses.is_fixed(address) for address in each.addresses)
            ]
            if not losses:
                return
            losses.sort(key=lambda each: each.since)
            may_be = frozenset[str]().union(*(each.addresses for each in losses))
            for each in losses:
                each.addresses = may_be
            self._behind[endpoint] = self._behind.get(endpoint, frozenset()) | may_be
            self._found(endpoint, losses[0])

    def _found(self, endpoint: str, loss: _Loss) -> None:
        """The lost connection is being retried under this name."""
        self._trying[endpoint] += 1
        for losses in self._lost.values():
            losses[:] = [each for each in losses if each is not loss]
        self._tidy()

    def _losses(self) -> Iterator[_Loss]:
        return chain.from_iterable(self._lost.values())

    def _tidy(self) -> None:
        self._lost = {name: losses for name, losses in self._lost.items() if losses}

    def _received(self, behind: Iterable[str], now: float) -> None:
        up = {address for name, count in self._up.items() if count for address in self._behind[name]}
        for address in behind:
            if address in up:
                self._down.pop(address, None)
            else:
                self._down[address] = now

    # -- connecting again --------------------------------------------------------------------------------------------

    def _due(self, loss: _Loss) -> float:
        return max(loss.since + GRACE, *(sum(self._waits.get(each, (0.0, loss.since))) for each in loss.addresses))

    def _begin_again(self, again: Iterable[str], now: float) -> None:
        for address in again:
            wait, last = self._waits.get(address, (self._least, now))
            quiet = now - last > 2 * self._maximum
            self._waits[address] = (self._least if quiet else min(2 * wait, self._maximum), now)
            self._forget(address)
        for address in again:
            self.added(address, now)

    def _forget(self, address: str) -> None:
        """Forget all events of this address."""
        self._addresses.discard(address)
        self._down.pop(address, None)
        for name, behind in list(self._behind.items()):
            if address not in behind:
                continue
            left = behind - {address}
            self._behind[name] = left
            for counted in (self._up, self._trying):
                if counted[name] > len(left):
                    counted[name] = len(left)
                if not counted[name]:
                    del counted[name]
            if not left:
                del self._behind[name]
        for losses in self._lost.values():
            for loss in losses:
                loss.addresses -= {address}
            losses[:] = [each for each in losses if each.addresses]
        self._tidy()
