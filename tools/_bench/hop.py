"""Four workers through the service into one replica, beside Dragonflow's chain as re-created in :mod:`.dragonflow`."""

import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _processes import free_port

from _bench import dragonflow
from _bench.children import Line, crew
from _bench.measure import Row, Say, Sizes, in_turns, row
from _bench.payload import Plan, plan
from _bench.replicas import replicate, settings
from _bench.store import PlannedStore
from pubsub_lib.core.unpublished_links import UnpublishedLinks
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.publisher.worker import Worker
from pubsub_lib.service.outgoing import Outgoing
from pubsub_lib.service.receiving import Receiving
from pubsub_lib.service.service import drivers

WORKERS = 4
CHANGES = 10
"""Of one transaction."""
REQUIRED = 10.0
PEER = "Dragonflow's chain, re-created"


def run(sizes: Sizes, rounds: int, say: Say) -> Sequence[Row]:
    """Each worker writes to a topic of its own, as API workers mostly work for different tenants."""
    each = max(1, sizes.hop_changes // WORKERS // CHANGES)
    plans = [plan(f"tenant-{number}", sizes.keys // WORKERS, each, CHANGES, number) for number in range(WORKERS)]
    gc.collect()
    gc.freeze()
    values = list(in_turns(rounds, lambda: measure(plans), lambda: dragonflow.measure(sizes.chain_events), say))
    title = f"{WORKERS} workers through the service, {CHANGES}-change transactions"
    return [row("hop", title, "changes/s", PEER, values, "least", REQUIRED)]


def work(line: Line, port: int, path: Path, planned: Plan) -> None:
    """A worker process: hands over one transaction after the other, as the store does after each commit."""
    with Worker(settings(port, path), PlannedStore([planned])) as worker:
        line.say()
        line.wait()
        transactions = [[link] for link in planned.links]
        begun = time.monotonic()
        for links in transactions:
            worker.hand_over(links)
        line.say(begun)
        line.wait()


def serve(line: Line, port: int, path: Path, plans: Sequence[Plan]) -> None:
    """The service's way from workers to replicas. Without its database, which has no part in this way."""
    store = PlannedStore(plans)
    made = settings(port, path)
    sender, subscriber = drivers(made)
    assert subscriber is not None
    with Publisher(made, store, sender) as publisher:
        outgoing = Outgoing(made.service, UnpublishedLinks(made.service, 1.0, 60.0), publisher)
        receiving = Receiving(subscriber, made.service, outgoing)
        receiving.start()
        line.say()
        line.wait()
        receiving.close()


def measure(plans: Sequence[Plan]) -> float:
    """Applied changes per second, from the first worker's first transaction to the last change in the replica."""
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as folder, crew() as start:
        port, path = free_port(), Path(folder, "hop")
        service = start(serve, port, path, plans)
        service.hear()
        replica = start(replicate, port, plans)
        replica.hear()
        workers = [start(work, port, path, planned) for planned in plans]
        for worker in workers:
            worker.hear()
        for worker in workers:
            worker.tell()
        begun = min(float(worker.hear()) for worker in workers)
        ended = float(replica.hear())
        replica.hear()
        return sum(planned.changes for planned in plans) / (ended - begun)
