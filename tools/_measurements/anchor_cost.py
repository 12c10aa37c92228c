"""Measures what the comparison with the store (rule 14) costs a replica: ``tools/bench anchor-cost``.

A replica follows N idle topics of a SQLite database, over ZeroMQ. In turns it compares itself with the store
about every second and never. Prints the processor time of one comparison, its share of a core at the default
``verify_interval``, and in both cases the median from before a commit of another process to the handler.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import msgspec
from _bench.measure import BenchError
from _children import Children, Line
from _command_line import Parser, positive
from _processes import free_port

from _measurements.command import Finding, Findings
from _measurements.topics import TABLE, commit, fill, names
from pubsub_lib import Event, Publisher, Replica, Settings, Store
from pubsub_lib.core.timing import Timing

OFTEN: Final = 1.0
"""The ``verify_interval`` of the replica that compares itself; 60 s by default."""
CAUSE: Final = "unverified"
"""Of the deltas by which a replica compares itself."""
PACE: Final = 0.02
"""Seconds between two commits."""
SETTLE: Final = 3.0
"""Seconds for what the start of a replica has still to do."""


class Round(msgspec.Struct, frozen=True):
    """What one replica measured. Seconds."""

    work: float
    """Processor time while nothing was written."""
    comparisons: float
    """Comparisons of all topics with the store in that time."""
    delay: float
    """Median from before a commit to the handler."""


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--topics", type=positive, default=1000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--commits", type=positive, default=200, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of idling (default: %(default)s)")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="(default: %(default)s)")


def measure(options: argparse.Namespace) -> Findings:
    """Measure both in turns. Raises BenchError when the replica compares itself although it must not, or never does."""
    topics = names(options.topics)
    often: list[Round] = []
    never: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="pubsub-anchor-") as folder, Children() as children:
        settings = configured(Path(folder))
        with Store(settings) as store, Publisher(settings, store):
            for _ in range(options.rounds):
                for interval, found in ((OFTEN, often), (0.0, never)):
                    fill(store, topics)  # integers again, which note() leaves out
                    child = children.fork(replicate, settings, topics, interval, options)
                    child.receive()
                    for number in range(options.commits):
                        commit(store, topics, number, time.monotonic())
                        time.sleep(PACE)
                    found.append(child.receive())
    if any(each.comparisons for each in never) or not all(each.comparisons for each in often):
        raise BenchError(f"comparisons with the store: {often} and {never}; use more --seconds")
    yield from findings(often, never, options)


def configured(folder: Path) -> Settings:
    """The settings of the publisher and the replicas."""
    address = f"tcp://127.0.0.1:{free_port()}"
    return Settings(
        store_url=f"sqlite:///{folder}/anchor.db", service_name="anchor", driver="zmq_pubsub_driver",
        addresses=(address,), bind_address=address, multiproc_driver="",
    )  # fmt: skip


def replicate(
    line: Line, settings: Settings, topics: Sequence[str], interval: float, options: argparse.Namespace
) -> None:
    """A replica's process: idle for the given seconds, then take all commits. Sends when it is ready for them, and then
    its :class:`Round`.
    """
    timing = msgspec.structs.replace(settings.timing, verify_interval=interval, sync_jitter=0.0, sync_interval=0.1)
    delays: SimpleQueue[float] = SimpleQueue()
    with Replica(msgspec.structs.replace(settings, timing=timing), topics) as replica:
        replica.wait_synced(60.0)
        replica.on(TABLE, lambda event: note(event, delays))
        time.sleep(SETTLE)
        before, work = comparisons(replica), time.process_time()
        time.sleep(options.seconds)
        work, number = time.process_time() - work, comparisons(replica) - before
        line.send()
        found = [delays.get(timeout=60.0) for _ in range(options.commits)]
        line.send(Round(work, number / len(topics), statistics.median(found)))


def note(event: Event, delays: "SimpleQueue[float]") -> None:
    """A handler: the time since a commit began, which is the value of its object; the first values are integers."""
    now = time.monotonic()
    if isinstance(event.new, float):
        delays.put(now - event.new)


def comparisons(replica: Replica) -> int:
    """Deltas of topics that the replica has read to compare itself."""
    return replica.status().counters.deltas.get(CAUSE, 0)


def findings(often: Sequence[Round], never: Sequence[Round], options: argparse.Namespace) -> Findings:
    """The medians of the rounds."""
    idle = statistics.median(each.work for each in never)
    each_costs = statistics.median((each.work - idle) / each.comparisons for each in often)
    share = 100 * each_costs / Timing().verify_interval
    given = {"topics": options.topics, "commits": options.commits, "rounds": options.rounds}
    yield Finding("anchor", f"topics {options.topics}, commits {options.commits}, rounds {options.rounds}", given)
    words = f"one comparison     {1000 * each_costs:.2f} ms of processor time, {share:.3f} % of a core by default"
    yield Finding("comparison", words, {"seconds": each_costs, "percent_of_a_core": share})
    with_it, without = (statistics.median(each.delay for each in found) for found in (often, never))
    words = (
        f"commit to handler  {1000 * with_it:.2f} ms with one a second, {1000 * without:.2f} ms with none, "
        f"ratio {with_it / without:.2f}"
    )
    yield Finding("delay", words, {"often_seconds": with_it, "never_seconds": without, "ratio": with_it / without})
