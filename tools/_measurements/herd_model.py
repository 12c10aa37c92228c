"""The herd in virtual time: more replicas than fit on one machine, with the costs that ``tools/bench herd`` measured.

A model, not the product: it has the real waits (:class:`.SyncScheduler` with the default times, the pauses of
:mod:`pubsub_lib.sync.server`, ``max_syncs``), and replaces all work by measured seconds of a processor and bytes. It
does not have hellos, links, lost messages, the restart of the database, changes of the parent, and the time until a
connection is made. Each participant has a processor of its own, unless all share some, as in the measurement itself.
The same seed gives the same result.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

import msgspec

from pubsub_lib import Timing
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.sync_scheduler import SyncScheduler
from pubsub_lib.replica.parent_channel import LOOK_AGAIN
from pubsub_lib.sync.server import MAX_PAUSE

TIMING: Final = Timing()
PLACES: Final = ServiceSettings().max_syncs
BYTES_PER_SECOND: Final = 125e6
"""Of each server's network: 1 Gbit/s."""
LIMIT: Final = 3600.0
"""Seconds after which the model gives up."""


class Costs(msgspec.Struct, frozen=True):
    """Measured: seconds of a processor, and bytes."""

    boot: float
    """A relay, from its start until it listens."""
    read: float
    """An upper relay's full sync from the database."""
    follow: float
    """A lower relay's full sync from an upper one, at the lower one."""
    answer: float
    """All answers to one replica, at the relay."""
    apply: float
    """A replica's first sync, at the replica."""
    whole_bytes: float
    """An answer with all data."""
    answer_bytes: float
    """All answers to one replica."""


class Result(msgspec.Struct, frozen=True):
    """Of one run."""

    seconds: Sequence[float]
    """When each replica was synced."""
    refused: int
    """Questions that were sent away."""
    relay_bytes: float
    """The most bytes that one relay sent."""

    @property
    def longest(self) -> float:
        """When all were synced; infinite: not all."""
        return max(self.seconds, default=0.0)


class Processors:
    """Work is done in the order in which it comes."""

    def __init__(self, number: int) -> None:
        self._free = [0.0] * number

    def take(self, now: float, seconds: float) -> float:
        """When work of this length ends."""
        end = max(now, heapq.heappop(self._free)) + seconds
        heapq.heappush(self._free, end)
        return end


class Server:
    """A relay as those below it see it."""

    def __init__(self, processors: Processors, up: float, places: int) -> None:
        self.processors = processors
        self.up = up
        self.ready = inf
        """When it has its objects."""
        self.places = places
        self.running = 0
        self.sent = 0.0
        self._network = 0.0

    def sends(self, now: float, size: float) -> float:
        """When the bytes have arrived."""
        self.sent += size
        self._network = max(now, self._network) + size / BYTES_PER_SECOND
        return self._network


class Client(msgspec.Struct):
    """One that needs a full sync of a server."""

    server: Server
    processors: Processors
    scheduler: SyncScheduler
    answer: float
    """Seconds of the server's processor."""
    size: float
    apply: float
    doubles: bool
    """Whether a server that does not listen is a failure, whose wait doubles: it has a URL, and no parent's hellos."""
    done: Callable[[float], None]


class Model:
    """One run. ``shared``: the number of processors that all share; 0: each has one of its own."""

    def __init__(self, costs: Costs, replicas: int, uppers: int, lowers: int, shared: int = 0, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()
        self._all = Processors(shared) if shared else None
        self._refused = 0
        self._seconds: list[float] = []
        above = [self._server(costs) for _ in range(uppers)]
        self._relays = [self._server(costs) for _ in range(lowers)]
        # One upper relay reads the database, the next one reads from it.
        first, *others = above
        first.ready = first.processors.take(first.up, costs.read)
        for server in others:
            self._relay_follows(server, first, costs)
        for number, server in enumerate(self._relays):
            self._relay_follows(server, above[number % uppers], costs)
        for number in range(replicas):
            own = self._processors()
            self._begin(Client(
                self._relays[number % lowers], own, self._scheduler(), costs.answer, costs.answer_bytes, costs.apply,
                False, self._seconds.append,
            ), 0.0)  # fmt: skip

    def run(self) -> Result:
        """Until all replicas are synced, or the limit."""
        while self._events and self._events[0][0] <= LIMIT:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return Result(sorted(self._seconds), self._refused, max(each.sent for each in self._relays))

    def _processors(self) -> Processors:
        return Processors(1) if self._all is None else self._all

    def _server(self, costs: Costs) -> Server:
        own = self._processors()
        return Server(own, own.take(0.0, costs.boot), PLACES)

    def _scheduler(self) -> SyncScheduler:
        return SyncScheduler(TIMING, self._rng, 0.0)

    def _relay_follows(self, server: Server, above: Server, costs: Costs) -> None:
        def done(now: float) -> None:
            server.ready = now

        self._begin(Client(
            above, server.processors, self._scheduler(), costs.answer, costs.whole_bytes, costs.follow, True, done,
        ), server.up)  # fmt: skip

    def _begin(self, client: Client, at: float) -> None:
        client.scheduler.need(at + TIMING.hello_wait)  # for a first hello
        self._later(client.scheduler.next_time(), client)

    def _later(self, at: float, client: Client) -> None:
        self._at(at, lambda now: self._ask(client, now))

    def _at(self, at: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at, next(self._order), act))

    def _ask(self, client: Client, now: float) -> None:
        server = client.server
        client.scheduler.begin(now, 0)
        if now < server.up:
            self._failed(client, now, None if client.doubles else LOOK_AGAIN)
        elif now < server.ready or server.running >= server.places:
            self._refused += 1
            self._failed(client, now, float(self._rng.randint(1, MAX_PAUSE)))
        else:
            server.running += 1
            worked = server.processors.take(now, client.answer)
            self._at(server.sends(worked, client.size), lambda end: self._answered(client, end))

    def _failed(self, client: Client, now: float, pause: float | None) -> None:
        client.scheduler.failed(now, pause)
        client.scheduler.need(now)
        self._later(client.scheduler.next_time(), client)

    def _answered(self, client: Client, now: float) -> None:
        client.server.running -= 1
        client.done(client.processors.take(now, client.apply))
