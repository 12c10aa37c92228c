"""One measurement: starts watchers and writers as processes, waits until all is connected, and computes the figures."""

import itertools
import statistics
import time
from array import array
from collections.abc import Sequence

import msgspec
from _children import Children, Forked, Line

from _bench.e2e.plan import PROBE, Cell, value
from _bench.e2e.seen import Seen, Watched
from _bench.e2e.side import Session, Side
from _bench.measure import BenchError

CONNECT = 120.0
"""Maximum number of seconds until every watcher has received a probe."""
MEASURE = 600.0
"""Maximum number of seconds of a measurement: the largest cell has 200,000 handler calls."""
PROBE_PAUSE = 0.05


class Measured(msgspec.Struct, frozen=True):
    """One round's figures. ``rate``: transactions per second until the last watcher's handler has run. ``confirmed``:
    until the last write was confirmed, which is without the delivery. ``p50`` and ``p99``: milliseconds from before the
    write to the handler, of a paced cell. ``fewest``: of the watchers' numbers of handler calls.
    """

    rate: float
    confirmed: float
    p50: float
    p99: float
    fewest: int


def write(line: Line, session: Session, cell: Cell, number: int) -> None:
    """A writer's process: probes while the parent asks for them, then its transactions."""
    with session.writer(number) as put:
        line.send()
        while line.wait() == PROBE:
            put([(PROBE, value(0, time.monotonic_ns()))])
            line.send()
        begun = time.monotonic_ns()
        pause = cell.writers / cell.rate if cell.rate else 0.0
        for each in range(cell.each):
            if pause:
                time.sleep(max(0.0, begun / 1e9 + (each + number / cell.writers) * pause - time.monotonic()))
            put(cell.transaction(number, each))
        line.send((begun, time.monotonic_ns()))
        line.wait()


def watch(line: Line, session: Session, cell: Cell) -> None:
    """A watcher's process. Sends once when it is connected, then its report."""
    seen = Seen(cell, line.send)
    session.watch(seen)
    line.send(seen.report())
    line.wait()


def measure(side: Side, cell: Cell) -> Measured:
    """Measure once. Raises PubSubError when a process fails, or a watcher does not get every key's last value."""
    with Children() as children, side.session(children, cell) as session:
        watchers = [children.fork(watch, session, cell) for _ in range(cell.watchers)]
        writers = [children.fork(write, session, cell, number) for number in range(cell.writers)]
        for writer in writers:
            writer.receive()
        connect(watchers, writers[0])
        for writer in writers:
            writer.send()
        written = [writer.receive(MEASURE) for writer in writers]
        return computed(cell, written, [watcher.receive(MEASURE) for watcher in watchers])


def connect(watchers: Sequence[Forked], writer: Forked) -> None:
    """Have probes written until every watcher has received one. Raises BenchError, ChildError."""
    left, deadline = list(watchers), time.monotonic() + CONNECT
    for turn in itertools.count():
        writer.send(PROBE)
        writer.receive()
        pause = time.monotonic() + PROBE_PAUSE * min(1 + turn, 10)
        while left and left[0].sent(pause - time.monotonic()):
            left.pop(0).receive()
        if not left:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"{len(left)} of {len(watchers)} watchers received nothing for {CONNECT:.0f} s")


def computed(cell: Cell, written: Sequence[tuple[int, int]], reports: Sequence[Watched]) -> Measured:
    """The figures of all writers' begins and ends, in nanoseconds, and of all watchers' reports."""
    begun, transactions = min(begin for begin, _ in written), cell.writers * cell.each
    rate = transactions * 1e9 / (max(each.ended for each in reports) - begun)
    confirmed = transactions * 1e9 / (max(end for _, end in written) - begun)
    took = array("q")
    for each in reports:
        took.extend(each.took)
    p50, p99 = (statistics.median(took) / 1e6, percentile(took, 99) / 1e6) if took else (0.0, 0.0)
    return Measured(rate, confirmed, p50, p99, min(each.events for each in reports))


def percentile(values: Sequence[int], percent: int) -> float:
    """The smallest value that at least ``percent`` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
