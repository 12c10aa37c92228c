"""Measures what a killed, hanging or cut relay costs the replicas below it, and what one relay adds to the latency.

``tools/bench relays``: a publisher service, two relays, a writer and replicas as processes over loopback, with SQLite.
The replicas have no database: they read from the relays. For each kill (SIGKILL of the relay that they listen to, under
writes) it counts full syncs, and deltas of each replica and topic, and compares each replica's staleness with the truth
and with the bound. Then the relay is cut from what is above (both directions), and stopped by SIGSTOP: the time until
the replicas left it. The hop is the median to the handler below a relay less that of a replica of the service; the
peer is raw pyzmq at the same rate. Here a relay receives through a proxy, which is a thread in Python and a large part
of that hop; ``tools/bench --case relay`` measures one without it. The other times are the defaults in proportion to
``--idle``. Exit code 1: a requirement is missed.
"""

import argparse
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from _bench import latency
from _bench.measure import BenchError
from _children import Forked
from _command_line import Parser, positive
from _processes import poll

from _measurements.command import Finding, Findings, log
from _measurements.relays_processes import PATIENCE, Figures, Relay, figures_of, replica_file
from _measurements.relays_tree import RelayTree, moved

MAX_HOP = 2.0
"""Maximum latency of one more relay, as a multiple of one more hop of raw pyzmq."""


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--kills", type=positive, default=2, metavar="N", help="kills of the current relay (2)")
    parser.add_argument("--cuts", type=int, default=1, metavar="N", help="cuts and SIGSTOPs of the current relay (1)")
    parser.add_argument("--replicas", type=positive, default=3, metavar="N", help="replicas below the relays (3)")
    parser.add_argument("--rate", type=positive, default=50, metavar="R", help="transactions a second (50)")
    parser.add_argument("--idle", type=float, default=2.0, metavar="S", help="max_idle_time (2)")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="measurement of the latency (5)")
    parser.add_argument("--sync", type=float, default=2.0, metavar="S", help="seconds of a sync, in the bound (2)")


def measure(options: argparse.Namespace) -> Findings:
    """A finding for each kind of fault, and one for the latency."""
    raw = latency.raw(max(20, round(options.seconds * options.rate)), options.rate)  # first, because it forks
    with tempfile.TemporaryDirectory(prefix="pubsub-relays-") as folder, ExitStack() as stack:
        tree = Tree(Path(folder), options, stack)
        yield hop(tree, raw, options.seconds)
        yield kills(tree, options)
        faults: tuple[tuple[str, Callable[[Relay], None], Callable[[Relay], None]], ...] = (
            ("cut", Relay.cut, Relay.restore),
            ("SIGSTOP", lambda relay: send(relay, signal.SIGSTOP), lambda relay: send(relay, signal.SIGCONT)),
        )
        for name, begin, end in faults if options.cuts > 0 else ():
            yield left(tree, options, name, begin, end)
        tree.end()


def send(relay: Relay, number: signal.Signals) -> None:
    """Send a signal to a relay's process."""
    assert relay.child is not None
    relay.child.process.send_signal(number)


class Tree(RelayTree):
    """All processes, which are started, synced and under writes: with a replica of the service, too."""

    def __init__(self, folder: Path, options: argparse.Namespace, stack: ExitStack) -> None:
        idle = options.idle
        super().__init__(folder, idle, stack)
        below = replica_file(
            folder, "below", idle,
            f"parents = {', '.join(each.address for each in self.relays)}\n"
            f"sync_url = {', '.join(each.url for each in self.relays)}\n",
        )  # fmt: skip
        direct = replica_file(
            folder, "direct", idle, f"publishers_ips = 127.0.0.1\npublisher_port = {self.origin.port}\n"
            f"sync_url = {self.origin.url}\n",
        )  # fmt: skip
        self.start([*[below] * options.replicas, direct], float(options.rate))
        self.settle()

    @property
    def below(self) -> Sequence[Forked]:
        """The replicas below the relays. The last replica is that of the service."""
        return self.replicas[:-1]

    @property
    def current(self) -> Relay:
        """The relay to which all replicas listen, after they settled."""
        address = self.settle()[0].parents[0]
        return next(relay for relay in self.relays if relay.address == address)

    def settle(self, without: Relay | None = None) -> list[Figures]:
        """Wait until all replicas listen to one relay (not ``without``) that proves to be fresh. Raises BenchError. The
        figures of the time until then.
        """

        def settled(found: Sequence[Figures]) -> bool:
            parents = {tuple(each.parents) for each in found}
            left = without is None or (without.address,) not in parents
            return left and len(parents) == 1 and not any(each.polling for each in found)

        return self.until(settled, "do not settle", self.below)


def hop(tree: Tree, raw: float, seconds: float) -> Finding:
    """The latency of one relay more, against one hop of raw pyzmq more."""
    log(f"latency, {seconds:g} s …")
    figures_of(tree.replicas)
    time.sleep(seconds)
    *below, direct = figures_of(tree.replicas)
    more = min(each.p50 for each in below) - direct.p50
    ratio = more / raw
    words = (
        f"hop      p50 {1e6 * more:.0f} µs more below a relay ({1e6 * direct.p50:.0f} µs without); a hop of raw pyzmq "
        f"{1e6 * raw:.0f} µs; ratio {ratio:.2f}, {'within' if ratio <= MAX_HOP else 'OVER'} {MAX_HOP:g}"
    )
    return Finding("hop", words, {"more_seconds": more, "raw_seconds": raw, "ratio": ratio}, ratio <= MAX_HOP)


def kills(tree: Tree, options: argparse.Namespace) -> Finding:
    """SIGKILL of the current relay again and again. The killed one runs again before the next kill."""
    timing = tree.timing
    bound = moved(timing, options.sync)
    before = first = figures_of(tree.below)
    worst, least, most = 0.0, float("inf"), 0
    for number in range(options.kills):
        relay = tree.current
        assert relay.child is not None
        relay.child.kill()
        found = tree.settle(without=relay)
        relay.start()
        time.sleep(timing.max_idle_time)  # a late delta of this kill counts
        after = figures_of(tree.below)
        for old, until, new in zip(before, found, after, strict=True):
            worst, least = max(worst, until.worst, new.worst), min(least, until.least, new.least)
            most = max([most, *(count - old.deltas.get(topic, 0) for topic, count in new.deltas.items())])
        before = after
        log(f"kill {number + 1} of {options.kills}: staleness {worst:.2f} s, deltas of a topic {most}")
    fulls = sum(new.fulls - old.fulls for old, new in zip(first, before, strict=True))
    met = fulls == 0 and most <= 1 and worst <= bound and least >= 0.0
    words = (
        f"kills    {options.kills}: {fulls} full syncs, at most {most} deltas of a replica and topic; staleness at "
        f"most {worst:.2f} s, at least {least:.3f} s above the truth; bound {bound:.2f} s = 3 max_idle_time + "
        f"reading_age + round_trip + reconnection ({options.sync:g} s a sync): {'met' if met else 'MISSED'}"
    )
    figures = {"fulls": fulls, "deltas": most, "worst_seconds": worst, "least_seconds": least, "bound_seconds": bound}
    return Finding("kills", words, figures, met)


def left(
    tree: Tree, options: argparse.Namespace, name: str, begin: Callable[[Relay], None], end: Callable[[Relay], None]
) -> Finding:
    """How long the replicas stay with a relay that is cut off or hangs."""
    limit = tree.timing.stale_after + tree.timing.max_idle_time
    longest, least = 0.0, float("inf")
    for number in range(options.cuts):
        relay = tree.current
        begun = time.monotonic()
        begin(relay)
        try:
            found = tree.settle(without=relay)
        finally:
            end(relay)
        longest = max([longest, *(each.moved - begun for each in found)])
        least = min([least, *(each.least for each in found)])
        if not poll(relay.is_ready, PATIENCE):
            raise BenchError(f"{relay.name} is not ready after the {name}")
        log(f"{name} {number + 1} of {options.cuts}: left after {longest:.2f} s")
    met = longest <= limit and least >= 0.0
    words = (
        f"{name:<8} {options.cuts}: left after at most {longest:.2f} s, limit {limit:.2f} s = 3 max_idle_time + one "
        f"round; staleness at least {least:.3f} s above the truth: {'met' if met else 'MISSED'}"
    )
    return Finding(name, words, {"seconds": longest, "limit_seconds": limit, "least_seconds": least}, met)
