"""Bursts of transactions into a replica of 100,000 keys with every check on, beside raw pyzmq's messages."""

import gc
import time
from collections.abc import Sequence

from _processes import free_port

from _bench import raw
from _bench.children import Line, crew
from _bench.measure import Row, Say, Sizes, in_turns, row
from _bench.payload import Plan, plan
from _bench.replicas import replicate, settings
from _bench.store import PlannedStore
from pubsub_lib.publisher.publisher import Publisher

SEED = 1
TOGETHER = 200
"""Changes of one call."""
PEER = "raw pyzmq, one message an event"


def run(changes: int, required: float, sizes: Sizes, rounds: int, say: Say) -> Sequence[Row]:
    """Transactions of so many changes each."""
    planned = plan("bench", sizes.keys, sizes.changes // changes, changes, SEED)
    gc.collect()
    gc.freeze()  # the plan is the bench's: no collection in the forked processes need look at it
    values = list(in_turns(rounds, lambda: measure(planned), lambda: raw.measure(planned.changes), say))
    title = f"burst of {changes}-change transactions, replica of {sizes.keys:,} keys"
    return [row(f"burst{changes}", title, "changes/s", PEER, values, "least", required)]


def publish(line: Line, port: int, planned: Plan) -> None:
    """The publishing process. It sends several transactions a call, as a service does with what it took from its
    workers at once: no single writer commits as fast as that.
    """
    store = PlannedStore([planned])
    with Publisher(settings(port), store) as publisher:
        line.say()
        line.wait()
        store.commit()
        together = max(1, TOGETHER // len(planned.links[0].changes))
        begun = time.monotonic()
        for first in range(0, len(planned.links), together):
            publisher.publish(planned.links[first : first + together])
        line.say(begun)
        line.wait()


def measure(planned: Plan) -> float:
    """Applied changes per second, from the first ``publish`` to the last change in the replica."""
    with crew() as start:
        port = free_port()
        publisher = start(publish, port, planned)
        publisher.hear()
        replica = start(replicate, port, [planned])
        replica.hear()
        publisher.tell()
        begun = publisher.hear()
        ended = replica.hear()
        replica.hear()
        return planned.changes / float(ended - begun)
