"""Links through a relay while many replicas read all its objects from its sync channel, compared with the time before.

One process sends 1,000 transactions a second on all topics in turns; a replica below the relay measures from the call
after the commit to its handler. After some seconds all children ask at once for all objects; who is sent away with 503
comes again after the time in that answer. The relay has the endpoint and the limits of ``publisher-service``. The
children stand for other hosts, so they run at the lowest priority.

All processes share this machine's processors. So the same links go through a second relay at the same time, which
answers no replica: its figures show what the processors cost, and the difference is the cost of answering.
"""

import ctypes
import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from _children import Children, Line
from _processes import free_ports
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from _bench.latency import RATE, stamped
from _bench.measure import BenchError, Log, Row, Sizes, row
from _bench.payload import Plan, plan
from _bench.relay import relayed
from _bench.replicas import TIMING, settings, started
from _bench.store import PlannedStore
from pubsub_lib import Replica
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.core.events import Event
from pubsub_lib.core.model import Full, Head, Want
from pubsub_lib.errors import PubSubError
from pubsub_lib.http_endpoint import Endpoint
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.sync.client import Busy, SyncClient
from pubsub_lib.sync.server import ROUTE, SyncRoute

CHILDREN = 20
TOPICS = 20
MAX_FACTOR = 5.0
"""Maximum p99 during the syncs, as a multiple of that before them."""
MAX_SECONDS = 60
"""Maximum duration of a round: the plan has links for it."""
AGAIN = 0.2
"""Seconds before a child asks again after an answer that it cannot use."""


class PublishedStore(PlannedStore):
    """Its heads are those of the last published links, as in a database."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        super().__init__(plans)
        self.heads: dict[str, Head] = {}

    def _head(self, name: str) -> Head:
        return self.heads.get(name) or super()._head(name)


class NoMetrics(Collector):
    """The endpoint's metrics, which are not read."""

    def collect(self) -> Iterable[Metric]:
        """None."""
        return ()


class Figures(msgspec.Struct, frozen=True):
    """The 99th percentiles of one round, in seconds."""

    before: float
    during: float
    beside_before: float
    beside_during: float
    """Through the relay that answers no replica."""


def run(sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """Two rows: the relay that is asked, and the one beside it, which is not judged."""
    found = []
    for number in range(rounds):
        log(f"round {number + 1} of {rounds}")
        found.append(measure(sizes.keys, sizes.latency_messages))
    title = f"p99 through a relay while {CHILDREN} replicas read {sizes.keys:,} objects"
    asked = [(each.during * 1e6, each.before * 1e6) for each in found]
    beside = [(each.beside_during * 1e6, each.beside_before * 1e6) for each in found]
    other = "the same through a relay that answers none"
    return [
        row("relay-syncs", title, "µs", "the same before", asked, "most", MAX_FACTOR),
        row("relay-syncs-beside", other, "µs", "the same before", beside, "most", None),
    ]


@contextmanager
def without_collecting() -> Iterator[None]:
    """Garbage collections skip what exists now, also in the processes that are started. The plans, which no relay and
    no replica has otherwise, would make each full collection take 0.1 s and more.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def measure(keys: int, count: int) -> Figures:
    """``count`` transactions before the syncs, and those during them."""
    links = MAX_SECONDS * RATE // TOPICS
    keys = max(keys, TOPICS)
    plans = [plan(f"tenant-{number}", keys // TOPICS, links, 1, number) for number in range(TOPICS)]
    stop = multiprocessing.get_context("fork").RawValue(ctypes.c_byte, 0)
    with without_collecting(), Children() as children:
        above, below, http, below_beside = free_ports(4)
        sender = children.fork(send, above, plans, stop)
        readers = [children.fork(read, http, plans) for _ in range(CHILDREN)]
        sender.receive()
        children.fork(serve, above, below, http, plans).receive()
        children.fork(beside, above, below_beside, plans).receive()
        replicas = [children.fork(replicate, each, plans) for each in (below, below_beside)]
        for each in replicas:
            each.receive()
        for each in readers:
            each.receive()
        sender.send()
        time.sleep(0.5)
        begun = time.monotonic()
        time.sleep(max(1.0, count / RATE))  # else one delay of the machine leaves no figures
        asked = time.monotonic()
        for each in readers:
            each.send()
        for each in readers:
            each.receive()
        ended = time.monotonic()
        stop.value = 1
        sender.receive()
        figures: list[float] = []
        for each in replicas:
            each.send()
            took: Sequence[tuple[float, float]] = each.receive()
            figures.append(p99([value for at, value in took if begun <= at < asked]))
            figures.append(p99([value for at, value in took if asked <= at < ended]))
    return Figures(*figures)


def p99(took: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(took, n=100)[98]


def send(line: Line, port: int, plans: Sequence[Plan], stop: ctypes.c_byte) -> None:
    """Publish until ``stop``."""
    store = PublishedStore(plans)
    with Publisher(settings(port), store) as publisher:
        line.send()
        line.wait()
        due = time.monotonic()
        for number in range(len(plans[0].links)):
            for each in plans:
                due = max(due + 1 / RATE, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))
                link = each.links[number]
                store.heads[each.topic] = Head(link.point, link.count, link.digest)
                publisher.publish([stamped(link)])
            if stop.value:
                break
        else:
            raise BenchError(f"the syncs took more than {MAX_SECONDS} s")
        line.send()
        line.wait()


def serve(line: Line, above: int, below: int, http: int, plans: Sequence[Plan]) -> None:
    """The relay with its sync channel."""
    limits = ServiceSettings()
    with relayed(above, below, plans) as running:
        route = SyncRoute(running.answer, limits.max_syncs, TIMING.sync_timeout, limits.snapshot_bytes)
        endpoint = Endpoint("127.0.0.1", http, NoMetrics(), tuple, "metrics_port", streams={ROUTE: route})
        endpoint.start()
        line.send()
        line.wait()


def beside(line: Line, above: int, below: int, plans: Sequence[Plan]) -> None:
    """The relay that answers no replica."""
    with relayed(above, below, plans):
        line.send()
        line.wait()


def read(line: Line, http: int, plans: Sequence[Plan]) -> None:
    """A child: it reads all objects once."""
    os.nice(19)
    made = settings(0)
    client = SyncClient(
        f"http://127.0.0.1:{http}", timeout=TIMING.sync_timeout, begin=TIMING.sync_timeout,
        max_frame_bytes=made.limits.max_frame_bytes, max_bytes=2**40,
    )  # fmt: skip
    line.send()
    line.wait()
    wants = {each.topic: Want() for each in plans}
    while True:
        try:
            answer = client.read_sync(wants)
        except Busy as error:
            time.sleep(error.seconds)
        except PubSubError:
            time.sleep(AGAIN)
        else:
            break
    for each in plans:
        part = answer.chains[each.topic]
        assert isinstance(part, Full)
        assert len(part.topics[each.topic].records) == len(each.start.records)
    line.send()
    line.wait()


def replicate(line: Line, port: int, plans: Sequence[Plan]) -> None:
    """A replica with a handler that measures."""
    took: list[tuple[float, float]] = []

    def handler(event: Event) -> None:
        if event.written_at:  # not of the first sync
            took.append((event.written_at, time.monotonic() - event.written_at))

    topics = [each.topic for each in plans]
    with Replica(settings(port), topics=topics, store=PlannedStore(plans)) as replica:
        replica.on(None, handler)
        started(replica)
        line.send()
        line.wait()
        status = replica.status()
        if status.faults.mismatches or status.sequences.holes or status.last_error:
            raise BenchError(f"the replica counted faults: {status.faults}, {status.sequences}, {status.last_error}")
        line.send(took)
        line.wait()
