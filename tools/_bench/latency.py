"""Latency at 1,000 transactions a second, from the call after the commit to the controller's handler.

Directly (publisher to replica), and through the hop (worker to service to replica), each compared with raw pyzmq from
``send`` to the return of ``recv``. Timestamps are of the machine's monotonic clock, which all its processes share.
"""

import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq
from _children import Children, Line
from _processes import free_port

from _bench import hop
from _bench.measure import Log, Row, Sizes, in_turns, row
from _bench.payload import Plan, plan, value
from _bench.raw import TOPIC
from _bench.replicas import PLAIN, Sides, check, settings, started
from _bench.store import PlannedStore
from pubsub_lib import Replica
from pubsub_lib.core.events import Event
from pubsub_lib.core.model import Link
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.publisher.worker import Worker

RATE = 1000
"""Transactions per second."""
DIRECT, THROUGH = 2.0, 4.0
"""Maximum p50, as a multiple of raw pyzmq's."""
PEER = "raw pyzmq, send to recv"
STAMP = struct.Struct("d")


def run(sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """Measure two rows: directly, and through the hop."""
    count = sizes.latency_messages
    planned = plan("bench", min(sizes.keys, 1000), count, 1, 1)
    rows = []
    for name, title, measure, required in (
        ("latency", "p50 to the handler at 1,000/s, direct", direct, DIRECT),
        ("latency-hop", "p50 to the handler at 1,000/s, through the hop", through, THROUGH),
    ):
        values = list(in_turns(rounds, lambda m=measure: m(planned) * 1e6, lambda: raw(count) * 1e6, log))  # type: ignore[misc]
        rows.append(row(name, title, "µs", PEER, values, "most", required))
    return rows


def paced(count: int, send: Callable[[int], None], rate: float = RATE) -> None:
    """Call ``send`` ``count`` times, ``rate`` times per second."""
    begun = time.monotonic()
    for number in range(count):
        wait = begun + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        send(number)


# -- the peer --------------------------------------------------------------------------------------------------------


def raw_send(line: Line, port: int, count: int, rate: float) -> None:
    """Raw pyzmq's sender."""
    socket = zmq.Context().socket(zmq.XPUB)
    socket.bind(f"tcp://127.0.0.1:{port}")
    line.send()
    socket.recv()
    body = value(0)
    paced(count, lambda _: socket.send(TOPIC + STAMP.pack(time.monotonic()) + body), rate)
    line.wait()


def raw_receive(line: Line, port: int, count: int, topic: bytes = TOPIC) -> None:
    """Raw pyzmq's receiver: sends once it subscribes, and then the median."""
    socket = zmq.Context().socket(zmq.SUB)
    socket.connect(f"tcp://127.0.0.1:{port}")
    socket.subscribe(topic)
    line.send()
    took = []
    for _ in range(count):
        data = socket.recv()
        took.append(time.monotonic() - STAMP.unpack_from(data, len(topic))[0])
    line.send(statistics.median(took))


def raw(count: int, rate: float = RATE) -> float:
    """The median, in seconds, at ``rate`` messages a second."""
    with Children() as children:
        port = free_port()
        children.fork(raw_send, port, count, rate).receive()
        receiver = children.fork(raw_receive, port, count)
        receiver.receive()
        return float(receiver.receive())


# -- ours ------------------------------------------------------------------------------------------------------------


def stamped(link: Link) -> Link:
    """The link with the current time as its write time, by the monotonic clock: only this case reads the timestamp."""
    return Link(
        link.topic, link.prev, link.point, link.changes, link.count, link.digest, link.tx_prev, link.tx_links,
        link.origin, time.monotonic(),
    )  # fmt: skip


def replicate(line: Line, port: int, planned: Plan, sides: Sides = PLAIN) -> None:
    """A replica with a handler that measures the latencies."""
    took: list[float] = []
    done = threading.Event()

    def handler(event: Event) -> None:
        if event.written_at:  # not of the first sync
            took.append(time.monotonic() - event.written_at)
            if event.position == planned.end.point.position:
                done.set()

    with (
        sides.planned([planned]) as store,
        Replica(sides.change(settings(port)), topics=[planned.topic], store=store) as replica,
    ):
        replica.on(None, handler)
        started(replica)
        line.send()
        store.commit()
        done.wait()
        check(replica, [planned])
        assert len(took) == planned.changes
        line.send(statistics.median(took))


def publish(line: Line, port: int, planned: Plan, sides: Sides) -> None:
    """The publishing process."""
    with sides.planned([planned]) as store, Publisher(sides.change(settings(port)), store) as publisher:
        line.send()
        line.wait()
        paced(len(planned.links), lambda number: publisher.publish([stamped(planned.links[number])]))
        line.wait()


def work(line: Line, port: int, path: Path, planned: Plan) -> None:
    """The worker's process."""
    with Worker(settings(port, path), PlannedStore([planned])) as worker:
        paced(len(planned.links), lambda number: worker.hand_over([stamped(planned.links[number])]))
        line.wait()


def direct(planned: Plan, sides: Sides = PLAIN) -> float:
    """The median, in seconds."""
    with Children() as children:
        port = free_port()
        publisher = children.fork(publish, port, planned, sides)
        publisher.receive()
        replica = children.fork(replicate, port, planned, sides)
        replica.receive()
        publisher.send()
        return float(replica.receive())


def through(planned: Plan) -> float:
    """The median, in seconds."""
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as folder, Children() as children:
        port, path = free_port(), Path(folder, "hop")
        service = children.fork(hop.serve, port, path, [planned])
        service.receive()
        replica = children.fork(replicate, port, planned)
        replica.receive()
        children.fork(work, port, path, planned)
        return float(replica.receive())
