"""Measures the cost of one change on its path, in processor time of one thread: ``tools/bench path``.

For transactions of 10 changes and of 1: a publisher's numbering and encoding, a replica's decoding, and all work of a
replica; then the minimum cost of a replica, step by step, as loops with only that step. It prints µs per change: the
median of all frames, and the fastest tenth, which shows the machine without other processes in its caches.
docs/contributing/profile.md has its output. It takes ten seconds and 500 MB.
"""

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from _bench.measure import BenchError
from _bench.payload import Plan, plan
from _bench.store import STORE_ID
from _command_line import Parser, at_least, positive

from _measurements.command import Finding, Findings
from pubsub_lib.core import codec
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.digest import fingerprint
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Change, Link, SyncAnswer
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.core.timing import Timing

TOGETHER = 200
"""Number of changes of one call, as in the bursts of tools/bench."""
TOPIC = "path"
TIMING = Timing(max_idle_time=60.0, message_delay_window=30.0)
LIMITS = Limits()
Frame = tuple[bytes, bytes]
Item = TypeVar("Item")


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--keys", type=positive, default=100_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--changes", type=at_least(2000), default=60_000, metavar="N", help="of each size (default: %(default)s)"
    )


def measure(options: argparse.Namespace) -> Findings:
    """The steps for large transactions, then for small ones."""
    for changes in (10, 1):
        planned = plan(TOPIC, options.keys, options.changes // changes, changes, 1)
        gc.collect()
        gc.freeze()  # the plan does not belong to the library's work
        words = f"transactions of {changes}, {options.keys:,} keys, µs per change: median, fastest tenth"
        yield Finding(f"transactions of {changes}", words, {"keys": options.keys, "changes": options.changes})
        costs, frames = publish(planned, TOGETHER // changes)
        yield costs
        yield measured("replica: decode", decoded, frames)
        yield replicate("replica: all, without a listener", planned, frames, listens=False)
        yield replicate("replica: all, with events for a listener", planned, frames, listens=True)
        if changes > 1:
            for name, step in floors(planned):
                yield measured(f"floor: {name}", lambda frame, step=step: step(decoded(frame)), frames)  # type: ignore[misc]


def measured(name: str, work: Callable[[Item], Sequence[Change]], items: Iterable[Item]) -> Finding:
    """The cost of each change that ``work`` returns for an item."""
    taken = []
    for item in items:
        begun = time.thread_time()
        done = work(item)
        taken.append((time.thread_time() - begun) / len(done) * 1e6)
    median, fastest = statistics.median(taken), statistics.quantiles(taken, n=10)[0]
    figures = {"median_microseconds": median, "fastest_tenth_microseconds": fastest}
    return Finding(name, f"  {name:<60}{median:6.2f}{fastest:6.2f}", figures)


def publish(planned: Plan, together: int) -> tuple[Finding, Sequence[Frame]]:
    """The cost of a publisher, and the frames that it sends."""
    publishing = Sequencer(TOPIC, "0" * 32, TIMING, LIMITS, 0.0)
    publishing.store_id = STORE_ID
    frames: list[Frame] = []

    def send(links: Sequence[Link]) -> Sequence[Change]:
        frames.extend([codec.encode(envelope, LIMITS) for envelope in publishing.publish(links, 0.0)])
        return changes_of(links)

    calls = (planned.links[first : first + together] for first in range(0, len(planned.links), together))
    return measured("publisher: number and encode", send, calls), frames


def replicate(name: str, planned: Plan, frames: Sequence[Frame], *, listens: bool) -> Finding:
    """The cost of a replica that holds the objects before the first transaction."""
    replica_state = ReplicaState(TIMING, LIMITS, random.Random(1), Cache(), 0.0)
    replica_state.listens = lambda: listens
    replica_state.subscribe([TOPIC], 0.0)
    now, sync = 0.0, None
    while sync is None:
        now += TIMING.hello_wait
        sync = replica_state.tick(now).sync
    replica_state.sync_done(sync.number, SyncAnswer(planned.start.head.point, {TOPIC: planned.full()}, STORE_ID), now)

    def receive(frame: Frame) -> Sequence[Change]:
        envelope = codec.decode(frame, LIMITS)
        replica_state.feed(envelope, now)
        return changes_of(message.link for message in envelope.messages)

    finding = measured(name, receive, frames)
    if replica_state.tracker.chain(TOPIC).known != planned.end.point or replica_state.faults.mismatches:
        raise BenchError("the replica did not apply all changes: these figures are invalid")
    return finding


def decoded(frame: Frame) -> Sequence[Change]:
    """A frame's changes."""
    return changes_of(message.link for message in codec.decode(frame, LIMITS).messages)


def changes_of(links: Iterable[Link]) -> Sequence[Change]:
    """All changes of the links. It costs 0.02 µs per change, which every figure includes."""
    changes: list[Change] = []
    for link in links:
        changes += link.changes
    return changes


def floors(planned: Plan) -> Iterator[tuple[str, Callable[[Sequence[Change]], Sequence[Change]]]]:
    """The steps. Each does the work of the step before it, and more."""
    values = {record.key: bytes(bytearray(record.value)) for record in planned.start.records}

    def look(changes: Sequence[Change]) -> Sequence[Change]:
        for change in changes:
            _ = change.key, change.version, change.value
        return changes

    def find(changes: Sequence[Change]) -> Sequence[Change]:
        for change in changes:
            values.get(change.key)
        return changes

    def replace(changes: Sequence[Change]) -> Sequence[Change]:
        for change in changes:
            values[change.key] = change.value or b""
        return changes

    def check(changes: Sequence[Change]) -> Sequence[Change]:
        for change in changes:
            value = values[change.key] = change.value or b""
            fingerprint(change.table, change.key, change.version, value)
        return changes

    yield "decode, and read every change", look
    yield "find its object", find
    yield "replace it in a plain dict, without any check", replace
    yield "compute one fingerprint of each", check
