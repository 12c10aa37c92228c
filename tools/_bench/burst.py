"""Bursts of transactions into a replica of 100,000 keys with all checks, compared with raw pyzmq's messages."""

import gc
import time
from collections.abc import Sequence

from _children import Children, Line
from _processes import free_port

from _bench import raw
from _bench.measure import Log, Row, Sizes, in_turns, row
from _bench.payload import Plan, plan
from _bench.replicas import PLAIN, Sides, replicate, settings
from pubsub_lib.publisher.publisher import Publisher

SEED = 1
TOGETHER = 200
"""Number of changes of one call."""
PEER = "raw pyzmq, one message an event"


def run(changes: int, required: float, sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """Measure transactions of ``changes`` changes each."""
    planned = plan("bench", sizes.keys, sizes.changes // changes, changes, SEED)
    gc.collect()
    gc.freeze()  # the plan is not garbage: collections in the forked processes need not examine it
    values = list(in_turns(rounds, lambda: measure(planned), lambda: raw.measure(planned.changes), log))
    title = f"burst of {changes}-change transactions, replica of {sizes.keys:,} keys"
    return [row(f"burst{changes}", title, "changes/s", PEER, values, "least", required)]


def publish(line: Line, port: int, planned: Plan, sides: Sides) -> None:
    """The publishing process. It sends several transactions per call, as a service does with the transactions that its
    workers handed over at once: no single writer commits that fast.
    """
    with sides.planned([planned]) as store, Publisher(sides.change(settings(port)), store) as publisher:
        line.send()
        line.wait()
        store.commit()
        together = max(1, TOGETHER // len(planned.links[0].changes))
        begun = time.monotonic()
        for first in range(0, len(planned.links), together):
            publisher.publish(planned.links[first : first + together])
        line.send(begun)
        line.wait()


def measure(planned: Plan, sides: Sides = PLAIN) -> float:
    """Applied changes per second, from the first ``publish`` to the last change in the replica."""
    with Children() as children:
        port = free_port()
        publisher = children.fork(publish, port, planned, sides)
        publisher.receive()
        replica = children.fork(replicate, port, [planned], sides)
        replica.receive()
        publisher.send()
        begun = publisher.receive()
        ended = replica.receive()
        replica.receive()
        return planned.changes / float(ended - begun)
