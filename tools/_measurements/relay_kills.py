"""Kills a relay again and again under writes, and measures what that costs the replicas below it.

``tools/bench relay-kills``: a publisher service, two relays, a writer and replicas as processes over loopback, with
SQLite. Half of the replicas have one relay as their only parent and read from it alone; the others have both relays as
parents. SIGKILL strikes one relay after the other; every second one is started again at once, the others when the
replicas with two parents have left it. For each kill the command counts full syncs, and answered deltas of each replica
and topic, and compares each replica's staleness with the truth and with a bound. Then relays are drained (SIGTERM): the
replicas with two parents have the database's URL, too, and must read nothing from there. The other times are the
defaults in proportion to ``--idle``. Exit code 1: a requirement is missed.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
from _command_line import Parser, positive

from _measurements.command import Finding, Findings, log
from _measurements.relays_processes import PATIENCE, Figures, Relay, figures_of, joined, replica_file
from _measurements.relays_tree import RelayTree, moved, repaired
from pubsub_lib import Timing
from pubsub_lib.relay.engine import SETTLING
from pubsub_lib.sync.server import MAX_PAUSE

MAX_DELTAS: Final = 1
"""Of one replica and topic for each kill."""


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--kills", type=positive, default=200, metavar="N", help="kills of a relay (200)")
    parser.add_argument("--drains", type=int, default=20, metavar="N", help="relays that are drained then (20)")
    parser.add_argument("--replicas", type=positive, default=4, metavar="N", help="replicas below the relays (4)")
    parser.add_argument("--rate", type=positive, default=50, metavar="R", help="transactions a second (50)")
    parser.add_argument("--idle", type=float, default=2.0, metavar="S", help="max_idle_time (2)")
    parser.add_argument("--sync", type=float, default=2.0, metavar="S", help="seconds of a sync, in the bound (2)")


def measure(options: argparse.Namespace) -> Findings:
    """A finding for the kills and one for the drains."""
    with tempfile.TemporaryDirectory(prefix="pubsub-relay-kills-") as folder, ExitStack() as stack:
        tree = Tree(Path(folder), options, stack)
        kills = Losses(tree.bounds(options.sync))
        for number, loss in enumerate(tree.losses(options.kills, killed), 1):
            kills.add(loss)
            log(f"kill {number} of {options.kills}: {kills.words()}")
        yield kills.finding("kills")
        if options.drains > 0:
            drains = Losses(tree.bounds(options.sync))
            for number, loss in enumerate(tree.losses(options.drains, drained), 1):
                drains.add(loss)
                log(f"drain {number} of {options.drains}: {drains.words()}")
            yield drains.finding("drains")
        tree.end()


class Bounds(msgspec.Struct, frozen=True):
    """The largest staleness: of replicas with several parents, and of those with one, besides the time without it."""

    several: float
    alone: float


def bounds(timing: Timing, sync: float) -> Bounds:
    """With these times, when a sync takes ``sync`` seconds."""
    # A relay that was just started may send the replica away, and each failed sync doubles the wait for the next.
    again = SETTLING + MAX_PAUSE + timing.max_sync_backoff
    read = timing.reading_age + timing.round_trip
    return Bounds(moved(timing, sync), timing.max_idle_time + read + again + repaired(timing, sync))


class Loss(msgspec.Struct, frozen=True):
    """What one replica saw of the end of a relay."""

    alone: bool
    """It has no other parent."""
    away: float
    """Seconds until the relay was ready again."""
    fulls: int
    deltas: int
    """The largest number of a topic."""
    reads: int
    """Syncs read from the database."""
    worst: float
    least: float


class Losses:
    """What the ends of relays cost."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.number = self.fulls = self.deltas = self.reads = self.often = 0
        self.several = self.alone = self.beyond = self.away = 0.0
        self.least = float("inf")

    def add(self, losses: Sequence[Loss]) -> None:
        """Those of all replicas, of one end of a relay."""
        self.number += 1
        self.often += any(each.deltas > MAX_DELTAS for each in losses)
        for each in losses:
            self.fulls += each.fulls
            self.reads += each.reads
            self.deltas = max(self.deltas, each.deltas)
            self.least = min(self.least, each.least)
            self.away = max(self.away, each.away)
            if each.alone:
                self.alone = max(self.alone, each.worst)
                self.beyond = max(self.beyond, each.worst - each.away)
            else:
                self.several = max(self.several, each.worst)

    @property
    def met(self) -> bool:
        """Whether all requirements are met."""
        stale = self.several <= self._bounds.several and self.beyond <= self._bounds.alone
        return self.fulls == self.reads == 0 and self.deltas <= MAX_DELTAS and stale and self.least >= 0.0

    def words(self) -> str:
        """In one line."""
        return (
            f"{self.fulls} full syncs, {self.reads} reads of the database, at most {self.deltas} deltas of a replica "
            f"and topic (more than {MAX_DELTAS} for {self.often}); staleness at most {self.several:.2f} s, with one "
            f"parent {self.alone:.2f} s, at least {self.least:.3f} s above the truth"
        )

    def finding(self, name: str) -> Finding:
        """All of it, with the bounds."""
        words = (
            f"{name:<8} {self.number}: {self.words()}\n"
            f"         bound {self._bounds.several:.2f} s = 3 max_idle_time + reading_age + round_trip + reconnection\n"
            f"         bound with one parent: the {self.away:.2f} s at most without it + {self._bounds.alone:.2f} s "
            f"({self.beyond:.2f} s used) = max_idle_time + reading_age + round_trip + reconnection + {SETTLING:g} s "
            f"settling + {MAX_PAUSE} s Retry-After + max_sync_backoff: {'met' if self.met else 'MISSED'}"
        )
        figures = {
            "number": self.number, "fulls": self.fulls, "deltas": self.deltas, "often": self.often,
            "database_reads": self.reads,
            "worst_seconds": self.several, "bound_seconds": self._bounds.several, "alone_seconds": self.alone,
            "beyond_seconds": self.beyond, "beyond_bound_seconds": self._bounds.alone, "least_seconds": self.least,
        }  # fmt: skip
        return Finding(name, words, figures, self.met)


def killed(relay: Relay) -> None:
    """End a relay by SIGKILL."""
    assert relay.child is not None
    relay.child.kill()


def drained(relay: Relay) -> None:
    """End a relay by SIGTERM, so that it sends a goodbye. Raises ChildError."""
    assert relay.child is not None
    relay.child.stop(PATIENCE)


class Tree(RelayTree):
    """All processes, which are started, synced and under writes."""

    def __init__(self, folder: Path, options: argparse.Namespace, stack: ExitStack) -> None:
        idle = options.idle
        super().__init__(folder, idle, stack)
        self._written = 0
        both = replica_file(
            folder, "both", idle,
            f"store_url = sqlite:///{folder}/net.db\n"
            f"parents = {', '.join(each.address for each in self.relays)}\n"
            f"sync_url = {', '.join(each.url for each in self.relays)}\n",
        )  # fmt: skip
        alone = [
            replica_file(folder, f"below-{each.name}", idle, f"parents = {each.address}\nsync_url = {each.url}\n")
            for each in self.relays
        ]
        files = [alone[number % 2] if number < options.replicas // 2 else both for number in range(options.replicas)]
        self._parents = [alone.index(file) if file in alone else None for file in files]
        self.start(files, float(options.rate))
        self.settle()

    def bounds(self, sync: float) -> Bounds:
        """The largest staleness."""
        return bounds(self.timing, sync)

    def losses(self, number: int, end: Callable[[Relay], None]) -> Iterator[Sequence[Loss]]:
        """End one relay after the other, and start it again: for each what every replica saw of it."""
        before = figures_of(self.replicas)
        for count in range(number):
            victim = count % 2
            relay, began = self.relays[victim], time.monotonic()
            end(relay)
            seen = [self.left(relay)] if count % 4 >= 2 else []  # otherwise it runs again before it is left
            relay.start()
            away = time.monotonic() - began
            seen.append(self.settle())
            time.sleep(self.timing.max_idle_time)  # a late delta counts
            seen.append(figures_of(self.replicas))
            after = [joined(each) for each in zip(*seen, strict=True)]
            yield [
                loss(old, new, away if parent == victim else 0.0, alone=parent is not None)
                for old, new, parent in zip(before, after, self._parents, strict=True)
            ]
            before = after

    def left(self, relay: Relay) -> list[Figures]:
        """Wait until no replica with several parents listens to this relay. Raises BenchError."""
        return self.until(
            lambda found: all(
                relay.address not in each.parents
                for each, parent in zip(found, self._parents, strict=True)
                if parent is None
            ),
            "do not leave the relay",
            self.replicas,
        )

    def settle(self) -> list[Figures]:
        """Wait until all replicas have what is committed now, and relays prove that they are fresh. Raises BenchError.
        The figures of the time until then.
        """
        while self.truth.committed[self._written + 1]:
            self._written += 1
        return self.until(
            lambda found: all(each.have >= self._written and not each.polling for each in found),
            "do not settle",
            self.replicas,
        )


def loss(old: Figures, new: Figures, away: float, *, alone: bool) -> Loss:
    """What a replica with these figures before and after the end of a relay saw of it."""
    deltas = max((count - old.deltas.get(topic, 0) for topic, count in new.deltas.items()), default=0)
    return Loss(alone, away, new.fulls - old.fulls, deltas, new.reads - old.reads, new.worst, new.least)
