"""Four workers through the service into one replica, compared with Dragonflow's chain (:mod:`.dragonflow`)."""

import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _children import Children, Line
from _processes import free_port

from _bench import dragonflow
from _bench.measure import Log, Row, Sizes, in_turns, row
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
"""Number of changes of one transaction."""
REQUIRED = 10.0
PEER = "Dragonflow's chain, re-created"


def run(sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """Each worker writes to a separate topic, because API workers mostly work for different tenants."""
    each = max(1, sizes.hop_changes // WORKERS // CHANGES)
    plans = [plan(f"tenant-{number}", sizes.keys // WORKERS, each, CHANGES, number) for number in range(WORKERS)]
    gc.collect()
    gc.freeze()
    values = list(in_turns(rounds, lambda: measure(plans), lambda: dragonflow.measure(sizes.chain_events), log))
    title = f"{WORKERS} workers through the service, {CHANGES}-change transactions"
    return [row("hop", title, "changes/s", PEER, values, "least", REQUIRED)]


def work(line: Line, port: int, path: Path, planned: Plan) -> None:
    """A worker process: it hands over one transaction after another, as the store does after each commit."""
    with Worker(settings(port, path), PlannedStore([planned])) as worker:
        line.send()
        line.wait()
        transactions = [[link] for link in planned.links]
        begun = time.monotonic()
        for links in transactions:
            worker.hand_over(links)
        line.send(begun)
        line.wait()


def serve(line: Line, port: int, path: Path, plans: Sequence[Plan]) -> None:
    """The service's path from workers to replicas, without the database, which this path does not use."""
    store = PlannedStore(plans)
    made = settings(port, path)
    sender, subscriber = drivers(made)
    assert subscriber is not None
    with Publisher(made, store, sender) as publisher:
        outgoing = Outgoing(made.service_name, UnpublishedLinks(made.service_name, 1.0, 60.0), publisher)
        receiving = Receiving(subscriber, made.service_name, outgoing, lambda: store.store_id)
        receiving.start()
        line.send()
        line.wait()
        receiving.close()


def measure(plans: Sequence[Plan]) -> float:
    """Applied changes per second, from the first worker's first transaction to the last change in the replica."""
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as folder, Children() as children:
        port, path = free_port(), Path(folder, "hop")
        service = children.fork(serve, port, path, plans)
        service.receive()
        replica = children.fork(replicate, port, plans)
        replica.receive()
        workers = [children.fork(work, port, path, planned) for planned in plans]
        for worker in workers:
            worker.receive()
        for worker in workers:
            worker.send()
        begun = min(float(worker.receive()) for worker in workers)
        ended = float(replica.receive())
        replica.receive()
        return sum(planned.changes for planned in plans) / (ended - begun)
